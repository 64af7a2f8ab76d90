package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// The look must find exactly what ticker(queue) would tick, idle ticks included:
// without those a consumer's position would stay, and the tables would not rotate.
func TestLookAgreesWithTicker(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		_, pool := tickerDatabase(t, v, "q")
		ctx := t.Context()
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(ctx)
		must := func(sql string, args ...any) {
			t.Helper()
			if _, err := tx.Exec(ctx, sql, append([]any{exec}, args...)...); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		pick := func(values ...int) int { return values[random.IntN(len(values))] }
		due := map[bool]int{}
		for range 400 {
			ticks, age, distance, sent := pick(0, 1, 2, 3), pick(0, 49, 50, 51, 99, 100, 101, 5000, 59_999, 60_000), pick(1, 25, 50, 2500, 30_000), pick(0, 0, 1, 3, 4)
			maxLag, maxCount := pick(1, 100, 3000), pick(1, 3, 500)
			must("savepoint state")
			must("delete from pgque.tick")
			must("select setval(queue_event_seq::regclass, 100) from pgque.queue")
			for i := range ticks {
				must(`insert into pgque.tick (tick_queue, tick_id, tick_time, tick_event_seq)
					select queue_id, nextval(queue_tick_seq::regclass), now() - make_interval(secs => $1::float8 / 1000), 100 from pgque.queue`,
					age+(ticks-1-i)*distance)
			}
			must("update pgque.queue set queue_ticker_max_lag = make_interval(secs => $1::float8 / 1000), queue_ticker_max_count = $2::int", maxLag, maxCount)
			if sent > 0 {
				must("select setval(queue_event_seq::regclass, 100 + $1::int) from pgque.queue", sent)
			}
			found, err := lookForTicks(ctx, tx, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			says := len(found) == 1 && found[0].Wait == 0
			does := scalar[*int64](t, tx, "select pgque.ticker('q')") != nil
			due[does]++
			state := fmt.Sprintf("%d ticks, the last %d ms old, %d ms apart, %d sent, max_lag %d ms, max_count %d", ticks, age, distance, sent, maxLag, maxCount)
			if says != does {
				t.Errorf("%s: the look says %v, ticker() ticks: %v", state, says, does)
			}
			if ticks > 0 && sent > 0 && !does && (len(found) != 1 || found[0].Wait != time.Duration(maxLag-age)*time.Millisecond) {
				t.Errorf("%s: the look says %+v, want a wait of %d ms", state, found, maxLag-age)
			}
			if !does {
				must("update pgque.tick set tick_time = tick_time - make_interval(secs => $1::float8)", (found[0].Wait - time.Millisecond).Seconds())
				early := scalar[*int64](t, tx, "select pgque.ticker('q')") != nil
				must("update pgque.tick set tick_time = tick_time - interval '1 ms'")
				if early || scalar[*int64](t, tx, "select pgque.ticker('q')") == nil {
					t.Errorf("%s: ticker() does not tick after the wait of %s, but before: %v", state, found[0].Wait, early)
				}
			}
			must("rollback to savepoint state")
		}
		if due[true] < 50 || due[false] < 30 {
			t.Errorf("one-sided cases: %v", due)
		}
	})
}

// A sequence that was never used reads as 1 in PgQue and as NULL elsewhere.
func TestLookAtAnUnusedQueue(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin())
	db.Exec(t, "select pgque.create_queue('q')")
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	for i := range 4 {
		found, err := lookForTicks(t.Context(), tx, []string{"q"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ticks := scalar[*int64](t, tx, "select pgque.ticker('q')") != nil; len(found) != 1 || ticks != (found[0].Wait == 0) {
			t.Errorf("round %d: look says %+v, ticker() ticks: %v", i, found, ticks)
		}
	}
}

// A quiet queue costs a look at its sequence only: it is found again when something
// came, or when its idle tick may be due, and others tick beside it.
func TestLookAtAQuietQueue(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q", "other")
		db.Exec(t, "select pgque.ticker()")
		// The next idle ticks are minutes away.
		spread := "update pgque.tick t set tick_time = tick_time - interval '1 minute' where tick_id < (select max(tick_id) from pgque.tick where tick_queue = t.tick_queue)"
		db.Exec(t, spread)
		ticker := NewTicker(pool, TickerConfig{})
		found := func(when, want string) {
			t.Helper()
			db.Exec(t, "select pg_current_xact_id()") // something was committed
			queues, _, err := ticker.look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, q := range queues {
				names = append(names, q.Name)
			}
			if got := fmt.Sprint(names); got != want {
				t.Errorf("%s the look finds %s, want %s", when, got, want)
			}
		}
		found("at first", "[other q]")
		found("then", "[]")
		sendText(t, pool, "q")
		found("after an event", "[q]")
		found("until it is ticked", "[q]")
		db.Exec(t, "update pgque.queue set queue_ticker_max_lag = '0'")
		if _, err := ticker.tick(t.Context()); err != nil || queueInfo(t, pool, "q").NewEvents != 0 {
			t.Fatalf("it is not ticked (%v)", err)
		}
		db.Exec(t, spread)
		found("after the tick", "[q]")
		for id, q := range ticker.last.quiet {
			q.until = time.Now()
			ticker.last.quiet[id] = q
		}
		found("a moment after the last look at all", "[]")
		ticker.last.idle = time.Now().Add(-idleEvery)
		found("when an idle tick may be due", "[other q]")
		db.Exec(t, "select pgque.create_queue('new')")
		found("with a new one", "[new]")
		db.Exec(t, "select pgque.drop_queue('other')")
		found("with one less", "[new]")
	})
}

// A sequence that is gone at the moment of a look is no failure.
func TestLookAtAQueueThatGoes(t *testing.T) {
	t.Parallel()
	_, pool := tickerDatabase(t, pgtest.Standin(), "q")
	ticker := NewTicker(pool, TickerConfig{})
	if _, _, err := ticker.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := scalar[int32](t, pool, "select queue_id from pgque.queue")
	ticker.last.quiet[id] = quiet{sequence: 4_000_000_000, until: time.Now().Add(time.Minute)}
	ticker.last.snapshot = ""
	queues, _, err := ticker.look(t.Context())
	if err != nil || len(queues) != 1 || queues[0].ID != id {
		t.Errorf("look = %+v, %v", queues, err)
	}
}

// While nothing is committed on the whole server, a look asks for nothing else,
// unless a queue's time has come.
func TestLookWhileNothingIsCommitted(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{Settings: map[string]string{"autovacuum": "off"}})
	db := server.Database(t)
	db.Install(t, pgtest.Standin())
	pool := openPool(t, db.URL)
	if _, err := EnsureQueue(t.Context(), pool, "q", Settings{"ticker_max_lag": "1 hour"}); err != nil {
		t.Fatal(err)
	}
	ticker := NewTicker(pool, TickerConfig{})
	look := func() (found int, wait time.Duration) {
		t.Helper()
		ticker.last.idle = time.Now()
		queues, wait, err := ticker.look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(queues), wait
	}
	sendText(t, pool, "q")
	if n, wait := look(); n != 1 || wait <= 0 {
		t.Errorf("the first look finds %d, wait %s", n, wait)
	}
	if n, wait := look(); n != 0 || wait <= 0 {
		t.Errorf("with nothing committed since it finds %d, wait %s", n, wait)
	}
	ticker.last.due = time.Now()
	if n, _ := look(); n != 1 {
		t.Errorf("when it may be due it finds %d", n)
	}
	sendText(t, pool, "q")
	if n, _ := look(); n != 1 {
		t.Errorf("after another event it finds %d", n)
	}
}
