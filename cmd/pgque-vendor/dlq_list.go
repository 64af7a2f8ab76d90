package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

type dlqListOptions struct {
	database databaseFlags
	filter   dlqFilter
	limit    int
	json     bool
}

func newDLQListCommand(env *environment) *cobra.Command {
	var o dlqListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, without their payloads",
		Long: `List dead letters, the lowest number first, each with the reason of its last
failure. Payloads are shown by "dlq show" alone. The login needs pgque_reader.`,
		Example: `  pgque-vendor dlq list
  pgque-vendor dlq list --queue tickets --consumer mailer --newer-than 12h`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	o.database.register(cmd)
	o.filter.register(cmd)
	flags := cmd.Flags()
	flags.IntVarP(&o.limit, "limit", "n", 100, "list at most this many")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

// deadLettersDocument is what "dlq list --json" writes.
type deadLettersDocument struct {
	Schema      int              `json:"schema"`
	DeadLetters []deadLetterLine `json:"dead_letters"`
	More        bool             `json:"more"` // there are more than --limit
}

// deadLetterLine is a dead letter in JSON.
type deadLetterLine struct {
	ID       int64     `json:"id"`
	Queue    string    `json:"queue"`
	Consumer string    `json:"consumer"`
	Died     time.Time `json:"died"`
	Reason   string    `json:"reason"`
	Event    deadEvent `json:"event"`
}

// deadEvent is the event of a dead letter. Payload, headers and text are there
// for "show" alone.
type deadEvent struct {
	ID       int64             `json:"id"`
	Time     time.Time         `json:"time"`
	Type     string            `json:"type"`
	Attempts int               `json:"attempts"`
	Payload  json.RawMessage   `json:"payload,omitempty"`      // left out also when it is no JSON
	Text     *string           `json:"payload_text,omitempty"` // a payload that is no JSON
	Headers  map[string]string `json:"headers,omitempty"`
}

func describeDeadLetter(d *events.DeadLetter) deadLetterLine {
	return deadLetterLine{d.ID, d.Event.Queue, d.Event.Consumer, d.Died.UTC(), d.Reason,
		deadEvent{ID: d.Event.ID, Time: d.Event.Time.UTC(), Type: d.Event.Type, Attempts: d.Event.Attempt}}
}

func (o *dlqListOptions) run(ctx context.Context, env *environment) error {
	if o.limit < 1 || o.limit > 1_000_000 {
		return fault.New(fault.Usage, "--limit is %d: it takes 1 to 1000000", o.limit)
	}
	if err := o.filter.read(env, nil); err != nil {
		return err
	}
	conn, settings, err := o.database.connect(ctx, env, "pgque-vendor dlq")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	document := deadLettersDocument{Schema: 1, DeadLetters: []deadLetterLine{}}
	for d, err := range events.DeadLetters(ctx, conn, o.filter.events()) {
		if err != nil {
			return lookFault(err, settings, o.filter.queue)
		}
		if document.More = len(document.DeadLetters) == o.limit; document.More {
			break
		}
		document.DeadLetters = append(document.DeadLetters, describeDeadLetter(&d))
	}
	if len(document.DeadLetters) == 0 {
		if err := o.filter.check(ctx, conn, settings); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return writeJSON(env.stdout, document)
	case len(document.DeadLetters) == 0:
		env.sayf("no dead letters")
		return nil
	}
	now, err := serverTime(ctx, conn)
	if err != nil {
		return eventsFault(err, settings, o.filter.queue)
	}
	if err := writeDeadLetters(env.stdout, document.DeadLetters, now); err != nil {
		return err
	}
	if document.More {
		env.sayf("there are more: --limit %d", o.limit*10)
	}
	return nil
}

func writeDeadLetters(w io.Writer, list []deadLetterLine, now time.Time) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tDIED\tQUEUE\tCONSUMER\tTYPE\tATTEMPTS\tREASON")
	for _, d := range list {
		reason := []rune(strings.TrimSpace(d.Reason))
		if len(reason) > 100 {
			reason = append(reason[:99], '…')
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%s\n", d.ID, ago(now.Sub(d.Died)), cell(d.Queue), cell(d.Consumer), cell(d.Event.Type), d.Event.Attempts, cell(string(reason)))
	}
	t.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}
