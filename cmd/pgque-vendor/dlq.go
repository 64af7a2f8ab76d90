package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

func newDLQCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, show, replay and purge dead letters",
		Long: `A dead letter is an event that a consumer has given up on: its attempts were spent,
or its handler said that no further one could help. It stays until somebody replays
or purges it; other consumers of the queue are not concerned.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQListCommand(env), newDLQShowCommand(env), newDLQReplayCommand(env), newDLQPurgeCommand(env))
	return cmd
}

// dlqFilter chooses dead letters. What is not given does not matter.
type dlqFilter struct {
	queue     string
	consumer  string
	eventType string
	older     ageFlag
	newer     ageFlag
	ids       []int64
}

func (f *dlqFilter) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.queue, "queue", "", "only of this `QUEUE`")
	flags.StringVar(&f.consumer, "consumer", "", "only those that this `CONSUMER` gave up on")
	flags.StringVar(&f.eventType, "type", "", "only events of this `TYPE`")
	flags.Var(&f.older, "older-than", "only those that died longer ago than this, such as 12h or 30d")
	flags.Var(&f.newer, "newer-than", "only those that died within this time")
}

// read takes the arguments, which are IDs, and refuses what chooses by mistake.
func (f *dlqFilter) read(env *environment, args []string) error {
	if err := env.refuseEmptyVariables("queue", "consumer", "type", "older-than", "newer-than"); err != nil {
		return err
	}
	seen := map[int64]bool{}
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return fault.New(fault.Usage, "%q is no number of a dead letter", arg).Hint("pgque-vendor dlq list")
		}
		if !seen[id] {
			f.ids = append(f.ids, id)
		}
		seen[id] = true
	}
	if f.older > 0 && f.newer > 0 && f.older >= f.newer {
		return fault.New(fault.Usage, "nothing is both older than %s and newer than %s", f.older.String(), f.newer.String())
	}
	return nil
}

// events is the filter as the library takes it, for dead letters without payloads.
func (f *dlqFilter) events() events.DeadLetterFilter {
	return events.DeadLetterFilter{IDs: f.ids, Queue: f.queue, Consumer: f.consumer, Type: f.eventType,
		Older: time.Duration(f.older), Newer: time.Duration(f.newer), NoPayload: true}
}

// check is for a filter that chose nothing: a queue or a consumer that is not there
// is a slip of the pen, not the good news that there are no dead letters.
func (f *dlqFilter) check(ctx context.Context, conn *pgx.Conn, settings *dbconn.Settings) error {
	if f.queue != "" {
		queues, err := events.Queues(ctx, conn)
		if err != nil {
			return eventsFault(err, settings, f.queue)
		}
		if !slices.ContainsFunc(queues, func(q events.QueueInfo) bool { return q.Name == f.queue }) {
			return fault.New(fault.Policy, "there is no queue %q", f.queue).Hint("pgque-vendor queues")
		}
	}
	if f.consumer == "" {
		return nil
	}
	consumers, err := events.Consumers(ctx, conn, f.queue)
	if err != nil {
		return eventsFault(err, settings, f.queue)
	}
	switch {
	case slices.ContainsFunc(consumers, func(c events.ConsumerInfo) bool { return c.Name == f.consumer }):
		return nil
	case f.queue == "":
		return fault.New(fault.Policy, "there is no consumer %q", f.consumer).Hint("pgque-vendor queues")
	}
	return fault.New(fault.Policy, "there is no consumer %q on queue %q", f.consumer, f.queue).Hint("pgque-vendor queues %s", shellQuote(f.queue))
}

// lookFault is eventsFault for those that only look, for which pgque_reader is enough.
func lookFault(err error, settings *dbconn.Settings, queue string) error {
	if errors.Is(err, events.ErrPermission) {
		return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap --grant-reader %s", shellQuote(settings.User()))
	}
	return eventsFault(err, settings, queue)
}

// args are the filter as it was typed, for a hint.
func (f *dlqFilter) args() string {
	var b strings.Builder
	for _, id := range f.ids {
		fmt.Fprintf(&b, " %d", id)
	}
	for _, flag := range []struct{ name, value string }{
		{"queue", f.queue}, {"consumer", f.consumer}, {"type", f.eventType}, {"older-than", f.older.String()}, {"newer-than", f.newer.String()},
	} {
		if flag.value != "" {
			fmt.Fprintf(&b, " --%s %s", flag.name, shellQuote(flag.value))
		}
	}
	return b.String()
}

// serverTime is the clock that ages are told by.
func serverTime(ctx context.Context, conn *pgx.Conn) (now time.Time, err error) {
	err = conn.QueryRow(ctx, "select now()", pgx.QueryExecModeSimpleProtocol).Scan(&now)
	return now, err
}

// ageFlag is a duration that also knows days.
type ageFlag time.Duration

func (a *ageFlag) String() string {
	d := time.Duration(*a)
	switch day := 24 * time.Hour; {
	case d == 0:
		return ""
	case d%day == 0:
		return fmt.Sprintf("%dd", d/day)
	}
	return d.String()
}

func (a *ageFlag) Type() string { return "AGE" }

func (a *ageFlag) Set(s string) error {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int64
		if n, err = strconv.ParseInt(days, 10, 32); err == nil && n < 100_000 {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil || d <= 0 {
		return fmt.Errorf("%q is no age: it takes 90s, 45m, 12h or 30d", s)
	}
	*a = ageFlag(d)
	return nil
}
