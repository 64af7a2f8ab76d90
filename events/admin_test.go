package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

func TestEnsureQueue(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db := pgtest.Database(t)
		db.Install(t, v)
		pool := db.Pool(t)
		for _, test := range []struct {
			name     string
			settings Settings
			want     string
		}{
			{"new", nil, "{true []}"},
			{"again", nil, "{false []}"},
			{"its lag in other words", Settings{"ticker_max_lag": "00:00:00.05"}, "{false []}"},
			{"changed", Settings{"ticker_max_lag": "70 ms", "max_retries": "3", "ticker_max_count": "500"},
				"{false [{max_retries  3} {ticker_max_lag 00:00:00.05 00:00:00.07}]}"},
			{"paused", Settings{"ticker_paused": "yes"}, "{false [{ticker_paused false true}]}"},
		} {
			got, err := EnsureQueue(t.Context(), pool, "q", test.settings)
			if fmt.Sprint(got) != test.want || err != nil {
				t.Errorf("%s: %v, %v, want %s", test.name, got, err, test.want)
			}
		}
		// A failure leaves nothing behind.
		for name, settings := range map[string]Settings{
			"type":    {"max_retries": "many"},
			"range":   {"max_retries": "-1"},
			"unknown": {"ticker_max_leg": "1 s"},
			"NUL":     {"ticker_max_lag": "\x00"},
			"boolean": {"external_ticker": "perhaps"},
			"period":  {"rotation_period": "soon"},
		} {
			_, err := EnsureQueue(t.Context(), pool, "bad", settings)
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
			if err := CheckQueue(t.Context(), pool, "bad", settings); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: check: %v", name, err)
			}
		}
		for _, settings := range []Settings{{"ticker_max_lag": "0"}, {"ticker_max_count": "0"}, {"rotation_period": "-1 s"}} {
			if err := CheckQueue(t.Context(), pool, "bad", settings); !errors.Is(err, ErrInvalid) { // PgQue does, the stand-in does not
				t.Errorf("%v: check: %v", settings, err)
			}
		}
		// What CheckQueue takes EnsureQueue takes.
		good := Settings{"ticker_max_lag": "1 ms", "ticker_max_count": "1", "ticker_idle_period": "P1D", "ticker_paused": "t",
			"external_ticker": "off", "rotation_period": "00:01", "max_retries": "0"}
		if err := CheckQueue(t.Context(), pool, "good", good); err != nil {
			t.Error(err)
		}
		if _, err := EnsureQueue(t.Context(), pool, "good", good); err != nil {
			t.Error(err)
		}
		if n := scalar[int](t, pool, "select count(*) from pgque.queue where queue_name = 'bad'"); n != 0 {
			t.Error("a failed EnsureQueue left its queue")
		}
	})
}

// B092: names that PgQue takes and PostgreSQL cannot announce, and odd ones that work.
func TestQueueNames(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin())
	for _, bad := range []string{"", strings.Repeat("q", 58), strings.Repeat("é", 29), "a\x00b", "\xff"} {
		if err := CheckQueue(t.Context(), pool, bad, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: check: %v", bad, err)
		}
		if _, err := EnsureQueue(t.Context(), pool, bad, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{" ", "q; drop", `Ü"x'`, "UPPER", strings.Repeat("q", 57)} {
		if _, err := EnsureQueue(t.Context(), pool, good, nil); err != nil {
			t.Errorf("%q: %v", good, err)
		}
		if _, err := Subscribe(t.Context(), pool, good, good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if got := db.Value(t, `select count(*) from pgque.subscription`); got != "5" {
		t.Errorf("%s subscriptions", got)
	}
}

// B055: PgQue fails for most of those who make the same thing at once.
func TestFirstTimeRaces(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db := pgtest.Database(t)
		db.Install(t, v)
		pool := db.Pool(t)
		for round := range 5 {
			queue := fmt.Sprintf("q%d", round)
			var queues, subscriptions atomic.Int32
			var all sync.WaitGroup
			for range 16 {
				all.Go(func() {
					result, err := EnsureQueue(context.Background(), pool, queue, nil)
					if err != nil {
						t.Errorf("EnsureQueue: %v", err)
					} else if result.Created {
						queues.Add(1)
					}
					created, err := Subscribe(context.Background(), pool, queue, queue)
					if err != nil {
						t.Errorf("Subscribe: %v", err)
					} else if created {
						subscriptions.Add(1)
					}
				})
			}
			all.Wait()
			if queues.Load() != 1 || subscriptions.Load() != 1 {
				t.Errorf("%d made the queue, %d the subscription, want 1 and 1", queues.Load(), subscriptions.Load())
			}
		}
	})
}

// In the caller's transaction a collision must not abort it, and a rollback undoes
// all.
func TestEnsureInTransaction(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		_, pool := tickerDatabase(t, v)
		ctx := t.Context()
		first, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := EnsureQueue(ctx, first, "q", nil); err != nil || !r.Created {
			t.Fatalf("first: %+v, %v", r, err)
		}
		second, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Rollback(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := EnsureQueue(ctx, second, "q", Settings{"max_retries": "2"}) // waits for the first
			done <- err
		}()
		if err := first.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatalf("second: %v", err)
		}
		if _, err := Subscribe(ctx, second, "q", "c"); err != nil {
			t.Fatalf("the second transaction is of no use after the collision: %v", err)
		}
		if err := second.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		if n := scalar[int](t, pool, "select count(*) from pgque.subscription"); n != 0 {
			t.Error("the rollback left a subscription")
		}
	})
}

func TestSubscribeAndUnsubscribe(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q")
		reader := db.Role(t)
		db.Exec(t, "grant pgque_reader to "+reader)
		asReader := db.PoolAs(t, reader)
		ctx := t.Context()
		if created, err := Subscribe(ctx, asReader, "q", "c"); err != nil || !created {
			t.Errorf("first: %v, %v", created, err)
		}
		if created, err := Subscribe(ctx, asReader, "q", "c"); err != nil || created {
			t.Errorf("again: %v, %v", created, err)
		}
		if _, err := Subscribe(ctx, asReader, "nope", "c"); !errors.Is(err, ErrQueueNotFound) {
			t.Errorf("no queue: %v", err)
		}
		for _, name := range []string{"", "a#1", "a.b"} {
			if err := CheckConsumer(name); !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: check: %v", name, err)
			}
			if _, err := Subscribe(ctx, pool, "q", name); !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", name, err)
			}
		}
		bare := db.Role(t)
		if _, err := Subscribe(ctx, db.PoolAs(t, bare), "q", "c2"); !errors.Is(err, ErrPermission) {
			t.Errorf("without a role: %v", err)
		}
		// After a clean-up a queue can be without ticks.
		db.Exec(t, "select pgque.unsubscribe('q', 'c')")
		db.Exec(t, "delete from pgque.tick")
		if _, err := Subscribe(ctx, asReader, "q", "c"); !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), "first tick") {
			t.Errorf("no tick, as reader: %v", err)
		}
		if created, err := Subscribe(ctx, pool, "q", "c"); err != nil || !created {
			t.Errorf("no tick, as admin: %v, %v", created, err)
		}
		if err := DropQueue(ctx, pool, "q", false); !errors.Is(err, ErrInvalid) {
			t.Errorf("drop with a consumer: %v", err)
		}
		if was, err := Unsubscribe(ctx, asReader, "q", "c"); err != nil || !was {
			t.Errorf("unsubscribe: %v, %v", was, err)
		}
		if was, err := Unsubscribe(ctx, asReader, "q", "c"); err != nil || was {
			t.Errorf("unsubscribe again: %v, %v", was, err)
		}
		if err := DropQueue(ctx, pool, "q", false); err != nil {
			t.Errorf("drop: %v", err)
		}
		if err := DropQueue(ctx, pool, "q", true); !errors.Is(err, ErrQueueNotFound) {
			t.Errorf("drop again: %v", err)
		}
	})
}

func TestQueuesAndConsumers(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "a", "b")
		bare := db.Role(t)
		asBare := db.PoolAs(t, bare)
		db.Exec(t, `select pgque.subscribe('a', 'c'), pgque.subscribe('a', 'd')`)
		db.Exec(t, `select count(pgque.send('a', 't', '{}'::jsonb)) from generate_series(1, 7)`)
		if q := queueInfo(t, asBare, "a"); q.NewEvents != 7 || q.DeadLetters != -1 {
			t.Errorf("before the tick, without a role: %+v", q)
		}
		db.Exec(t, `select pg_sleep(0.002)`)
		db.Exec(t, `select pgque.ticker()`)
		db.Exec(t, `select pgque.next_batch('a', 'c')`)
		db.Exec(t, `select pgque.event_dead(sub_batch, 1, 'r', now(), null::xid8, 5, 't', '{}') from pgque.subscription where sub_batch is not null`)
		db.Exec(t, `select pgque.event_retry_raw('a', 'c', now(), 2, now(), 1, 't', '{}', null, null, null, null)`)
		db.Exec(t, `select pgque.event_retry_raw('a', 'c', now() + interval '1 hour', 3, now(), 1, 't', '{}', null, null, null, null)`)
		q := queueInfo(t, pool, "a")
		if q.NewEvents != 0 || q.Consumers != 2 || q.Retries != 2 || q.DueRetries != 1 || q.DeadLetters != 1 || q.MaxRetries != 5 ||
			q.MaxLag.String() != "1ms" || q.RotationPeriod.Hours() != 2 || q.LastTick.IsZero() || q.TickAge <= 0 || q.HalfRotated {
			t.Errorf("queue a: %+v", q)
		}
		consumers, err := Consumers(t.Context(), pool, "a")
		if err != nil || len(consumers) != 2 {
			t.Fatalf("%+v, %v", consumers, err)
		}
		c, d := consumers[0], consumers[1]
		if c.Name != "c" || c.Pending != 7 || c.Batch == 0 || c.BatchAge <= 0 || c.Lag <= 0 || c.Retries != 2 || c.DeadLetters != 1 {
			t.Errorf("consumer c: %+v", c)
		}
		if d.Pending != 7 || d.Batch != 0 || d.BatchAge != 0 || d.DeadLetters != 0 {
			t.Errorf("consumer d: %+v", d)
		}
		if none, err := Consumers(t.Context(), asBare, "b"); err != nil || len(none) != 0 {
			t.Errorf("a queue without consumers: %+v, %v", none, err)
		}
		if _, err := Consumers(t.Context(), asBare, "nope"); !errors.Is(err, ErrQueueNotFound) {
			t.Errorf("no queue: %v", err)
		}
		if all, err := Consumers(t.Context(), asBare, ""); err != nil || len(all) != 2 || all[0].DeadLetters != -1 {
			t.Errorf("without a role: %+v, %v", all, err)
		}
	})
}

func queueInfo(t *testing.T, db DB, name string) QueueInfo {
	t.Helper()
	queues, err := Queues(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Name == name {
			return q
		}
	}
	t.Fatalf("no queue %q in %+v", name, queues)
	return QueueInfo{}
}

func TestNotInstalled(t *testing.T) {
	t.Parallel()
	pool := pgtest.Database(t).Pool(t)
	_, queues := Queues(t.Context(), pool)
	_, consumers := Consumers(t.Context(), pool, "")
	_, ensure := EnsureQueue(t.Context(), pool, "q", nil)
	_, subscribe := Subscribe(t.Context(), pool, "q", "c")
	_, replay := Replay(t.Context(), pool, DeadLetterFilter{})
	for name, err := range map[string]error{"Queues": queues, "Consumers": consumers, "EnsureQueue": ensure, "Subscribe": subscribe, "Replay": replay} {
		if !errors.Is(err, ErrNotInstalled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
