package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

type doctorOptions struct {
	dir         string
	database    databaseFlags
	role        string
	tickEvery   time.Duration
	maxLatency  time.Duration
	stalled     time.Duration
	deadLetters time.Duration
	timeout     time.Duration
	json        bool
}

func newDoctorCommand(env *environment) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong with a running system, and how to mend it",
		Long: `Look for what keeps events from being delivered, or will: the worst first, each with
the exact command or SQL that mends it. Exit 1 when there is a finding; a note is
none. docs/operations.md explains each by its code.

It reads only, works with the least privilege and on a standby, and says what it
could not see; with pgque_reader it sees all. Where --dir is there, the functions in
the database are compared with the vendored SQL. It tries the database once and ends
within --timeout, so it can be a health check. Usually it takes 0.1 s; when
events wait for a tick, up to 2 s more, to see whether one comes.`,
		Example: `  pgque-vendor doctor
  pgque-vendor doctor --role app --max-latency 500ms
  pgque-vendor doctor --quiet --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	registerDir(cmd, &o.dir)
	o.database.register(cmd)
	wait := cmd.Flags().Lookup("wait") // a health check does not wait for what it is to check
	wait.DefValue, o.database.wait = "0s", 0
	flags := cmd.Flags()
	flags.StringVar(&o.role, "role", "", "look at the rights of this `ROLE`, such as the application's (default: the login)")
	flags.DurationVar(&o.tickEvery, "tick-every", 100*time.Millisecond, "the --every of the ticker, which ticker_max_lag is compared with")
	flags.DurationVar(&o.maxLatency, "max-latency", 0, "make it a finding when events may wait longer than this for their tick (default: a note)")
	flags.DurationVar(&o.stalled, "stalled", 15*time.Minute, "how long a batch may be open, and events may wait for their consumer")
	flags.DurationVar(&o.deadLetters, "dead-letters", time.Hour, "how far back a new dead letter is a finding")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "limit of the whole run")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *doctorOptions) run(ctx context.Context, env *environment) error {
	start := env.now()
	if err := o.validate(); err != nil {
		return err
	}
	settings, err := o.database.resolve(env, "pgque-vendor doctor")
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	report, err := o.examine(limited, env, settings)
	switch {
	case err != nil && ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded):
		return fault.New(fault.Database, "the time limit (--timeout %s) was over before the database at %s had answered", o.timeout, settings.Address())
	case err != nil:
		return err
	}
	report.DurationMS = env.now().Sub(start).Milliseconds()
	if o.json {
		err = writeJSON(env.stdout, report)
	} else {
		err = report.print(env)
	}
	if err == nil && !report.Healthy {
		err = errFinding
	}
	return err
}

func (o *doctorOptions) validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"tick-every", o.tickEvery}, {"stalled", o.stalled}, {"dead-letters", o.deadLetters}, {"timeout", o.timeout}} {
		if d.value < time.Millisecond {
			return fault.New(fault.Usage, "--%s is %s: it takes 1ms or more", d.name, d.value)
		}
	}
	if o.maxLatency < 0 {
		return fault.New(fault.Usage, "--max-latency is %s: it takes more than 0", o.maxLatency)
	}
	return nil
}

// examine looks, once, and finds the remedies.
func (o *doctorOptions) examine(ctx context.Context, env *environment, settings *dbconn.Settings) (*doctorReport, error) {
	conn, err := settings.Wait(ctx, dbconn.WaitOptions{Limit: o.database.wait, Say: env.sayf})
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	x := &examination{conn: conn, again: env.again}
	for _, look := range []func(context.Context) error{
		func(ctx context.Context) error { return x.health(ctx, o.healthConfig()) },
		func(ctx context.Context) error { return x.unticked(ctx, o.tickEvery) },
		x.cronJobs,
		func(ctx context.Context) error { return x.functions(ctx, env, o.dir) },
	} {
		if err := look(ctx); err != nil {
			return nil, o.explain(err, settings)
		}
	}
	return x.report(ctx)
}

func (o *doctorOptions) explain(err error, settings *dbconn.Settings) error {
	err = eventsFault(err, settings, "")
	var f *fault.Error
	if o.role != "" && errors.Is(err, events.ErrInvalid) && errors.As(err, &f) {
		f.Hint("pgque-vendor doctor   # looks at the rights of the login, %q", settings.User())
	}
	return err
}

func (o *doctorOptions) healthConfig() events.HealthConfig {
	return events.HealthConfig{Role: o.role, TickEvery: o.tickEvery, MaxLatency: o.maxLatency, Stalled: o.stalled, DeadLetters: o.deadLetters}
}
