package events

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

func TestPeek(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q")
		db.Exec(t, `select pgque.subscribe('q', 'c')`)
		db.Exec(t, `select count(pgque.insert_event('q', 't', i::text, null, null, '{"h": "v"}', null)) from generate_series(1, 30) i`)
		db.Exec(t, `select pgque.insert_event('q', null, null)`)
		db.Exec(t, `select pgque.event_retry_raw('q', 'c', now(), 7, now(), 1, 't', 'again', null, null, 'no json', null)`)
		db.Exec(t, `select pgque.maint_retry_events()`)
		before := db.Value(t, `select sub_batch is null from pgque.subscription`)
		role := db.Role(t)
		found, err := Peek(t.Context(), db.PoolAs(t, role), "q", 4)
		if err != nil || len(found) != 4 {
			t.Fatalf("%+v, %v", found, err)
		}
		var got []string
		for _, e := range found {
			got = append(got, fmt.Sprintf("%s|%s|%d|%s|%s", e.Type, e.Payload, e.Attempt, e.Consumer, e.Headers["h"]))
		}
		if want := "[t|29|1||v t|30|1||v ||1|| t|again|2|c|]"; fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
		if db.Value(t, `select sub_batch is null from pgque.subscription`) != before {
			t.Error("peeking opened a batch")
		}
		if _, err := Peek(t.Context(), pool, "nope", 1); !errors.Is(err, ErrQueueNotFound) {
			t.Errorf("no queue: %v", err)
		}
		if _, err := Peek(t.Context(), pool, "q", -1); !errors.Is(err, ErrInvalid) || sqlState(err) != "" {
			t.Errorf("a negative limit: %v", err)
		}
		if found, err := Peek(t.Context(), pool, "q", 0); err != nil || len(found) != 0 {
			t.Errorf("limit 0: %v, %v", found, err)
		}
	})
}

// before does something before each query that gives rows.
type before struct {
	*pgxpool.Pool
	do func()
}

func (b before) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	b.do()
	return b.Pool.Query(ctx, sql, args...)
}

// A queue that goes while it is looked into is no queue, not a missing PgQue.
func TestPeekIntoAQueueThatGoes(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin(), "q")
	found, err := Peek(t.Context(), before{pool, func() { db.Exec(t, "select pgque.drop_queue('q', true)") }}, "q", 4)
	if found != nil || !errors.Is(err, ErrQueueNotFound) || errors.Is(err, ErrNotInstalled) {
		t.Errorf("%v, %v", found, err)
	}
}
