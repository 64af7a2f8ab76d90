package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

type tickerOptions struct {
	database databaseFlags
	listen   listenFlags
	every    time.Duration
	queues   []string
	maxLag   time.Duration
	nudge    time.Duration
	standBy  bool
}

func newTickerCommand(env *environment) *cobra.Command {
	var o tickerOptions
	cmd := &cobra.Command{
		Use:   "ticker",
		Short: "Tick the queues, move retries and rotate tables until a signal",
		Long: `Cut queues into batches, move due retries back, and rotate tables, until SIGINT
or SIGTERM. Without a ticker nothing is ever delivered.

Run as many as you like: each action is done under a lock of its own
transaction, so there is no leader and no wait when one dies. It works behind
pgbouncer in transaction mode, and goes on through restarts of the server. The
login needs pgque_admin.

An event waits for its queue's ticker_max_lag, then for the ticker's next look.
Queues that "bootstrap --queue" makes have 50 ms; PgQue's own 3 s are named once
at the start. --max-lag sets it on the queues served.`,
		Example: `  pgque-vendor ticker
  pgque-vendor ticker --max-lag 50ms
  pgque-vendor ticker --nudge 10ms --max-lag 5ms
  pgque-vendor ticker --listen :9090`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	o.database.register(cmd)
	o.listen.register(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&o.every, "every", 100*time.Millisecond, "look for queues that need a tick this often")
	flags.StringArrayVar(&o.queues, "queue", nil, "tick only this queue; repeatable (retries and rotation are always for the whole database)")
	flags.DurationVar(&o.maxLag, "max-lag", 0, "set ticker_max_lag on the queues; half of --every is right (default: leave it)")
	flags.DurationVar(&o.nudge, "nudge", 0, "listen for publishers' nudges, and tick at this gap after one; 10ms is good (default: do not listen)")
	flags.BoolVar(&o.standBy, "stand-by", false, "do nothing while pg_cron or pg_timetable is scheduled to tick")
	return cmd
}

func (o *tickerOptions) run(ctx context.Context, env *environment) error {
	if err := o.validate(); err != nil {
		return err
	}
	shown, err := o.listen.start(ctx, env, "ticker")
	if err != nil {
		return err
	}
	defer shown.stop()
	pool, settings, err := o.database.pool(ctx, env, "pgque-vendor ticker")
	if endedBySignal(ctx) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closePool(pool)
	ticker := events.NewTicker(pool, events.TickerConfig{
		Every:    o.every,
		Queues:   o.queues,
		MaxLag:   o.maxLag,
		Nudge:    o.nudge,
		StandBy:  o.standBy,
		Logger:   roleLog(env),
		Observer: shown.observe,
	})
	shown.watch(pool, settings.Database(), events.HealthConfig{TickEvery: o.every}, tickerReady(ticker))
	served := "all queues"
	if len(o.queues) > 0 {
		served = strings.Join(o.queues, ", ")
	}
	env.sayf("ticking %s every %s", served, o.every)
	if err := ticker.Run(ctx); err != nil {
		return eventsFault(err, settings, o.queues...)
	}
	env.sayf("ticker ended")
	return nil
}

func (o *tickerOptions) validate() error {
	switch {
	case o.every < time.Millisecond || o.every > time.Minute:
		return fault.New(fault.Usage, "--every is %s: it takes 1ms to 1m", o.every)
	case o.maxLag < 0:
		return fault.New(fault.Usage, "--max-lag is %s: it takes more than 0", o.maxLag)
	case o.nudge < 0 || o.nudge > 0 && o.nudge < time.Millisecond:
		return fault.New(fault.Usage, "--nudge is %s: it takes 1ms or more", o.nudge)
	case o.nudge > o.every:
		return fault.New(fault.Usage, "--nudge is %s, longer than --every (%s): nudges would come to nothing", o.nudge, o.every)
	}
	return nil
}
