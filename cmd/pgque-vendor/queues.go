package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

type queuesOptions struct {
	database databaseFlags
	queue    string // "" is all
	watch    bool
	every    time.Duration
	json     bool
}

func newQueuesCommand(env *environment) *cobra.Command {
	var o queuesOptions
	cmd := &cobra.Command{
		Use:   "queues [QUEUE]",
		Short: "Show queues and consumers: lag, retries, dead letters, rotation",
		Long: `Show the state of all queues, or of one, and of their consumers. It reads only and
needs no role; the numbers of dead letters need pgque_reader.

NEW are events that no tick has covered yet, PENDING those up to the last tick that
the consumer has not finished. Both count event numbers, so they can be too high:
a transaction that was rolled back has used numbers too. LAG is the age of the last
tick that the consumer has finished, while something is pending.

--watch shows it again every --every until SIGINT or SIGTERM: on a terminal in place,
otherwise a line for each queue and consumer. With --json every look is a document.`,
		Example: `  pgque-vendor queues
  pgque-vendor queues tickets --watch`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.queue = args[0]
				if err := refuseEmptyArgument("QUEUE", args[0]); err != nil {
					return err
				}
			}
			return o.run(cmd.Context(), env)
		},
	}
	o.database.register(cmd)
	flags := cmd.Flags()
	flags.BoolVarP(&o.watch, "watch", "w", false, "go on until a signal")
	flags.DurationVar(&o.every, "every", 2*time.Second, "with --watch: look this often")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *queuesOptions) run(ctx context.Context, env *environment) error {
	if o.every < 100*time.Millisecond || o.every > time.Hour {
		return fault.New(fault.Usage, "--every is %s: it takes 100ms to 1h", o.every)
	}
	pool, settings, err := o.database.pool(ctx, env, "pgque-vendor queues")
	if o.watch && endedBySignal(ctx) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closePool(pool)
	state, err := o.look(ctx, env, pool, settings)
	if err != nil {
		return eventsFault(err, settings, o.queue)
	}
	switch {
	case o.watch:
		return o.watchQueues(ctx, env, pool, settings, state)
	case o.json:
		return writeJSON(env.stdout, state.document())
	case len(state.queues) == 0:
		env.sayf("database %q has no queue", settings.Database())
		env.hintf("pgque-vendor bootstrap --queue NAME")
		return nil
	}
	return state.writeTables(env.stdout)
}

// queuesState is one look at the queues.
type queuesState struct {
	database  string
	time      time.Time
	queues    []events.QueueInfo
	consumers []events.ConsumerInfo
}

func (o *queuesOptions) look(ctx context.Context, env *environment, pool *pgxpool.Pool, settings *dbconn.Settings) (*queuesState, error) {
	queues, err := events.Queues(ctx, pool)
	if err != nil {
		return nil, err
	}
	if o.queue != "" {
		one := queues[:0]
		for _, q := range queues {
			if q.Name == o.queue {
				one = append(one, q)
			}
		}
		if queues = one; len(queues) == 0 {
			return nil, fault.New(fault.Policy, "queue %q: %w", o.queue, events.ErrQueueNotFound)
		}
	}
	consumers, err := events.Consumers(ctx, pool, o.queue)
	if err != nil {
		return nil, err
	}
	return &queuesState{settings.Database(), env.now(), queues, consumers}, nil
}
