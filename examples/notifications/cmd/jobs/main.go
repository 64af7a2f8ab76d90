// Command jobs works the application's background jobs. One of them publishes
// events, so this is the only process that needs both databases.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/stega/pgque-vendor/examples/notifications/internal/publish"
	"github.com/stega/pgque-vendor/examples/notifications/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("jobs", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	env, err := settings.Required("APP_DATABASE_URL", "EVENTS_DATABASE_URL")
	if err != nil {
		return err
	}
	app, err := pgxpool.New(ctx, env[0])
	if err != nil {
		return err
	}
	defer app.Close()
	eventsDB, err := pgxpool.New(ctx, env[1])
	if err != nil {
		return err
	}
	defer eventsDB.Close()

	workers := river.NewWorkers()
	river.AddWorker(workers, &publish.Worker{Events: eventsDB})
	client, err := river.NewClient(riverpgxv5.New(app), &river.Config{
		Queues:     map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}},
		Workers:    workers,
		JobTimeout: 20 * time.Second, // above what events.Send takes at most
		// River's default of an hour is long for a notification whose process was
		// killed. A job that runs twice is harmless here.
		RescueStuckJobsAfter: 30 * time.Second,
		SoftStopTimeout:      15 * time.Second,
		Logger:               slog.Default(),
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	<-client.Stopped()
	return nil
}
