// Command migrate brings the application's database up to date.
package main

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/examples/notifications/internal/appdb"
	"github.com/stega/pgque-vendor/examples/notifications/internal/settings"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal("migrate: ", err)
	}
}

func run(ctx context.Context) error {
	env, err := settings.Required("APP_DATABASE_URL")
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, env[0])
	if err != nil {
		return err
	}
	defer pool.Close()
	return appdb.Migrate(ctx, pool)
}
