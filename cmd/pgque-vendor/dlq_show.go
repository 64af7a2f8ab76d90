package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

type dlqShowOptions struct {
	database databaseFlags
	filter   dlqFilter
	json     bool
}

func newDLQShowCommand(env *environment) *cobra.Command {
	var o dlqShowOptions
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one dead letter whole, with its payload",
		Long: `Show one dead letter whole: reason, headers, and the payload in the last line. The
login needs pgque_reader.`,
		Example: `  pgque-vendor dlq show 7
  pgque-vendor dlq show 7 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.filter.read(env, args); err != nil {
				return err
			}
			return o.run(cmd.Context(), env)
		},
	}
	o.database.register(cmd)
	cmd.Flags().BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *dlqShowOptions) run(ctx context.Context, env *environment) error {
	conn, settings, err := o.database.connect(ctx, env, "pgque-vendor dlq")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	now, err := serverTime(ctx, conn)
	if err != nil {
		return eventsFault(err, settings, "")
	}
	for d, err := range events.DeadLetters(ctx, conn, events.DeadLetterFilter{IDs: o.filter.ids}) {
		switch {
		case err != nil:
			return lookFault(err, settings, "")
		case o.json:
			return writeDeadLetterJSON(env.stdout, &d)
		}
		return writeDeadLetter(env.stdout, &d, now)
	}
	return fault.New(fault.Policy, "there is no dead letter %d", o.filter.ids[0]).Hint("pgque-vendor dlq list")
}

// deadLetterDocument is what "dlq show --json" writes.
type deadLetterDocument struct {
	Schema int `json:"schema"`
	deadLetterLine
}

func writeDeadLetterJSON(w io.Writer, d *events.DeadLetter) error {
	document := deadLetterDocument{1, describeDeadLetter(d)}
	e := &document.Event
	e.Headers = d.Event.Headers
	switch {
	case d.Event.Payload == nil:
		e.Payload = json.RawMessage("null")
	case json.Valid(d.Event.Payload):
		e.Payload = d.Event.Payload
	default:
		text := string(d.Event.Payload)
		e.Text = &text
	}
	return writeJSON(w, document)
}

func writeDeadLetter(w io.Writer, d *events.DeadLetter, now time.Time) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		value := strings.ReplaceAll(printable(fmt.Sprintf(format, args...)), "\n", "\n           ")
		fmt.Fprintf(&b, "%-10s %s\n", name, value)
	}
	line("id", "%d", d.ID)
	line("queue", "%s", d.Event.Queue)
	line("consumer", "%s", d.Event.Consumer)
	line("died", "%s (%s)", d.Died.UTC().Format(time.RFC3339), ago(now.Sub(d.Died)))
	line("attempts", "%d", d.Event.Attempt)
	line("reason", "%s", d.Reason)
	line("event", "%d", d.Event.ID)
	line("sent", "%s", d.Event.Time.UTC().Format(time.RFC3339))
	line("type", "%s", d.Event.Type)
	var names []string
	for name := range d.Event.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line("header", "%s: %s", name, d.Event.Headers[name])
	}
	if d.Event.Payload == nil {
		line("payload", "NULL")
	} else {
		line("payload", "%s", d.Event.Payload)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
