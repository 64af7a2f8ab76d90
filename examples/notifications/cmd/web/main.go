// Command web answers requests. It knows the application's database only: no
// answer waits for the events database, the mail server or Slack.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/stega/pgque-vendor/examples/notifications/internal/settings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("web", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	env, err := settings.Required("APP_DATABASE_URL", "HTTP_ADDR")
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, env[0])
	if err != nil {
		return err
	}
	defer pool.Close()
	jobs, err := river.NewClient(riverpgxv5.New(pool), &river.Config{}) // inserts only
	if err != nil {
		return err
	}
	srv := &http.Server{Addr: env[1], Handler: (&server{pool, jobs}).routes(), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = srv.Shutdown(grace)
	})
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
