package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

type publishOptions struct {
	database   databaseFlags
	ndjson     bool
	batch      int
	maxPayload int
	headers    []string
	json       bool
}

func newPublishCommand(env *environment) *cobra.Command {
	var o publishOptions
	cmd := &cobra.Command{
		Use:   "publish QUEUE TYPE [PAYLOAD | -]\n  pgque-vendor publish QUEUE --ndjson",
		Short: "Send one event, or many from lines of JSON",
		Long: `Send an event. The payload is JSON; "-" reads it from stdin, and without one it
is null. A type is a name of at most 1,024 bytes. The event's id is printed.

With --ndjson each line of stdin is an event, {"type": …, "payload": …}, and may
have "headers", an object of strings. Every --batch lines are one transaction of
at most 256 MiB, sent or not sent as a whole. A bad line ends the run and is named
by its number, with what was committed before it; --json writes that, too.

The lines of "consume --print" are such lines. A "payload_text", which is there for
a payload that is no JSON, is sent as a JSON string; "id", "time", "attempt",
"queue" and "consumer" are ignored.

The login needs pgque_writer. A ticker with --nudge is told, and ticks at once.`,
		Example: `  pgque-vendor publish tickets ticket.welcome '{"email": "a@example.org"}'
  pgque-vendor publish tickets --ndjson < events.ndjson`,
		Args: func(_ *cobra.Command, args []string) error { return o.checkArgs(args) },
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), env, args) },
	}
	o.database.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.ndjson, "ndjson", false, "read events from stdin, one JSON object a line")
	flags.IntVar(&o.batch, "batch", 1000, "with --ndjson: lines in one transaction")
	flags.IntVar(&o.maxPayload, "max-payload", events.DefaultMaxPayload, "the largest payload in bytes")
	flags.StringArrayVar(&o.headers, "header", nil, "a header `NAME=VALUE` of the event; repeatable")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

// largestPayload is what --max-payload takes at most. PostgreSQL has no value of 1 GB,
// and a payload is there twice in a statement that quotes it, or in a line.
const largestPayload = 256 << 20

// checkArgs counts the arguments. It is called once the variables are read: --ndjson,
// which says how many there are, has one.
func (o *publishOptions) checkArgs(args []string) error {
	switch {
	case o.ndjson && len(args) != 1:
		return fault.New(fault.Usage, "publish --ndjson takes a QUEUE and no more, got %d arguments", len(args)).Hint("pgque-vendor publish --help")
	case !o.ndjson && (len(args) < 2 || len(args) > 3):
		return fault.New(fault.Usage, "publish takes QUEUE TYPE [PAYLOAD | -], got %d arguments", len(args)).Hint("pgque-vendor publish --help")
	}
	return nil
}

// check refuses flags and arguments that do not go together.
func (o *publishOptions) check(env *environment) error {
	switch {
	case o.batch < 1:
		return fault.New(fault.Usage, "--batch is %d: it takes 1 or more", o.batch)
	case !o.ndjson && env.typed["batch"] != nil:
		return fault.New(fault.Usage, "--batch is for --ndjson: it is the number of lines in one transaction")
	case o.maxPayload < 1 || o.maxPayload > largestPayload:
		return fault.New(fault.Usage, "--max-payload is %d: it takes 1 to %d", o.maxPayload, largestPayload)
	case o.ndjson && len(o.headers) > 0:
		return fault.New(fault.Usage, "--header and --ndjson exclude each other: a line has its own \"headers\"")
	}
	return nil
}

func (o *publishOptions) run(ctx context.Context, env *environment, args []string) error {
	if err := o.check(env); err != nil {
		return err
	}
	p := publisher{options: o, queue: args[0]}
	var event events.Event
	var err error
	if !o.ndjson {
		if event, err = o.event(ctx, env, args[1:]); err != nil {
			return err
		}
	}
	if p.conn, p.settings, err = o.database.connect(ctx, env, "pgque-vendor publish"); err != nil {
		return err
	}
	defer p.conn.Close(context.WithoutCancel(ctx))
	if o.ndjson {
		return p.lines(ctx, env)
	}
	return p.one(ctx, env, event)
}

// event is the one event of the command line, if it is one that can be sent.
func (o *publishOptions) event(ctx context.Context, env *environment, args []string) (events.Event, error) {
	headers, err := parseHeaders(o.headers)
	if err != nil {
		return events.Event{}, err
	}
	payload, err := o.payload(ctx, env, args[1:])
	if err != nil {
		return events.Event{}, err
	}
	event := events.Event{Type: args[0], Payload: payload, Headers: headers}
	if err := events.Check(event, events.MaxPayload(o.maxPayload)); err != nil {
		refused := fault.New(fault.Usage, "%w", err)
		if text, ok := quotesForgotten(payload); ok {
			refused = refused.Hint("a JSON string has quotes of its own: %s", text)
		}
		return events.Event{}, refused
	}
	return event, nil
}

// quotesForgotten gives a payload that was meant as a text, by its looks, as it has to
// be typed.
func quotesForgotten(payload []byte) (string, bool) {
	if len(payload) == 0 || len(payload) > 60 || json.Valid(payload) || bytes.ContainsAny(payload[:1], `{["`) || !utf8.Valid(payload) {
		return "", false
	}
	text, err := json.Marshal(string(payload))
	return shellQuote(string(text)), err == nil
}

// stdinSpace is how much more than the payload stdin may hold: space around it.
const stdinSpace = 4096

// payload is the one event's: from the argument, or from stdin.
func (o *publishOptions) payload(ctx context.Context, env *environment, args []string) ([]byte, error) {
	switch {
	case len(args) == 0:
		return []byte("null"), nil
	case args[0] != "-":
		return []byte(args[0]), nil
	}
	type result struct {
		data []byte
		err  error
	}
	read := make(chan result, 1)
	limit := int64(o.maxPayload) + stdinSpace
	go func() { // a read from a terminal or a pipe cannot be interrupted
		data, err := io.ReadAll(io.LimitReader(env.stdin, limit+1))
		read <- result{data, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-read:
		switch {
		case r.err != nil:
			return nil, fault.New(fault.Usage, "read the payload from stdin: %w", r.err)
		case int64(len(r.data)) > limit:
			return nil, fault.New(fault.Usage, "stdin holds more than %d bytes: --max-payload is %d", limit, o.maxPayload)
		}
		return bytes.TrimSpace(bytes.TrimPrefix(r.data, []byte("\xef\xbb\xbf"))), nil
	}
}

// parseHeaders reads NAME=VALUE. A value may hold anything, commas too.
func parseHeaders(texts []string) (map[string]string, error) {
	headers := make(map[string]string, len(texts))
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fault.New(fault.Usage, "--header %q: it takes NAME=VALUE", text)
		}
		if _, ok := headers[name]; ok {
			return nil, fault.New(fault.Usage, "--header %q: the name is there twice", text)
		}
		headers[name] = value
	}
	return headers, nil
}

// publisher sends events to one queue on one connection.
type publisher struct {
	options   *publishOptions
	conn      *pgx.Conn
	settings  *dbconn.Settings
	queue     string
	committed int  // lines, for --ndjson; blank ones included
	sent      int  // events
	unknown   bool // the answer to the last batch was lost
	fewer     int  // a --batch that would do, when one had too many bytes
	nudger    events.Nudger
}

func (p *publisher) send(ctx context.Context, batch []events.Event) ([]int64, error) {
	ids, err := events.SendBatch(ctx, p.conn, p.queue, batch, events.MaxPayload(p.options.maxPayload))
	if err != nil {
		return nil, p.explain(ctx, err, len(batch))
	}
	p.sent += len(ids)
	_ = p.nudger.Nudge(ctx, p.conn) // the events are in; a nudge only saves time
	return ids, nil
}

// explain classifies a failure to send. When the connection was lost on the way
// the server may have committed all the same.
func (p *publisher) explain(ctx context.Context, err error, n int) error {
	var server *pgconn.PgError
	known := errors.As(err, &server) || pgconn.SafeToRetry(err) // it answered, or was not asked
	p.unknown = p.conn.IsClosed() && !known
	if ctx.Err() != nil || errors.Is(err, events.ErrInvalid) || known {
		if errors.Is(err, events.ErrPermission) {
			return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap --grant-writer %s", shellQuote(p.settings.User()))
		}
		return eventsFault(err, p.settings, p.queue)
	}
	return fault.New(fault.SQL, "the connection was lost, and it is unknown whether %s arrived: %w", count(n, "event"), err)
}

// publishDocument is what "publish --json" writes about one event.
type publishDocument struct {
	Schema int     `json:"schema"`
	Queue  string  `json:"queue"`
	Sent   int     `json:"sent"` // events: 1
	IDs    []int64 `json:"ids"`
}

func (p *publisher) one(ctx context.Context, env *environment, event events.Event) error {
	ids, err := p.send(ctx, []events.Event{event})
	if err != nil {
		return err
	}
	if p.options.json {
		err = writeJSON(env.stdout, publishDocument{1, p.queue, 1, ids})
	} else {
		_, err = fmt.Fprintln(env.stdout, ids[0])
	}
	if err != nil { // who takes it for a failure to send would send it twice
		return fault.New(fault.Usage, "event %d was sent to %q, but that could not be written: %w", ids[0], p.queue, err)
	}
	return nil
}
