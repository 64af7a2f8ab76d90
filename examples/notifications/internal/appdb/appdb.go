// Package appdb is the application's own database: its tables, River's, and the
// ledger of effects. The events database holds PgQue and nothing else; it is
// set up by "pgque-vendor bootstrap".
package appdb

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/stega/pgque-vendor/examples/notifications/internal/once"
)

const tables = `
create table if not exists tickets (
	id          bigint generated always as identity primary key,
	subject     text not null,
	email       text not null,
	breached_at timestamptz
);
create table if not exists reports (
	id    bigint generated always as identity primary key,
	week  text not null,
	email text not null,
	body  text not null
);
`

// Migrate brings the database up to date. A real application does this with its
// own migration tool.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, tables+once.DDL); err != nil {
		return err
	}
	river, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = river.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}
