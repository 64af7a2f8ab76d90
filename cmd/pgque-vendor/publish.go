package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

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
	headers    map[string]string
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
	flags.StringToStringVar(&o.headers, "header", nil, "a header `NAME=VALUE` of the event; repeatable")
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
		event = events.Event{Type: args[1], Payload: payload, Headers: o.headers}
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

// publisher sends events to one queue on one connection.
type publisher struct {
	options   *publishOptions
	conn      *pgx.Conn
	settings  *dbconn.Settings
	queue     string
	committed int // lines, for --ndjson; blank ones included
	sent      int // events
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
	if ctx.Err() != nil || errors.Is(err, events.ErrInvalid) || errors.As(err, &server) {
		if errors.Is(err, events.ErrPermission) {
			return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap --grant-writer %s", shellQuote(p.settings.User()))
		}
		return eventsFault(err, p.settings, p.queue)
	}
	return fault.New(fault.SQL, "the connection was lost, and it is unknown whether %s arrived: %w", count(n, "event"), err)
}

func (p *publisher) one(ctx context.Context, env *environment, event events.Event) error {
	ids, err := p.send(ctx, []events.Event{event})
	if err != nil {
		return err
	}
	if p.options.json {
		return writeJSON(env.stdout, struct {
			Schema int     `json:"schema"`
			Queue  string  `json:"queue"`
			Sent   int     `json:"sent"`
			IDs    []int64 `json:"ids"`
		}{1, p.queue, 1, ids})
	}
	_, err = fmt.Fprintln(env.stdout, ids[0])
	return err
}

// lines sends the events of stdin, a transaction for each batch.
func (p *publisher) lines(ctx context.Context, env *environment) error {
	in := readLines(ctx, env.stdin, 4*p.options.maxPayload+64<<10)
	var batch []events.Event
	number := 0
	for {
		line, err := in.next(ctx)
		if err == nil {
			number++
			err = p.parse(line, number, &batch)
		}
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return p.stopped(ctx, err, number)
		}
		if len(batch) > 0 && (last || len(batch) == p.options.batch) {
			if _, err := p.send(ctx, batch); err != nil {
				return p.stopped(ctx, err, number)
			}
			p.committed, batch = number, batch[:0]
		}
		if last {
			return p.report(env)
		}
	}
}

// parse adds the event of a line to the batch; a blank line has none. The event
// is checked here, so that an error names the line.
func (p *publisher) parse(line []byte, number int, batch *[]events.Event) error {
	if number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	event, err := parseEvent(line)
	if err == nil {
		err = events.Check(event, events.MaxPayload(p.options.maxPayload))
	}
	if err != nil {
		return fault.New(fault.Usage, "line %d: %w", number, err)
	}
	*batch = append(*batch, event)
	return nil
}

func parseEvent(line []byte) (events.Event, error) {
	var in struct {
		Type    *string           `json:"type"`
		Payload json.RawMessage   `json:"payload"`
		Headers map[string]string `json:"headers"`

		// What "consume --print" writes as well.
		ID       json.RawMessage `json:"id"`
		Time     json.RawMessage `json:"time"`
		Attempt  json.RawMessage `json:"attempt"`
		Queue    json.RawMessage `json:"queue"`
		Consumer json.RawMessage `json:"consumer"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return events.Event{}, fmt.Errorf("no JSON object with \"type\" and \"payload\": %w", err)
	}
	_, more := d.Token()
	switch {
	case more != io.EOF:
		return events.Event{}, errors.New("something follows the JSON object")
	case in.Type == nil:
		return events.Event{}, errors.New(`it has no "type"`)
	case in.Payload == nil:
		return events.Event{}, errors.New(`it has no "payload" (null is the JSON for nothing)`)
	}
	return events.Event{Type: *in.Type, Payload: in.Payload, Headers: in.Headers}, nil
}

// stopped says with a failure what is committed and what is not.
func (p *publisher) stopped(ctx context.Context, err error, number int) error {
	done := "nothing was committed"
	if p.committed > 0 {
		done = fmt.Sprintf("lines 1 to %d were committed (%s), later ones were not", p.committed, count(p.sent, "event"))
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; %s: %w", done, context.Canceled)
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Usage, "read line %d from stdin: %w", number+1, err)
	}
	f.Text += "; " + done
	if p.committed > 0 {
		f.Hints = append(f.Hints, fmt.Sprintf("once it is mended, send the rest: tail -n +%d FILE | pgque-vendor publish %s --ndjson", p.committed+1, shellQuote(p.queue)))
	}
	return f
}

func (p *publisher) report(env *environment) error {
	if p.options.json {
		return writeJSON(env.stdout, struct {
			Schema int    `json:"schema"`
			Queue  string `json:"queue"`
			Sent   int    `json:"sent"`
		}{1, p.queue, p.sent})
	}
	env.sayf("sent %s to %q", count(p.sent, "event"), p.queue)
	return nil
}

// lineReader hands over lines, and stops waiting when a context ends: a read from
// a terminal or a pipe cannot be interrupted.
type lineReader struct{ lines chan lineOrError }

type lineOrError struct {
	line []byte
	err  error
}

func readLines(ctx context.Context, r io.Reader, limit int) lineReader {
	lines := make(chan lineOrError)
	go func() {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, 64<<10), limit)
		for scanner.Scan() {
			select {
			case lines <- lineOrError{line: bytes.Clone(scanner.Bytes())}:
			case <-ctx.Done():
				return
			}
		}
		err := scanner.Err()
		switch {
		case err == nil:
			err = io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			err = fmt.Errorf("the line has more than %d bytes", limit)
		}
		select {
		case lines <- lineOrError{err: err}:
		case <-ctx.Done():
		}
	}()
	return lineReader{lines}
}

func (r lineReader) next(ctx context.Context) ([]byte, error) {
	select {
	case l := <-r.lines:
		return l.line, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
