package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

type peekOptions struct {
	database databaseFlags
	queue    string
	limit    int
	full     bool
	json     bool
}

func newPeekCommand(env *environment) *cobra.Command {
	var o peekOptions
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Show a queue's newest events without consuming them",
		Long: `Show the newest committed events of a queue, the newest last. It reads only: no
consumer gets fewer events, and no role is needed. Events stay visible until the
queue's tables rotate, whoever has had them.`,
		Example: `  pgque-vendor peek tickets
  pgque-vendor peek tickets --limit 1 --full`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.queue = args[0]
			return o.run(cmd.Context(), env)
		},
	}
	o.database.register(cmd)
	flags := cmd.Flags()
	flags.IntVarP(&o.limit, "limit", "n", 20, "show at most this many events")
	flags.BoolVar(&o.full, "full", false, "show payloads whole")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *peekOptions) run(ctx context.Context, env *environment) error {
	if o.limit < 1 || o.limit > 100_000 {
		return fault.New(fault.Usage, "--limit is %d: it takes 1 to 100000", o.limit)
	}
	conn, settings, err := o.database.connect(ctx, env, "pgque-vendor peek")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	limited, cancel := context.WithTimeout(ctx, 15*time.Second) // as each call of the library has
	defer cancel()
	if _, err := conn.Exec(limited, "begin read only"); err != nil {
		return eventsFault(err, settings, o.queue)
	}
	found, err := events.Peek(ctx, conn, o.queue, o.limit)
	if err != nil {
		return eventsFault(err, settings, o.queue)
	}
	if o.json {
		return o.writeJSON(env, found)
	}
	if len(found) == 0 {
		env.sayf("queue %q holds no events", o.queue)
	}
	for i := range found {
		if _, err := fmt.Fprintln(env.stdout, o.line(&found[i])); err != nil {
			return err
		}
	}
	return nil
}

// line shows an event in one line, whatever is in it.
func (o *peekOptions) line(e *events.Event) string {
	payload := string(e.Payload)
	if e.Payload == nil {
		payload = "NULL"
	}
	if runes := []rune(payload); !o.full && len(runes) > 120 {
		payload = string(runes[:119]) + "…"
	}
	line := fmt.Sprintf("%d  %s  %s  %s", e.ID, e.Time.UTC().Format(time.RFC3339), e.Type, payload)
	if e.Attempt > 1 {
		line += fmt.Sprintf("  (attempt %d of %s)", e.Attempt, e.Consumer)
	}
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(printable(line))
}

// peekDocument is what "peek --json" writes.
type peekDocument struct {
	Schema int           `json:"schema"`
	Queue  string        `json:"queue"`
	Events []peekedEvent `json:"events"`
}

type peekedEvent struct {
	ID       int64             `json:"id"`
	Time     time.Time         `json:"time"`
	Type     string            `json:"type"`
	Payload  json.RawMessage   `json:"payload"`                // null also when it is no JSON
	Text     string            `json:"payload_text,omitempty"` // a payload that is no JSON
	Headers  map[string]string `json:"headers,omitempty"`
	Attempt  int               `json:"attempt"`
	Consumer string            `json:"consumer,omitempty"` // who gets it, when it is a retry
}

func (o *peekOptions) writeJSON(env *environment, found []events.Event) error {
	document := peekDocument{1, o.queue, []peekedEvent{}}
	for _, e := range found {
		p := peekedEvent{ID: e.ID, Time: e.Time.UTC(), Type: e.Type, Headers: e.Headers, Attempt: e.Attempt, Consumer: e.Consumer}
		if json.Valid(e.Payload) {
			p.Payload = e.Payload
		} else {
			p.Text = string(e.Payload)
		}
		document.Events = append(document.Events, p)
	}
	return writeJSON(env.stdout, document)
}
