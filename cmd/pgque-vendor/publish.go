package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

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
is null. The event's id is printed.

With --ndjson each line of stdin is an event, {"type": …, "payload": …}, and may
have "headers", an object of strings. Every --batch lines are one transaction,
sent or not sent as a whole. A bad line ends the run and is named by its number,
with what was committed before it. Other keys that "consume --print" writes are
ignored.

The login needs pgque_writer. A ticker with --nudge is told, and ticks at once.`,
		Example: `  pgque-vendor publish tickets ticket.welcome '{"email": "a@example.org"}'
  pgque-vendor publish tickets --ndjson < events.ndjson`,
		Args: o.args,
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

// args checks the number of arguments, which depends on --ndjson.
func (o *publishOptions) args(cmd *cobra.Command, args []string) error {
	switch {
	case o.ndjson && len(args) != 1:
		return fault.New(fault.Usage, "publish --ndjson takes a QUEUE and no more, got %d arguments", len(args)).Hint("pgque-vendor publish --help")
	case !o.ndjson && (len(args) < 2 || len(args) > 3):
		return fault.New(fault.Usage, "publish takes QUEUE TYPE [PAYLOAD | -], got %d arguments", len(args)).Hint("pgque-vendor publish --help")
	}
	return nil
}

func (o *publishOptions) run(ctx context.Context, env *environment, args []string) error {
	switch {
	case o.batch < 1:
		return fault.New(fault.Usage, "--batch is %d: it takes 1 or more", o.batch)
	case o.maxPayload < 1:
		return fault.New(fault.Usage, "--max-payload is %d: it takes 1 or more", o.maxPayload)
	case o.ndjson && len(o.headers) > 0:
		return fault.New(fault.Usage, "--header and --ndjson exclude each other: a line has its own \"headers\"")
	}
	p := publisher{options: o, queue: args[0]}
	var event events.Event
	if !o.ndjson {
		payload, err := o.payload(env, args[2:])
		if err != nil {
			return err
		}
		headers, err := parseHeaders(o.headers)
		if err != nil {
			return err
		}
		event = events.Event{Type: args[1], Payload: payload, Headers: headers}
	}
	var err error
	if p.conn, p.settings, err = o.database.connect(ctx, env, "pgque-vendor publish"); err != nil {
		return err
	}
	defer p.conn.Close(context.WithoutCancel(ctx))
	if o.ndjson {
		return p.lines(ctx, env)
	}
	return p.one(ctx, env, event)
}

// payload is the one event's: from the argument, or from stdin.
func (o *publishOptions) payload(env *environment, args []string) ([]byte, error) {
	switch {
	case len(args) == 0:
		return []byte("null"), nil
	case args[0] != "-":
		return []byte(args[0]), nil
	}
	data, err := io.ReadAll(io.LimitReader(env.stdin, int64(o.maxPayload)+4096))
	if err != nil {
		return nil, fault.New(fault.Usage, "read the payload from stdin: %w", err)
	}
	return bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))), nil
}

// parseHeaders reads NAME=VALUE. A value may hold anything, commas too.
func parseHeaders(texts []string) (map[string]string, error) {
	headers := make(map[string]string, len(texts))
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fault.New(fault.Usage, "--header %q: it takes NAME=VALUE", text)
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
	p.unknown = p.conn.IsClosed() && !errors.As(err, &server)
	if ctx.Err() != nil || errors.Is(err, events.ErrInvalid) || errors.As(err, &server) {
		if errors.Is(err, events.ErrPermission) {
			return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap --grant-writer %s", shellQuote(p.settings.User()))
		}
		return eventsFault(err, p.settings, p.queue)
	}
	return fault.New(fault.SQL, "the connection was lost, and it is unknown whether %s arrived: %w", count(n, "event"), err)
}

// publishDocument is what "publish --json" writes.
type publishDocument struct {
	Schema int     `json:"schema"`
	Queue  string  `json:"queue"`
	Sent   int     `json:"sent"`          // events
	IDs    []int64 `json:"ids,omitempty"` // of the one event; not with --ndjson
}

func (p *publisher) one(ctx context.Context, env *environment, event events.Event) error {
	ids, err := p.send(ctx, []events.Event{event})
	if err != nil {
		return err
	}
	if p.options.json {
		return writeJSON(env.stdout, publishDocument{1, p.queue, 1, ids})
	}
	_, err = fmt.Fprintln(env.stdout, ids[0])
	return err
}
