package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// dlqMoveOptions are those of "dlq replay" and "dlq purge".
type dlqMoveOptions struct {
	database databaseFlags
	filter   dlqFilter
	name     string // replay or purge
	toAll    bool
	dryRun   bool
	yes      bool
	json     bool
}

func newDLQReplayCommand(env *environment) *cobra.Command {
	o := dlqMoveOptions{name: "replay"}
	cmd := &cobra.Command{
		Use:   "replay [ID …]",
		Short: "Give dead letters back to the consumer that gave up on them",
		Long: `Give dead letters back to the consumer that gave up on them, due now, with their
old number and time and with all attempts before them. Other consumers do not see them
again. With --to-all they are sent again as new events, which every consumer of the
queue gets. Without an ID and without a filter these are all of the database.

What was chosen is shown and confirmed first; where nobody can be asked --yes must be
typed. The login needs pgque_admin.`,
		Example: `  pgque-vendor dlq replay 7 8
  pgque-vendor dlq replay --queue tickets --consumer mailer --newer-than 2h --dry-run`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), env, args) },
	}
	o.register(cmd)
	cmd.Flags().BoolVar(&o.toAll, "to-all", false, "send them again as new events, to every consumer of the queue")
	return cmd
}

func newDLQPurgeCommand(env *environment) *cobra.Command {
	o := dlqMoveOptions{name: "purge"}
	cmd := &cobra.Command{
		Use:   "purge [ID …]",
		Short: "Delete dead letters for good",
		Long: `Delete dead letters for good. It takes at least an ID or --queue.

What was chosen is shown and confirmed first; where nobody can be asked --yes must be
typed. The login needs pgque_admin.`,
		Example: `  pgque-vendor dlq purge 7
  pgque-vendor dlq purge --queue tickets --older-than 30d --yes`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), env, args) },
	}
	o.register(cmd)
	return cmd
}

func (o *dlqMoveOptions) register(cmd *cobra.Command) {
	o.database.register(cmd)
	o.filter.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would be done, and do nothing")
	flags.BoolVar(&o.yes, "yes", false, "do not ask")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
}

// chosenLetters are the dead letters that a filter chose: exactly these are moved,
// not those that came while somebody was thinking.
type chosenLetters struct {
	ids    []int64
	groups []letterGroup
}

// movedDocument is what "dlq replay --json" and "dlq purge --json" write.
type movedDocument struct {
	Schema int           `json:"schema"`
	Action string        `json:"action"`
	Chosen int           `json:"chosen"`
	Done   int           `json:"done"`
	Groups []letterGroup `json:"groups"`
}

type letterGroup struct {
	Queue    string `json:"queue"`
	Consumer string `json:"consumer"`
	Type     string `json:"type"`
	Count    int    `json:"count"`
}

func (o *dlqMoveOptions) run(ctx context.Context, env *environment, args []string) error {
	if err := o.filter.read(env, args); err != nil {
		return err
	}
	if o.name == "purge" && o.filter.queue == "" && len(o.filter.ids) == 0 {
		return fault.New(fault.Usage, "purge names neither an ID nor a queue").Hint("pgque-vendor dlq purge --queue QUEUE%s", o.filter.args())
	}
	conn, settings, err := o.database.connect(ctx, env, "pgque-vendor dlq")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	chosen, err := o.choose(ctx, conn)
	if err != nil {
		return eventsFault(err, settings, o.filter.queue)
	}
	if len(chosen.ids) == 0 {
		if err := o.filter.check(ctx, conn, settings); err != nil {
			return err
		}
	}
	if len(chosen.ids) == 0 || o.dryRun {
		return o.report(env, chosen, 0)
	}
	if err := o.confirm(ctx, env, chosen); err != nil {
		return err
	}
	done, err := o.move(ctx, conn, chosen.ids)
	switch {
	case errors.Is(err, events.ErrNotSubscribed):
		return fault.New(fault.Policy, "the consumer of these dead letters is no longer subscribed: %w", err).
			Hint("pgque-vendor dlq replay%s --to-all", o.filter.args())
	case err != nil:
		if done > 0 {
			_, _, did := o.words(done)
			env.warnf("%s before this failed", did)
		}
		return eventsFault(err, settings, o.filter.queue)
	}
	left := len(chosen.ids) - done
	notDone := fmt.Sprintf("%s could not be: their consumer is no longer subscribed, or somebody else was faster", counted(left))
	if left > 0 && len(o.filter.ids) == 0 {
		env.warnf("%s", notDone)
	}
	if err := o.report(env, chosen, done); err != nil || left == 0 || len(o.filter.ids) == 0 {
		return err
	}
	return fault.New(fault.Policy, "%s", notDone) // of what was named one by one
}

// choose also proves that every ID that was typed is there.
func (o *dlqMoveOptions) choose(ctx context.Context, conn *pgx.Conn) (*chosenLetters, error) {
	chosen := &chosenLetters{}
	counts := map[letterGroup]int{}
	for d, err := range events.DeadLetters(ctx, conn, o.filter.events()) {
		if err != nil {
			return nil, err
		}
		chosen.ids = append(chosen.ids, d.ID)
		counts[letterGroup{Queue: d.Event.Queue, Consumer: d.Event.Consumer, Type: d.Event.Type}]++
	}
	var missing []string
	for _, id := range o.filter.ids {
		if !slices.Contains(chosen.ids, id) {
			missing = append(missing, fmt.Sprint(id))
		}
	}
	if len(missing) > 0 {
		return nil, fault.New(fault.Policy, "no such dead letter, or not one that the filters choose: %s: %w", strings.Join(missing, ", "), events.ErrNotFound)
	}
	for g, n := range counts {
		g.Count = n
		chosen.groups = append(chosen.groups, g)
	}
	slices.SortFunc(chosen.groups, func(a, b letterGroup) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Consumer, b.Consumer), strings.Compare(a.Type, b.Type))
	})
	return chosen, nil
}

// confirm asks on a terminal. Elsewhere --yes must have been typed.
func (o *dlqMoveOptions) confirm(ctx context.Context, env *environment, chosen *chosenLetters) error {
	if o.yes {
		return nil
	}
	if !env.tty(env.stdin) {
		all := ""
		if o.toAll {
			all = " --to-all"
		}
		return fault.New(fault.Policy, "%s of %s was not confirmed: the input is no terminal", o.name, counted(len(chosen.ids))).
			Hint("pgque-vendor dlq %s%s%s --dry-run   # to see them", o.name, o.filter.args(), all).
			Hint("pgque-vendor dlq %s%s%s --yes", o.name, o.filter.args(), all)
	}
	if err := writeGroups(env.stderr, chosen.groups); err != nil {
		return err
	}
	_, question, _ := o.words(len(chosen.ids))
	fmt.Fprintf(env.stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(env.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done(): // a signal must not wait for the answer
		return context.Cause(ctx)
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
		return fault.New(fault.Policy, "not confirmed; nothing was changed")
	}
}

// move goes in steps, so that no list of numbers gets too long for a statement.
// Of a step that another process was faster with, nothing is left to do.
func (o *dlqMoveOptions) move(ctx context.Context, conn *pgx.Conn, ids []int64) (done int, err error) {
	var last error
	for step := range slices.Chunk(ids, 500) {
		var n int
		switch {
		case o.name == "purge":
			n, err = events.Purge(ctx, conn, events.DeadLetterFilter{IDs: step})
		case o.toAll:
			n, err = events.ReplayToAll(ctx, conn, events.DeadLetterFilter{IDs: step})
		default:
			n, err = events.Replay(ctx, conn, events.DeadLetterFilter{IDs: step})
		}
		done += n
		if err != nil && !errors.Is(err, events.ErrNotFound) && !errors.Is(err, events.ErrNotSubscribed) {
			return done, err
		}
		if last == nil {
			last = err
		}
	}
	if done > 0 || !errors.Is(last, events.ErrNotSubscribed) {
		return done, nil
	}
	return 0, last
}

func (o *dlqMoveOptions) report(env *environment, chosen *chosenLetters, done int) error {
	action, _, did := o.words(done)
	if o.dryRun {
		action = "would-be-" + action
	}
	if o.json {
		return writeJSON(env.stdout, movedDocument{1, action, len(chosen.ids), done, append([]letterGroup{}, chosen.groups...)})
	}
	switch {
	case len(chosen.ids) == 0:
		env.sayf("no dead letters to %s", o.name)
		return nil
	case o.dryRun:
		if err := writeGroups(env.stdout, chosen.groups); err != nil {
			return err
		}
		_, err := fmt.Fprintf(env.stdout, "%s chosen, nothing done (--dry-run)\n", counted(len(chosen.ids)))
		return err
	}
	_, err := fmt.Fprintln(env.stdout, did)
	return err
}

// words are what is done to n dead letters: its name in JSON, the question before
// it, and what is said after it.
func (o *dlqMoveOptions) words(n int) (action, question, did string) {
	letters := counted(n)
	switch {
	case o.name == "purge":
		return "purged", "delete " + letters + " for good?", letters + " deleted"
	case o.toAll:
		return "replayed-to-all", "send " + letters + " again to every consumer of the queue?", letters + " sent again to every consumer"
	}
	return "replayed", "give " + letters + " back to the consumer that gave up?", letters + " given back to the consumer that gave up"
}

func counted(n int) string { return count(n, "dead letter") }

func writeGroups(w io.Writer, groups []letterGroup) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "QUEUE\tCONSUMER\tTYPE\tCOUNT")
	for _, g := range groups {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", cell(g.Queue), cell(g.Consumer), cell(g.Type), thousands(int64(g.Count)))
	}
	t.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}
