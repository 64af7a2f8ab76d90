package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/serve"
	"github.com/stega/pgque-vendor/internal/statuspage"
)

// listenFlags are --listen of ticker and consume, and what goes with it.
type listenFlags struct {
	address string
	dir     string
}

func (f *listenFlags) register(cmd *cobra.Command) {
	registerDir(cmd, &f.dir)
	cmd.Flags().Lookup("dir").Usage = "for --listen: say on the page whether the database has the functions of this vendored `FOLDER`, where it is"
	cmd.Flags().StringVar(&f.address, "listen", "", "show a status page, /metrics, /healthz and /readyz on `ADDR`, HOST:PORT or :PORT; without HOST on this machine only (default: do not)")
}

// listening is what a long-running command shows of itself. A nil one, of a command
// that was not told to listen, does nothing.
type listening struct {
	page      *statuspage.Page
	metrics   *serve.Metrics
	functions *functionsLook
	log       *slog.Logger
	ctx       context.Context // until stop
	end       context.CancelFunc
	running   sync.WaitGroup

	pool  atomic.Pointer[pgxpool.Pool]
	ready atomic.Pointer[func() (string, error)]
	look  atomic.Pointer[serve.Look]
	state atomic.Int32 // of a consumer
}

// start listens, when asked to, from the very start: a process that waits for its
// database is alive. It answers until stop, also while the process ends.
func (f *listenFlags) start(ctx context.Context, env *environment, process string) (*listening, error) {
	if f.address == "" {
		return nil, nil
	}
	socket, err := serve.Listen(ctx, f.address)
	if err != nil {
		return nil, err
	}
	l := &listening{log: roleLog(env), functions: &functionsLook{env: env, dir: f.dir}}
	if l.page, err = statuspage.New(statuspage.Config{Process: process, Version: version()}); err != nil {
		_ = socket.Close()
		return nil, err
	}
	readiness := func() (string, error) {
		ready := l.ready.Load()
		switch {
		case ctx.Err() != nil:
			return "", errors.New("ending")
		case ready == nil:
			return "", errors.New("waiting for the database")
		}
		return (*ready)()
	}
	l.metrics = serve.NewMetrics(version(), readiness, l.connections)
	l.ctx, l.end = context.WithCancel(context.WithoutCancel(ctx))
	config := serve.Config{Ready: readiness, Metrics: l.metrics, Page: l.page, Log: l.log}
	l.running.Go(func() { serve.Serve(l.ctx, socket, config) })
	switch host := strings.HasPrefix(f.address, ":"); {
	case host:
		env.sayf("status page at %s, for this machine only: name a host, as in 0.0.0.0%s, for others", socket.URL(), f.address)
	case socket.Loopback:
		env.sayf("status page at %s", socket.URL())
	default:
		env.sayf("status page at %s; whoever reaches %s sees the names and numbers of queues", socket.URL(), f.address)
	}
	return l, nil
}

// watch shows the database from now on, and has /readyz say what ready says. It
// looks over a connection of its own, so that it never waits for the work or the
// work for it.
func (l *listening) watch(pool *pgxpool.Pool, database string, config events.HealthConfig, ready func() (string, error)) {
	if l == nil {
		return
	}
	l.page.Of(database)
	l.pool.Store(pool)
	l.ready.Store(&ready)
	one := pool.Config()
	one.MaxConns, one.MinConns, one.MinIdleConns = 1, 0, 0
	l.running.Go(func() {
		pool, err := pgxpool.NewWithConfig(l.ctx, one)
		if err != nil {
			l.log.Error("the status page has no connection", "err", err)
			return
		}
		defer closePool(pool)
		serve.Watch(l.ctx, pool, config, l.log, func(look serve.Look) {
			look.Findings = l.functions.with(l.functions.withOurFixes(look.Findings))
			l.look.Store(&look)
			l.metrics.Show(look)
			l.page.Show(statuspage.Look(look))
			if look.Trouble == "" {
				l.functions.take(l.ctx, pool, l.log)
			}
		})
	})
}

// withOurFixes has dead letters looked at with our command, of which the event
// library does not know.
func (f *functionsLook) withOurFixes(findings []events.Finding) []events.Finding {
	ours := slices.Clone(findings)
	for i, found := range ours {
		if found.Code == events.CodeDeadLetters {
			ours[i].Fix = f.env.again("pgque-vendor dlq list --queue " + shellQuote(found.Queue) + " --consumer " + shellQuote(found.Consumer))
		}
	}
	return ours
}

// observe counts what the process does; it is an [events.Observer].
func (l *listening) observe(o events.Observation) {
	if l == nil {
		return
	}
	l.sawConsumer(o)
	l.metrics.Observe(o)
	l.page.Observe(o)
}

// stop ends the answering and the looking.
func (l *listening) stop() {
	if l == nil {
		return
	}
	l.end()
	l.running.Wait()
}

// connections says how many the work's pool has open, and has opened ever.
func (l *listening) connections() (open, opened float64) {
	pool := l.pool.Load()
	if pool == nil {
		return 0, 0
	}
	s := pool.Stat()
	return float64(s.TotalConns()), float64(s.NewConnsCount())
}

// tickerReady is the readiness of a ticker. What the server said may name who and
// where it is, so only its kind is told.
func tickerReady(ticker *events.Ticker) func() (string, error) {
	return func() (string, error) {
		err := ticker.Health()
		if cause := errors.Unwrap(err); cause != nil {
			return "", errors.New("the ticker fails: " + serve.Reason(cause))
		}
		return "ticking", err
	}
}
