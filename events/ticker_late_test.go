package events

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// idleTicksFar is SQL that makes the queues' next idle ticks hours away, so that
// nothing but an event makes a tick.
const idleTicksFar = `update pgque.tick t set tick_time = tick_time - interval '3 hours'
	where tick_id < (select max(tick_id) from pgque.tick where tick_queue = t.tick_queue)`

// sendOpen sends an event in a transaction that stays open.
func sendOpen(t *testing.T, pool *pgxpool.Pool, queue string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	sendText(t, tx, queue)
	return tx
}

// lateTicker is a ticker whose steps a test makes one by one.
type lateTicker struct {
	*Ticker
	db *pgtest.DB
}

func newLateTicker(t *testing.T, db *pgtest.DB, pool *pgxpool.Pool) lateTicker {
	t.Helper()
	db.Exec(t, "select pgque.ticker()")
	db.Exec(t, "update pgque.queue set queue_ticker_idle_period = '1 year'")
	l := lateTicker{NewTicker(pool, TickerConfig{}), db}
	l.want(t, "at first", 0)
	return l
}

// ticks makes one look, and gives how many ticks it made.
func (l lateTicker) ticks(t *testing.T) int64 {
	t.Helper()
	l.db.Exec(t, idleTicksFar)
	before := scalar[int64](t, l.pool, "select count(*) from pgque.tick")
	time.Sleep(2 * time.Millisecond) // above ticker_max_lag
	if _, err := l.tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	return scalar[int64](t, l.pool, "select count(*) from pgque.tick") - before
}

// want looks, after something unrelated was committed.
func (l lateTicker) want(t *testing.T, when string, ticks int64) {
	t.Helper()
	l.db.Exec(t, "select pg_current_xact_id()")
	if got := l.ticks(t); got != ticks {
		t.Errorf("%s: %d ticks, want %d", when, got, ticks)
	}
}

// uncovered is how many committed events no tick covers: what a consumer that has
// taken all batches would still wait for.
func uncovered(t *testing.T, pool *pgxpool.Pool, queue string) int64 {
	t.Helper()
	table := scalar[string](t, pool, "select queue_data_pfx from pgque.queue where queue_name = '"+queue+"'")
	return scalar[int64](t, pool, fmt.Sprintf(`select count(*) from %s where not pg_visible_in_snapshot(ev_txid,
		(select tick_snapshot from pgque.tick join pgque.queue on queue_id = tick_queue where queue_name = '%s' order by tick_id desc limit 1))`, table, queue))
}

// An event that is committed only after the tick that its number brought about is
// in no batch, and nothing new would ever make another tick.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q", "other")
		ticker := newLateTicker(t, db, pool)

		first := sendOpen(t, pool, "q")
		ticker.want(t, "with an open transaction's number", 1)
		ticker.want(t, "while it is open", 0)
		second := sendOpen(t, pool, "q")
		ticker.want(t, "with a second number", 1)
		ticker.want(t, "while both are open", 0)
		if err := second.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		ticker.want(t, "after the second's commit", 1)
		ticker.want(t, "after the tick for the second", 0)
		if err := first.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		ticker.want(t, "after the first's commit", 1)
		if n := uncovered(t, pool, "q"); n != 0 {
			t.Errorf("%d events are in no batch", n)
		}
		ticker.want(t, "when all is done", 0)
	})
}

// The first event of a queue that PgQue's own function made is not new to PgQue,
// since a sequence that was never used reads as 1. In a queue that was made just
// now it is found all the same.
func TestFirstEvent(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v)
		db.Exec(t, "select pgque.create_queue('q')")
		db.Exec(t, "select pgque.set_queue_config('q', 'ticker_max_lag', '1 ms')")
		ticker := newLateTicker(t, db, pool)
		sendText(t, pool, "q")
		eventually(t, "the tick for it", func() bool { return ticker.ticks(t) == 1 })
		if n := uncovered(t, pool, "q"); n != 0 {
			t.Errorf("%d events are in no batch", n)
		}
		ticker.want(t, "after it", 0)
	})
}

// A transaction that is rolled back, or has nothing to do with the queue, makes
// no tick.
func TestLateRollback(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin(), "q")
	db.Exec(t, "create table elsewhere (n int)")
	ticker := newLateTicker(t, db, pool)
	event := sendOpen(t, pool, "q")
	stranger, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Rollback(context.Background())
	if _, err := stranger.Exec(t.Context(), "insert into elsewhere values (1)"); err != nil {
		t.Fatal(err)
	}
	ticker.want(t, "with a number taken", 1)
	if err := event.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	ticker.want(t, "after the rollback", 0)
	if err := stranger.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	ticker.want(t, "after a stranger's commit", 0)
}

// Nor does it matter who made the tick, or whether this ticker ran at the time.
func TestLateCommitBeforeTheStart(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q", "other")
		ticker := newLateTicker(t, db, pool)

		other, before := sendOpen(t, pool, "other"), sendOpen(t, pool, "q")
		time.Sleep(2 * time.Millisecond)
		db.Exec(t, "select pgque.ticker()")
		if err := before.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		fresh := lateTicker{NewTicker(pool, TickerConfig{}), db}
		fresh.want(t, "at the start", 1)
		if n := uncovered(t, pool, "q"); n != 0 {
			t.Errorf("%d events are in no batch", n)
		}
		if err := other.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		ticker.want(t, "of the ticker that made none of the ticks", 1)
		if n := uncovered(t, pool, "other"); n != 0 {
			t.Errorf("%d events are in no batch", n)
		}
	})
}

// Nor in which of the queue's tables the event is: they may have turned before its
// tick or after it.
func TestLateCommitAroundARotation(t *testing.T) {
	t.Parallel()
	for _, rotated := range []string{"before the tick", "after the tick", "long before"} {
		t.Run(rotated, func(t *testing.T) {
			t.Parallel()
			pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
				t.Parallel()
				db, pool := tickerDatabase(t, v, "q")
				ticker := newLateTicker(t, db, pool)
				rotate := func() {
					t.Helper()
					db.Exec(t, "update pgque.queue set queue_rotation_period = '0'")
					before := scalar[int32](t, pool, "select queue_cur_table from pgque.queue")
					db.Exec(t, "select pgque.maint_rotate_tables_step1('q')")
					db.Exec(t, "select pgque.maint_rotate_tables_step2()")
					if scalar[int32](t, pool, "select queue_cur_table from pgque.queue") == before {
						t.Fatal("the tables have not turned")
					}
				}
				if rotated == "long before" {
					rotate()
				}
				late := sendOpen(t, pool, "q")
				if rotated == "before the tick" {
					rotate()
				}
				ticker.want(t, "with a number taken", 1)
				ticker.ticks(t) // PgQue ticks once more where turning has left a single tick
				ticker.want(t, "while it is open", 0)
				if rotated == "after the tick" {
					rotate()
				}
				if err := late.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				ticker.want(t, "after the commit", 1)
				if n := uncovered(t, pool, "q"); n != 0 {
					t.Errorf("%d events are in no batch", n)
				}
			})
		})
	}
}

// lateServer is a ticker on a server that does nothing by itself, since what else
// takes transaction ids there makes a difference.
func lateServer(t *testing.T) (*pgtest.DB, *pgxpool.Pool, lateTicker) {
	t.Helper()
	server := pgtest.NewServer(t, pgtest.Options{Settings: map[string]string{"autovacuum": "off"}})
	db := server.Database(t)
	db.Install(t, pgtest.Standin())
	pool := openPool(t, db.URL)
	if _, err := EnsureQueue(t.Context(), pool, "q", Settings{"ticker_max_lag": "1 ms"}); err != nil {
		t.Fatal(err)
	}
	return db, pool, newLateTicker(t, db, pool)
}

// A number may be taken before the tick by a transaction that gets its id after
// it. A snapshot lists such a one only when a later one has ended.
func TestLateCommitWithALateID(t *testing.T) {
	t.Parallel()
	for _, listed := range []string{"listed at once", "not listed", "not listed when asked again", "without an id for long"} {
		t.Run(listed, func(t *testing.T) {
			t.Parallel()
			db, pool, ticker := lateServer(t)
			transaction := func(sql string) pgx.Tx {
				t.Helper()
				tx, err := pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
				return tx
			}
			look := func() {
				t.Helper()
				if _, err := ticker.tick(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			watch := ticker.last.late.queues[scalar[int32](t, pool, "select queue_id from pgque.queue")]
			again := func() bool { return watch.every > askAgain }
			insert := "insert into " + scalar[string](t, pool, "select queue_data_pfx || '_' || queue_cur_table from pgque.queue") +
				" (ev_id, ev_time, ev_type, ev_data) values (1, now(), 'late', '{}')"

			db.Exec(t, "select nextval(queue_event_seq::regclass) from pgque.queue")
			ticker.want(t, "with a number taken", 1)
			db.Exec(t, idleTicksFar)
			var late pgx.Tx
			switch listed {
			case "listed at once":
				late = transaction(insert)
				ticker.want(t, "while it is open", 0)
			case "not listed":
				late = transaction(insert)
				look()
			case "not listed when asked again":
				earlier := transaction("select pg_current_xact_id()")
				late = transaction(insert)
				look()
				watch = ticker.last.late.queues[watch.queue.ID]
				if err := earlier.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				eventually(t, "asking again", func() bool { look(); return again() })
			case "without an id for long":
				look()
				watch = ticker.last.late.queues[watch.queue.ID]
				eventually(t, "asking again", func() bool { ticker.want(t, "meanwhile", 0); return again() })
				late = transaction(insert)
			}
			open := ticker.last.late.queues[watch.queue.ID].open
			if (len(open) > 0) != (listed == "listed at once") {
				t.Fatalf("in flight: %v", open)
			}
			if err := late.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the tick for it", func() bool { return ticker.ticks(t) == 1 })
			if n := uncovered(t, pool, "q"); n != 0 {
				t.Errorf("%d events are in no batch", n)
			}
		})
	}
}

// A queue that cannot be asked keeps no other from being asked and ticked, is named
// once, and is asked again also when nothing happens any more.
func TestLateFailure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ does, undoes, says string }{
		"no right to take a number": {
			does:   "execute format('revoke usage, update on sequence %s from public, pgque_admin', q.queue_event_seq)",
			undoes: "execute format('grant usage on sequence %s to pgque_admin', q.queue_event_seq)",
			says:   "permission denied",
		},
		"a slow table": {
			// Of the parent or of the table of the moment, which is asked depends on what else is open on the server.
			does: "execute format('create policy slow on %1$s using (pg_sleep(120) is not null); create policy slow on %1$s_%2$s using (pg_sleep(120) is not null)', q.queue_data_pfx, q.queue_cur_table); " +
				"execute format('alter table %1$s enable row level security; alter table %1$s_%2$s enable row level security', q.queue_data_pfx, q.queue_cur_table)",
			undoes: "execute format('alter table %1$s disable row level security; alter table %1$s_%2$s disable row level security', q.queue_data_pfx, q.queue_cur_table)",
			says:   "statement timeout",
		},
		"a locked table": {says: "lock timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, admin := tickerDatabase(t, pgtest.Standin(), "bad", "good")
			login := db.Role(t)
			db.Exec(t, "grant pgque_admin to "+login)
			pool := db.PoolAs(t, login)
			ticker := newLateTicker(t, db, pool)
			log, text := testLogger()
			ticker.log = log
			bad, good := sendOpen(t, admin, "bad"), sendOpen(t, admin, "good")
			ticker.want(t, "with numbers taken", 2)
			ticker.want(t, "while they are open", 0)
			for _, tx := range []pgx.Tx{bad, good} {
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			change := func(does string) {
				t.Helper()
				db.Exec(t, "do $$ declare q pgque.queue; begin select * into q from pgque.queue where queue_name = 'bad'; "+does+"; end $$")
			}
			var mend func()
			if test.does != "" {
				change(test.does)
				mend = func() { change(test.undoes) }
			} else {
				lock, err := admin.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				mend = func() { _ = lock.Rollback(context.Background()) }
				defer mend()
				if _, err := lock.Exec(t.Context(), "lock table "+scalar[string](t, admin, "select queue_data_pfx from pgque.queue where queue_name = 'bad'")); err != nil {
					t.Fatal(err)
				}
			}
			covers := func(queue string) func() bool {
				return func() bool {
					if _, err := ticker.tick(t.Context()); err != nil {
						t.Fatal(err)
					}
					return uncovered(t, admin, queue) == 0
				}
			}
			eventually(t, "the tick for the good one", covers("good"))
			mend()
			eventually(t, "the tick for the bad one", covers("bad"))
			got := text.String()
			if strings.Count(got, "fails for one queue") != 1 || !strings.Contains(got, test.says) || strings.Count(got, "queue=bad") != 2 || !strings.Contains(got, "looked for again") {
				t.Errorf("the log says %q", got)
			}
		})
	}
}

// Very many queues that cannot be asked, or an answer that does not come, keep the
// ticks waiting for a moment only.
func TestLateFailures(t *testing.T) {
	t.Parallel()
	const bad = 60
	queues := []string{"good"}
	for i := range bad {
		queues = append(queues, fmt.Sprint("bad", i))
	}
	db, pool := tickerDatabase(t, pgtest.Standin(), queues...)
	ticker := newLateTicker(t, db, pool)
	open := sendOpen(t, pool, "bad0")
	for _, q := range queues[2:] {
		sendText(t, open, q)
	}
	ticker.want(t, "with numbers taken", bad)
	ticker.want(t, "while they are open", 0)
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback(context.Background())
	tables := scalar[string](t, pool, "select string_agg(queue_data_pfx, ', ') from pgque.queue where queue_name <> 'good'")
	if _, err := lock.Exec(t.Context(), "lock table "+tables); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for range 3 {
		ticker.want(t, "with all tables locked", 0)
		if resting := len(ticker.last.late.failing); resting > asked+bad/2 || resting <= asked && asked < bad {
			t.Errorf("%d queues failed in one look, want some of %d", resting-asked, bad)
		}
		asked = len(ticker.last.late.failing)
	}
	sendText(t, pool, "good")
	ticker.want(t, "for the good one", 1)
}

// A start with very many queues does not ask all of them before its first tick.
func TestLateAsksSome(t *testing.T) {
	t.Parallel()
	watches := NewTicker(nil, TickerConfig{}).last.late
	queues := make([]lookedAt, askAtMost+3)
	for i := range queues {
		queues[i] = lookedAt{ID: int32(i), Name: fmt.Sprint(i), Sequence: 1, Snapshot: "1:1:"}
	}
	now := time.Now()
	if err := watches.remember(queues, nil, now); err != nil {
		t.Fatal(err)
	}
	at := snapshot{xmax: 5}
	for i, want := range []int{askAtMost, 3, 0} {
		due := watches.due(at, now)
		if len(due) != want {
			t.Fatalf("in look %d %d are asked, want %d", i, len(due), want)
		}
		for _, w := range due {
			w.wasAsked(at, now)
		}
	}
	if err := watches.remember(queues[:1], map[int32]quiet{1: {}}, now); err != nil {
		t.Fatal(err)
	}
	if len(watches.queues) != 2 {
		t.Errorf("%d watches are left, want those of a queue that was looked at and of a quiet one", len(watches.queues))
	}
}

// Rows of transactions that this cluster has not reached, as after a restore, make
// no ticks without end.
func TestLateFromTheFuture(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin(), "q")
	ticker := newLateTicker(t, db, pool)
	table := scalar[string](t, pool, "select queue_data_pfx || '_' || queue_cur_table from pgque.queue")
	db.Exec(t, "insert into "+table+" (ev_id, ev_time, ev_txid, ev_type, ev_data) values (1, now(), '999999999', 't', '{}')")
	sendText(t, pool, "q")
	ticker.want(t, "for the event", 1)
	for _, w := range ticker.last.late.queues {
		w.again = time.Time{}
	}
	ticker.want(t, "for the row", 0)
}

// A queue that could not be asked rests, whatever has ended meanwhile, and so do
// all after an error that is not one queue's.
func TestLateRests(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for failed, want := range map[string]int{"none": 2, "bad": 1, "": 0} {
		watches := NewTicker(nil, TickerConfig{}).last.late
		queues := []lookedAt{{ID: 1, Name: "bad", Sequence: 1, Snapshot: "1:1:"}, {ID: 2, Name: "good", Sequence: 1, Snapshot: "1:1:"}}
		if err := watches.remember(queues, nil, now); err != nil {
			t.Fatal(err)
		}
		watches.failing.add(failed, now)
		if due := watches.due(snapshot{xmax: 5}, now); len(due) != want {
			t.Errorf("after a failure of %q %d are asked, want %d", failed, len(due), want)
		}
		if due := watches.due(snapshot{xmax: 5}, now.Add(maxRest)); len(due) != 2 {
			t.Errorf("after the rest of %q %d are asked, want both", failed, len(due))
		}
	}
}

func TestParseSnapshot(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10:20:10,14,15": "20 [10 14 15]",
		"10:10:":         "10 []",
		"18446744073709551615:18446744073709551615:": "18446744073709551615 []",
		"":           "error",
		"10:20":      "error",
		"10:x:":      "error",
		"10:20:10,x": "error",
		"1:2:3:4":    "error",
	} {
		s, err := parseSnapshot(text)
		got := fmt.Sprint(s.xmax, s.open)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q is read as %s (%v), want %s", text, got, err, want)
		}
	}
}
