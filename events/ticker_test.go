package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// B032: eight tickers as fast as they can, also where the database's default
// isolation is repeatable read: no tick out of order, no event twice, none lost.
func TestEightTickersKeepOrder(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read"} {
		pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
			t.Run(isolation, func(t *testing.T) { hammer(t, v, isolation) })
		})
	}
}

func hammer(t *testing.T, v pgtest.Variant, isolation string) {
	db, pool := tickerDatabase(t, v, "q", "other")
	db.Exec(t, `select pgque.subscribe('q', 'c')`)
	db.Exec(t, fmt.Sprintf(`alter database %s set default_transaction_isolation = '%s'`, pgx.Identifier{db.Name}.Sanitize(), isolation))
	pool.Reset()
	config := TickerConfig{Every: time.Millisecond}
	var stops []func()
	for i := range 8 {
		config.Queues = nil
		if i%2 == 1 { // tickers with other sets of queues must exclude each other too
			config.Queues = []string{"q"}
		}
		stops = append(stops, runTicker(t, NewTicker(db.Pool(t), config)))
	}
	until := time.Now().Add(1500 * time.Millisecond)
	var producers sync.WaitGroup
	var mu sync.Mutex
	sent := map[int64]int{}
	for range 2 {
		producers.Go(func() {
			for time.Now().Before(until) {
				id := scalar[int64](t, pool, "select pgque.send('q', 't', '{}'::jsonb)")
				mu.Lock()
				sent[id] = 0
				mu.Unlock()
			}
		})
	}
	producers.Wait()
	for _, stop := range stops {
		stop()
	}
	db.Exec(t, `select pgque.force_tick('q')`)
	db.Exec(t, `select pgque.ticker()`)
	if n := scalar[int](t, pool, `select count(*) from (
		select tick_event_seq - lag(tick_event_seq) over w as seq,
		       pg_snapshot_xmax(tick_snapshot)::text::bigint - lag(pg_snapshot_xmax(tick_snapshot)::text::bigint) over w as xmax,
		       pg_snapshot_xmin(tick_snapshot)::text::bigint - lag(pg_snapshot_xmin(tick_snapshot)::text::bigint) over w as xmin
		  from pgque.tick window w as (partition by tick_queue order by tick_id)) d
		where seq < 0 or xmax < 0 or xmin < 0`); n > 0 {
		t.Errorf("%d ticks are out of order", n)
	}
	for {
		batch := scalar[*int64](t, pool, "select pgque.next_batch('q', 'c')")
		if batch == nil {
			break
		}
		rows, _ := pool.Query(t.Context(), "select ev_id from pgque.get_batch_events($1)", exec, *batch)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			sent[id]++
		}
		scalar[int](t, pool, "select pgque.finish_batch($1)", *batch)
	}
	ticks := scalar[int](t, pool, "select count(*) from pgque.tick")
	t.Logf("%s: %d sent, %d ticks", isolation, len(sent), ticks)
	if ticks < 20 {
		t.Errorf("only %d ticks", ticks)
	}
	times := map[int]int{}
	for _, n := range sent {
		times[n]++
	}
	if times[1] != len(sent) {
		t.Errorf("%d events by how often they were delivered: %v", len(sent), times)
	}
}

// A queue whose stored state is broken stops only itself, and is named once.
func TestBrokenQueueStopsOnlyItself(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "a", "broken", "z")
		db.Exec(t, `update pgque.tick set tick_snapshot = '4000000000:4000000000:'
			where tick_queue = (select queue_id from pgque.queue where queue_name = 'broken')`)
		log, text := testLogger()
		var mu sync.Mutex
		var failed []TickerFailed
		ticker := NewTicker(pool, TickerConfig{Every: 5 * time.Millisecond, Logger: log, Observer: func(o Observation) {
			if f, ok := o.(TickerFailed); ok {
				mu.Lock()
				failed = append(failed, f)
				mu.Unlock()
			}
		}})
		runTicker(t, ticker)
		for range 5 {
			sendText(t, pool, "broken")
			for _, q := range []string{"a", "z"} {
				before := lastTick(t, pool, q)
				sendText(t, pool, q)
				eventually(t, "tick of "+q, func() bool { return lastTick(t, pool, q) > before })
			}
		}
		if n := strings.Count(text.String(), "queue=broken"); n != 1 {
			t.Errorf("the broken queue is named %d times:\n%s", n, text)
		}
		mu.Lock()
		if len(failed) == 0 || failed[0].Queue != "broken" || failed[0].Action != "tick" {
			t.Errorf("observed %+v", failed)
		}
		mu.Unlock()
		eventually(t, "health", func() bool { return ticker.Health() == nil })
		db.Exec(t, `delete from pgque.tick where tick_snapshot::text = '4000000000:4000000000:'`)
		eventually(t, "recovery", func() bool { return strings.Contains(text.String(), "queue works again") })
	})
}

func TestThousandRetriesDueAtOnce(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q")
		db.Exec(t, `select pgque.subscribe('q', 'c')`)
		db.Exec(t, `select count(pgque.event_retry_raw('q', 'c', now(), i, now(), 1, 't', '{}', null, null, null, null)) from generate_series(1, 1000) i`)
		var moved int
		started := time.Now()
		stop := runTicker(t, NewTicker(pool, TickerConfig{Observer: func(o Observation) {
			if r, ok := o.(Retried); ok {
				moved += r.Events
			}
		}}))
		eventually(t, "all retries moved", func() bool {
			return scalar[int](t, pool, "select count(*) from pgque.retry_queue") == 0
		})
		t.Logf("moved after %s", time.Since(started))
		stop()
		if moved != 1000 {
			t.Errorf("observed %d moved, want 1000", moved)
		}
	})
}

// Retries of a queue that cannot take them back do not keep the others waiting.
func TestRetriesOfABrokenQueue(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "a", "broken")
		pfx := db.Value(t, `select queue_data_pfx from pgque.queue where queue_name = 'broken'`)
		db.Exec(t, `update pgque.queue set queue_data_pfx = 'pgque.gone' where queue_name = 'broken'`)
		for _, q := range []string{"broken", "a"} { // the broken one's are due first
			db.Exec(t, fmt.Sprintf(`select pgque.subscribe('%s', 'c')`, q))
			db.Exec(t, fmt.Sprintf(`select count(pgque.event_retry_raw('%s', 'c', now(), i, now(), 1, 't', '{}', null, null, null, null)) from generate_series(1, 30) i`, q))
		}
		left := func() string {
			return db.Value(t, `select string_agg(queue_name || n, ' ') from (select queue_name, count(*) n from pgque.retry_queue
				join pgque.queue on queue_id = ev_queue group by 1 order by 1) x`)
		}
		log, text := testLogger()
		runTicker(t, NewTicker(pool, TickerConfig{Logger: log}))
		eventually(t, "the others' retries", func() bool { return left() == "broken30" })
		eventually(t, "its name", func() bool { return strings.Contains(text.String(), "queue=broken") })
		if n := strings.Count(text.String(), "queue=broken"); n != 1 {
			t.Errorf("the broken queue is named %d times:\n%s", n, text)
		}
		db.Exec(t, fmt.Sprintf(`update pgque.queue set queue_data_pfx = '%s' where queue_name = 'broken'`, pfx))
		eventually(t, "its own retries", func() bool { return left() == "" })
		if n := scalar[int](t, pool, "select count(*) from "+pfx); n != 30 {
			t.Errorf("%d events came back, want 30", n)
		}
	})
}

// A rotation needs both steps, the second in a transaction of its own. One queue
// that cannot rotate does not keep the others from it.
func TestRotation(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "a", "broken", "z")
		db.Exec(t, `update pgque.queue set queue_switch_time = now() - interval '3 hours'`)
		db.Exec(t, fmt.Sprintf("drop table %s_1", db.Value(t, `select queue_data_pfx from pgque.queue where queue_name = 'broken'`)))
		log, text := testLogger()
		runTicker(t, NewTicker(pool, TickerConfig{Logger: log}))
		eventually(t, "both steps for a and z", func() bool {
			return scalar[int](t, pool, `select count(*) from pgque.queue where queue_cur_table = 1
				and queue_switch_step2 > queue_switch_step1 and queue_name in ('a', 'z')`) == 2
		})
		if !strings.Contains(text.String(), "queue=broken") {
			t.Errorf("the broken queue is not named:\n%s", text)
		}
	})
}

// PgQue's first event is invisible to its ticker; EnsureQueue sees to it.
func TestFirstEventIsNotLate(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q")
		db.Exec(t, `select pgque.ticker()`)
		db.Exec(t, `update pgque.tick set tick_time = tick_time - interval '20 seconds' * (3 - tick_id)`) // 40 s and 20 s old
		before := lastTick(t, pool, "q")
		sendText(t, pool, "q")
		runTicker(t, NewTicker(pool, TickerConfig{Every: 10 * time.Millisecond}))
		eventually(t, "tick", func() bool { return lastTick(t, pool, "q") > before })
	})
}

func TestTickerStartErrors(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin(), "q")
	bare := db.Role(t)
	reader := db.Role(t)
	db.Exec(t, fmt.Sprintf("grant pgque_reader, pgque_writer to %s", reader))
	run := func(pool *pgxpool.Pool, config TickerConfig) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return NewTicker(pool, config).Run(ctx)
	}
	// B058, B059
	for _, role := range []string{bare, reader} {
		err := run(db.PoolAs(t, role), TickerConfig{})
		if !errors.Is(err, ErrPermission) || !strings.Contains(err.Error(), fmt.Sprintf(`grant pgque_admin to "%s"`, role)) {
			t.Errorf("as %s: %v", role, err)
		}
	}
	if err := run(pool, TickerConfig{Queues: []string{"q", "nope"}}); !errors.Is(err, ErrQueueNotFound) || !strings.Contains(err.Error(), `"nope"`) {
		t.Errorf("unknown queue: %v", err)
	}
	if err := run(pgtest.Database(t).Pool(t), TickerConfig{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("empty database: %v", err)
	}
	config, err := pgxpool.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.User = "nobody_of_this_name"
	refused, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	if err := run(refused, TickerConfig{}); sqlState(err) != "28000" {
		t.Errorf("refused login: %v", err)
	}
}

func TestTickerAsAdmin(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q")
		role := db.Role(t)
		db.Exec(t, fmt.Sprintf("grant pgque_admin to %s", role))
		db.Exec(t, `update pgque.queue set queue_switch_time = now() - interval '3 hours'`)
		log, text := testLogger()
		ticker := NewTicker(db.PoolAs(t, role), TickerConfig{Logger: log, MaxLag: 5 * time.Millisecond})
		runTicker(t, ticker)
		eventually(t, "rotation", func() bool {
			return scalar[int](t, pool, `select queue_cur_table from pgque.queue where coalesce(queue_switch_step2, 0) > queue_switch_step1 union all select 0 limit 1`) == 1
		})
		before := lastTick(t, pool, "q")
		sendText(t, pool, "q")
		eventually(t, "tick", func() bool { return lastTick(t, pool, "q") > before })
		eventually(t, "health", func() bool { return ticker.Health() == nil }) // the server has the tick before the ticker knows
		if got := db.Value(t, `select queue_ticker_max_lag from pgque.queue`); got != "00:00:00.005" {
			t.Errorf("ticker_max_lag = %s", got)
		}
		if strings.Contains(text.String(), "level=ERROR") {
			t.Errorf("errors:\n%s", text)
		}
	})
}

func TestTickerWarnsOfLagAndScheduler(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "fine")
		db.Exec(t, `select pgque.create_queue('slow')`)
		db.Exec(t, `update pgque.config set scheduler = 'pg_cron', ticker_job_id = 7`) // B095
		log, text := testLogger()
		ticker := NewTicker(pool, TickerConfig{Logger: log, StandBy: true})
		for range 2 {
			if err := ticker.check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(text.String(), "queue=slow"); n != 1 || strings.Contains(text.String(), "queue=fine") {
			t.Errorf("want one warning, of slow:\n%s", text)
		}
		if n := strings.Count(text.String(), "pg_cron is scheduled"); n != 1 {
			t.Errorf("want one warning of pg_cron:\n%s", text)
		}
		before := lastTick(t, pool, "fine")
		sendText(t, pool, "fine")
		if _, err := ticker.tick(t.Context()); err != nil || lastTick(t, pool, "fine") != before {
			t.Errorf("it ticks although it stands by (%v)", err)
		}
		db.Exec(t, `update pgque.config set scheduler = null, ticker_job_id = null`)
		if err := ticker.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := ticker.tick(t.Context()); err != nil || lastTick(t, pool, "fine") == before {
			t.Errorf("it does not tick after pg_cron went (%v)", err)
		}
	})
}
