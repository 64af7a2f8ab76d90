package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

// pool waits for the database and opens a pool on it, for the commands that are
// built on the event library.
func (f *databaseFlags) pool(ctx context.Context, env *environment, applicationName string) (*pgxpool.Pool, *dbconn.Settings, error) {
	conn, settings, err := f.connect(ctx, env, applicationName)
	if err != nil {
		return nil, nil, err
	}
	_ = conn.Close(ctx)
	config, err := settings.PoolConfig()
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, settings.Explain(err)
	}
	return pool, settings, nil
}

// closing is what a pool gets to end its connections well. The process ends anyway,
// and the server ends those of a process that is gone.
const closing = 2 * time.Second

// closePool does not wait for a server that says nothing: the pool would, 15 s for
// each connection with a call that was given up.
func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() { pool.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(closing):
	}
}

// eventsFault gives an error of the event library its class, and the hint that
// its kind asks for.
func eventsFault(err error, settings *dbconn.Settings, queues ...string) error {
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, events.ErrInvalid):
		return fault.New(fault.Usage, "%w", err)
	case errors.Is(err, events.ErrQueueNotFound):
		flags := ""
		for _, queue := range queues {
			flags += " --queue " + shellQuote(queue)
		}
		return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap%s", flags)
	case errors.Is(err, events.ErrNotInstalled):
		return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap")
	case errors.Is(err, events.ErrPermission):
		return fault.New(fault.Policy, "%w", err).Hint("pgque-vendor bootstrap --grant-admin %s", shellQuote(settings.User()))
	case errors.Is(err, events.ErrNotSubscribed), errors.Is(err, events.ErrNotFound):
		return fault.New(fault.Policy, "%w", err)
	case errors.Is(err, events.ErrReadOnly):
		return fault.New(fault.Database, "%w", err)
	case errors.As(err, &connect):
		return settings.Explain(err)
	case errors.As(err, &server):
		return fault.New(fault.SQL, "%w", err)
	}
	return fault.New(fault.Database, "%w", err)
}

// roleLog is the log of a long-running command: warnings and errors always, what
// it does unless --quiet, all with --verbose.
func roleLog(env *environment) *slog.Logger {
	level := slog.LevelInfo
	switch {
	case env.log.Enabled(context.Background(), slog.LevelDebug):
		level = slog.LevelDebug
	case env.quiet:
		level = slog.LevelWarn
	}
	return slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: level}))
}

// endedBySignal says that a long-running command was told to end, which is how it
// ends well.
func endedBySignal(ctx context.Context) bool {
	var interrupted errInterrupted
	return errors.As(context.Cause(ctx), &interrupted)
}

// shellQuote writes a word as a POSIX shell needs it.
func shellQuote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r))
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
