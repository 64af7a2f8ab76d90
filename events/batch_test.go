package events_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// However a batch is read, each of its events comes once, by rising id, and no
// other: the ack would lose what the reading left out.
func TestReadOfABatch(t *testing.T) {
	t.Parallel()
	const descending = `alter function pgque.batch_event_sql(bigint) rename to sorted_event_sql;
		create function pgque.batch_event_sql(batch bigint) returns text language sql as
			$$ select 'select * from (' || pgque.sorted_event_sql(batch) || ') e order by ev_id desc' $$;`
	const hidden = "revoke execute on function pgque.batch_event_sql(bigint) from public, pgque_admin"
	// One that seems to be small, as where other senders' numbers are cached.
	const estimate = "update pgque.tick set tick_event_seq = 1"
	for _, c := range []struct {
		name   string
		events int
		before string // SQL that runs when all is ready to be read
	}{
		{"as PgQue delivers it", 300, "select"},
		{"by a query that does not sort", 300, descending},
		{"of a login that may not use the query", 300, hidden + ""},
		{"of a login that may not use plpgsql", 300, "revoke usage on language plpgsql from public"},
		{"that is larger than it seems", 20_100, estimate},
		{"that is larger than it seems, by a query that does not sort", 20_100, estimate + ";" + descending},
		{"that is as large as is read at once", 20_000, estimate},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
				db, pool := setUp(t, v)
				login := db.Role(t)
				db.Exec(t, "grant pgque_admin to "+strconv.Quote(login))
				for range 2 { // the second is opened with the ack of the first
					db.Exec(t, fmt.Sprintf("select pgque.send_batch('q', 't', array(select '1' from generate_series(1, %d)))", c.events))
					eventstest.Tick(t, pool, queue)
				}
				db.Exec(t, c.before)
				n, last := 0, int64(0)
				consumer := handler(noErrors(t, db.PoolAs(t, login)), events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
					if e.ID <= last {
						t.Errorf("event %d came after %d", e.ID, last)
					}
					n, last = n+1, e.ID
					return nil
				})
				if got := eventstest.Drain(t, pool, queue, consumer); got != 2*c.events || n != 2*c.events {
					t.Errorf("%d events were read and %d handled, want %d", got, n, 2*c.events)
				}
			})
		})
	}
}

// noErrors is the pool, but an error of the server fails the test, even where a
// second try makes good for it: each is a line in the server's log.
func noErrors(t *testing.T, pool *pgxpool.Pool) *pgxpool.Pool {
	t.Helper()
	cfg := pool.Config()
	cfg.ConnConfig.OnPgError = func(_ *pgconn.PgConn, err *pgconn.PgError) bool {
		t.Errorf("the server says: %v", err)
		return true
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
