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

// A number may be taken before the tick by a transaction that gets its id after
// it. A snapshot lists such a one only when a later one has ended.
func TestLateCommitWithALateID(t *testing.T) {
	t.Parallel()
	for _, listed := range []bool{true, false} {
		t.Run(fmt.Sprintf("listed=%v", listed), func(t *testing.T) {
			t.Parallel()
			server := pgtest.NewServer(t, pgtest.Options{Settings: map[string]string{"autovacuum": "off"}})
			db := server.Database(t)
			db.Install(t, pgtest.Standin())
			pool := openPool(t, db.URL)
			if _, err := EnsureQueue(t.Context(), pool, "q", Settings{"ticker_max_lag": "1 ms"}); err != nil {
				t.Fatal(err)
			}
			ticker := newLateTicker(t, db, pool)
			db.Exec(t, "select nextval(queue_event_seq::regclass) from pgque.queue")
			ticker.want(t, "with a number taken", 1)

			late, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer late.Rollback(context.Background())
			table := scalar[string](t, pool, "select queue_data_pfx || '_' || queue_cur_table from pgque.queue")
			if _, err := late.Exec(t.Context(), "insert into "+table+" (ev_id, ev_time, ev_type, ev_data) values (1, now(), 'late', '{}')"); err != nil {
				t.Fatal(err)
			}
			if listed {
				ticker.want(t, "while it is open", 0)
			} else if _, err := ticker.tick(t.Context()); err != nil {
				t.Fatal(err)
			}
			open := ticker.last.late[scalar[int32](t, pool, "select queue_id from pgque.queue")].open
			if (len(open) > 0) != listed {
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

// A queue that cannot be asked keeps no other from being asked and ticked, and is
// named once.
func TestLateFailure(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ does, undoes, says string }{
		"a locked table": {says: "lock timeout"},
		"no right to take a number": {
			does:   "do $$ begin execute (select format('revoke usage, update on sequence %s from public, pgque_admin', queue_event_seq) from pgque.queue where queue_name = 'bad'); end $$",
			undoes: "do $$ begin execute (select format('grant usage on sequence %s to pgque_admin', queue_event_seq) from pgque.queue where queue_name = 'bad'); end $$",
			says:   "permission denied",
		},
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
			var lock pgx.Tx
			if test.does != "" {
				db.Exec(t, test.does)
			}
			for _, tx := range []pgx.Tx{bad, good} {
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if test.does == "" {
				var err error
				if lock, err = admin.Begin(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer lock.Rollback(context.Background())
				table := scalar[string](t, admin, "select queue_data_pfx from pgque.queue where queue_name = 'bad'")
				if _, err := lock.Exec(t.Context(), "lock table "+table); err != nil {
					t.Fatal(err)
				}
			}
			ticker.want(t, "for the good one", 1)
			if lock != nil {
				_ = lock.Rollback(t.Context())
			} else {
				db.Exec(t, test.undoes)
			}
			if n := uncovered(t, admin, "good"); n != 0 {
				t.Errorf("%d events are in no batch", n)
			}
			if got := text.String(); strings.Count(got, "late fails") != 1 || !strings.Contains(got, test.says) || !strings.Contains(got, "queue=bad") {
				t.Errorf("the log says %q", got)
			}
			eventually(t, "the tick for the bad one", func() bool { return ticker.ticks(t) == 1 })
			if n := uncovered(t, admin, "bad"); n != 0 {
				t.Errorf("%d events are in no batch", n)
			}
		})
	}
}

// A start with very many queues does not ask all of them before its first tick.
func TestLateAsksSome(t *testing.T) {
	t.Parallel()
	watches := lateWatches{}
	queues := make([]lookedAt, askAtMost+3)
	for i := range queues {
		queues[i] = lookedAt{ID: int32(i), Sequence: 1, Snapshot: "1:1:"}
	}
	now := time.Now()
	if err := watches.remember(queues, nil, now); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, want := range []int{askAtMost, 3, 0} {
		due := watches.due(snapshot{xmax: 5}, now)
		if len(due) != want {
			t.Fatalf("after %d %d are asked, want %d", asked, len(due), want)
		}
		for _, w := range due {
			w.wasAsked(snapshot{xmax: 5}, now)
		}
		asked += len(due)
	}
	if err := watches.remember(queues[:1], map[int32]quiet{1: {}}, now); err != nil {
		t.Fatal(err)
	}
	if len(watches) != 2 {
		t.Errorf("%d watches are left, want those of a queue that was looked at and of a quiet one", len(watches))
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
