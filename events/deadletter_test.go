package events

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// deadLetterDatabase has n dead letters of consumer c on queue q, of which consumer
// d, subscribed to the same queue, knows nothing.
func deadLetterDatabase(t *testing.T, v pgtest.Variant, n int) (*pgtest.DB, *pgxpool.Pool) {
	t.Helper()
	db, pool := tickerDatabase(t, v, "q")
	db.Exec(t, `select pgque.subscribe('q', 'c'), pgque.subscribe('q', 'd')`)
	db.Exec(t, fmt.Sprintf(`select count(pgque.insert_event('q', 't' || i %% 2, format('{"n": %%s}', i), null, null, '{"h": "v"}', null)) from generate_series(1, %d) i`, n))
	db.Exec(t, `select pgque.force_tick('q')`)
	db.Exec(t, `select pgque.ticker()`)
	for _, c := range []string{"d", "c"} {
		db.Exec(t, fmt.Sprintf(`select pgque.next_batch('q', '%s')`, c))
		if c == "c" {
			db.Exec(t, `select count(pgque.event_dead(sub_batch, e.ev_id, 'it broke', e.ev_time, null::xid8, 5, e.ev_type, e.ev_data, null, null, e.ev_extra3, null))
				from pgque.subscription, lateral pgque.get_batch_events(sub_batch) e where sub_batch is not null`)
		}
		db.Exec(t, `select pgque.finish_batch(sub_batch) from pgque.subscription where sub_batch is not null`)
	}
	return db, pool
}

// delivered ticks and returns how many events a consumer gets.
func delivered(t *testing.T, db *pgtest.DB, pool *pgxpool.Pool, consumer string) int {
	t.Helper()
	for scalar[int](t, pool, "select pgque.maint_retry_events()") > 0 {
	}
	db.Exec(t, `select pgque.force_tick('q')`)
	db.Exec(t, `select pgque.ticker()`)
	n := 0
	for {
		batch := scalar[*int64](t, pool, "select pgque.next_batch('q', $1)", consumer)
		if batch == nil {
			return n
		}
		n += scalar[int](t, pool, "select count(*) from pgque.get_batch_events($1)", *batch)
		scalar[int](t, pool, "select pgque.finish_batch($1)", *batch)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := deadLetterDatabase(t, v, 120)
		reader := db.Role(t)
		db.Exec(t, "grant pgque_reader to "+reader)
		asReader := db.PoolAs(t, reader)
		var all []DeadLetter
		for d, err := range DeadLetters(t.Context(), asReader, DeadLetterFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		if len(all) != 120 {
			t.Fatalf("%d dead letters, want 120", len(all))
		}
		d := all[0]
		if d.Reason != "it broke" || d.Event.Queue != "q" || d.Event.Consumer != "c" || d.Event.Attempt != 6 || d.Event.Type != "t1" ||
			string(d.Event.Payload) != `{"n": 1}` || d.Event.Headers["h"] != "v" || d.Event.ID == 0 || time.Since(d.Died) > time.Hour {
			t.Errorf("the first: %+v", d)
		}
		for name, test := range map[string]struct {
			filter DeadLetterFilter
			want   int
		}{
			"type":           {DeadLetterFilter{Queue: "q", Type: "t1"}, 60},
			"consumer":       {DeadLetterFilter{Consumer: "d"}, 0},
			"ids":            {DeadLetterFilter{IDs: []int64{all[3].ID, all[5].ID, 999999}}, 2},
			"older":          {DeadLetterFilter{Older: time.Hour}, 0},
			"newer":          {DeadLetterFilter{Newer: time.Hour}, 120},
			"newer, but old": {DeadLetterFilter{Newer: time.Nanosecond}, 0},
			"queue":          {DeadLetterFilter{Queue: "other"}, 0},
			"queue consumer": {DeadLetterFilter{Queue: "q", Consumer: "c"}, 120},
		} {
			n := 0
			for _, err := range DeadLetters(t.Context(), asReader, test.filter) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != test.want {
				t.Errorf("%s: %d, want %d", name, n, test.want)
			}
		}
		for d, err := range DeadLetters(t.Context(), pool, DeadLetterFilter{NoPayload: true}) {
			if err != nil || d.Event.Payload != nil || d.Event.Headers["h"] != "v" {
				t.Errorf("without payload: %+v, %v", d, err)
			}
			break // a caller may stop at once
		}
		for _, err := range DeadLetters(t.Context(), db.PoolAs(t, db.Role(t)), DeadLetterFilter{}) {
			if !errors.Is(err, ErrPermission) {
				t.Errorf("without a role: %v", err)
			}
		}
	})
}

func TestReplayGoesToTheConsumerThatFailed(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := deadLetterDatabase(t, v, 1100) // more than two steps
		admin := db.Role(t)
		db.Exec(t, "grant pgque_admin to "+admin)
		n, err := Replay(t.Context(), db.PoolAs(t, admin), DeadLetterFilter{Queue: "q"})
		if err != nil || n != 1100 {
			t.Fatalf("Replay = %d, %v", n, err)
		}
		if c, d := delivered(t, db, pool, "c"), delivered(t, db, pool, "d"); c != 1100 || d != 0 {
			t.Errorf("c got %d, d got %d", c, d)
		}
	})
}

func TestReplayToAll(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := deadLetterDatabase(t, v, 3)
		n, err := ReplayToAll(t.Context(), pool, DeadLetterFilter{Queue: "q"})
		if err != nil || n != 3 {
			t.Fatalf("ReplayToAll = %d, %v", n, err)
		}
		if c, d := delivered(t, db, pool, "c"), delivered(t, db, pool, "d"); c != 3 || d != 3 {
			t.Errorf("c got %d, d got %d", c, d)
		}
	})
}

// B094: of several that replay one dead letter at once, one does.
func TestReplayAtOnce(t *testing.T) {
	t.Parallel()
	for name, replay := range map[string]func(*testing.T, *pgxpool.Pool, DeadLetterFilter) (int, error){
		"to its consumer": func(t *testing.T, p *pgxpool.Pool, f DeadLetterFilter) (int, error) { return Replay(t.Context(), p, f) },
		"to all": func(t *testing.T, p *pgxpool.Pool, f DeadLetterFilter) (int, error) {
			return ReplayToAll(t.Context(), p, f)
		},
	} {
		pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db, pool := deadLetterDatabase(t, v, 20)
				var won, lost atomic.Int32
				for id := range int64(20) {
					var all sync.WaitGroup
					for range 4 {
						all.Go(func() {
							n, err := replay(t, pool, DeadLetterFilter{IDs: []int64{id + 1}})
							switch {
							case err == nil && n == 1:
								won.Add(1)
							case errors.Is(err, ErrNotFound):
								lost.Add(1)
							default:
								t.Errorf("%d, %v", n, err)
							}
						})
					}
					all.Wait()
				}
				if won.Load() != 20 || lost.Load() != 60 {
					t.Errorf("%d won and %d lost, want 20 and 60", won.Load(), lost.Load())
				}
				if got := delivered(t, db, pool, "c"); got != 20 {
					t.Errorf("%d events came back, want 20", got)
				}
			})
		})
	}
}

func TestReplayEdges(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := deadLetterDatabase(t, v, 3)
		ctx := t.Context()
		if n, err := Replay(ctx, pool, DeadLetterFilter{IDs: []int64{77}}); n != 0 || !errors.Is(err, ErrNotFound) {
			t.Errorf("no such id: %d, %v", n, err)
		}
		if n, err := Replay(ctx, pool, DeadLetterFilter{Queue: "empty"}); n != 0 || err != nil {
			t.Errorf("nothing chosen: %d, %v", n, err)
		}
		if _, err := Purge(ctx, pool, DeadLetterFilter{Type: "t1"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("purge of everything: %v", err)
		}
		// An event that waits for a retry already is not queued twice.
		db.Exec(t, `select pgque.event_retry_raw('q', 'c', now() + interval '1 hour', ev_id, now(), 1, 't', '{}', null, null, null, null) from pgque.dead_letter where dl_id = 1`)
		if n, err := Replay(ctx, pool, DeadLetterFilter{IDs: []int64{1}}); n != 1 || err != nil {
			t.Errorf("with a retry: %d, %v", n, err)
		}
		// In a transaction a replay is undone with it.
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := Replay(ctx, tx, DeadLetterFilter{Queue: "q"}); n != 2 || err != nil {
			t.Errorf("in a transaction: %d, %v", n, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `select pgque.create_queue('q2'), pgque.subscribe('q2', 'c')`) // keeps c's dead letters
		db.Exec(t, `select pgque.unsubscribe('q', 'c')`)
		if n, err := Replay(ctx, pool, DeadLetterFilter{IDs: []int64{2}}); n != 0 || !errors.Is(err, ErrNotSubscribed) {
			t.Errorf("unsubscribed: %d, %v", n, err)
		}
		if n, err := Purge(ctx, pool, DeadLetterFilter{Queue: "q"}); n != 2 || err != nil {
			t.Errorf("purge: %d, %v", n, err)
		}
	})
}
