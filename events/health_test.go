package events

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// healthDatabase is a healthy system: queues q and r of ours, consumer c on q that
// has taken all there was.
func healthDatabase(t *testing.T, v pgtest.Variant) (*pgtest.DB, *pgxpool.Pool) {
	t.Helper()
	db := pgtest.Database(t)
	db.Install(t, v)
	pool := db.Pool(t)
	for _, q := range []string{"q", "r"} {
		if _, err := EnsureQueue(t.Context(), pool, q, nil); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, `select pgque.subscribe('q', 'c')`)
	db.Exec(t, `select pgque.send('q', 't', '{}'::jsonb)`)
	healthTick(t, db)
	db.Exec(t, `select pgque.next_batch('q', 'c')`)
	db.Exec(t, `select pgque.finish_batch(sub_batch) from pgque.subscription where sub_batch is not null`)
	return db, pool
}

func healthTick(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `select pgque.force_tick(queue_name) from pgque.queue`)
	db.Exec(t, `select pgque.ticker()`)
}

// problems are the findings above a note, one a line.
func problems(t *testing.T, db DB, config HealthConfig) string {
	t.Helper()
	return findings(t, db, config, Warning)
}

func findings(t *testing.T, db DB, config HealthConfig, from Severity) string {
	t.Helper()
	found, err := Health(t.Context(), db, config)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range found {
		if f.Text == "" || f.Fix == "" || strings.HasSuffix(f.Text, ".") {
			t.Errorf("finding without a text or a fix, or with a full stop: %+v", f)
		}
		// Memberships are the whole cluster's, so also those of other tests.
		if f.Severity >= from && f.Code != CodeSuperuserOwned {
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%s %s %s %s", f.Severity, f.Code, f.Queue, f.Consumer), " "))
		}
	}
	return strings.Join(lines, "; ")
}

func TestHealthyHasNoFinding(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db := pgtest.Database(t)
		db.Install(t, v)
		pool := db.Pool(t)
		if got := findings(t, pool, HealthConfig{}, Note); got != "" {
			t.Errorf("freshly installed: %s", got)
		}
		db.Exec(t, `select pgque.create_queue('plain')`)
		if got := findings(t, pool, HealthConfig{}, Note); got != "note max-lag plain" {
			t.Errorf("with a queue of PgQue's defaults: %s", got)
		}
		db, pool = healthDatabase(t, v)
		if got := findings(t, pool, HealthConfig{}, Note); got != "" {
			t.Errorf("healthy: %s", got)
		}
		// Idle for long: ticks a minute apart, and events that came just now.
		db.Exec(t, `update pgque.tick set tick_time = now() - interval '20 seconds' - (select max(tick_id) - tick.tick_id from pgque.tick m where m.tick_queue = tick.tick_queue) * interval '1 minute'`)
		db.Exec(t, `update pgque.subscription set sub_active = now() - interval '20 seconds'`)
		db.Exec(t, `select pgque.send('q', 't', '{}'::jsonb)`)
		if got := findings(t, pool, HealthConfig{}, Note); got != "" {
			t.Errorf("idle: %s", got)
		}
		running, runningPool := healthDatabase(t, v)
		running.Exec(t, `select pgque.unsubscribe('q', 'c')`)
		running.Exec(t, `update pgque.queue set queue_switch_time = now() - interval '3 hours'`)
		runTicker(t, NewTicker(runningPool, TickerConfig{}))
		eventually(t, "rotation", func() bool {
			return scalar[int](t, runningPool, "select count(*) from pgque.queue where queue_switch_step2 is null or queue_switch_time < now() - interval '1 hour'") == 0
		})
		if got := findings(t, runningPool, HealthConfig{}, Note); got != "" {
			t.Errorf("running: %s", got)
		}
	})
}

func TestHealthFindings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		do     string // on a healthy system
		config HealthConfig
		want   string
	}{
		{"no ticker", `update pgque.tick set tick_time = tick_time - interval '3 minutes'`, HealthConfig{}, "critical no-tick"},
		{"one queue is not ticked", `update pgque.tick set tick_time = tick_time - interval '3 minutes' where tick_queue = (select queue_id from pgque.queue where queue_name = 'r')`,
			HealthConfig{}, "critical no-tick r"},
		{"no tick at all", `delete from pgque.tick where tick_queue = (select queue_id from pgque.queue where queue_name = 'r');
			update pgque.queue set queue_switch_time = now() - interval '11 seconds'`, HealthConfig{}, "critical no-tick r"},
		{"step 2 forgotten", `update pgque.queue set queue_switch_step2 = null, queue_switch_time = now() - interval '3 minutes' where queue_name = 'q'`,
			HealthConfig{}, "critical step2-overdue q"},
		{"step 2 to come", `update pgque.queue set queue_switch_step2 = null where queue_name = 'q'`, HealthConfig{}, ""},
		{"no maintenance", `update pgque.queue set queue_switch_time = now() - interval '3 hours' where queue_name = 'r'`, HealthConfig{}, "warning rotation-overdue r"},
		{"rotation just due", `update pgque.queue set queue_switch_time = now() - interval '2 hours 1 minute'`, HealthConfig{}, ""},
		{"a consumer pins rotation", `update pgque.queue set queue_switch_time = now() - interval '3 hours', queue_switch_step2 = pg_current_xact_id()::text::bigint where queue_name = 'q';
			update pgque.subscription set sub_active = now() - interval '3 hours'`, HealthConfig{}, "critical rotation-pinned q c"},
		{"ticks out of order", `insert into pgque.tick (tick_queue, tick_id, tick_snapshot, tick_event_seq)
			select tick_queue, max(tick_id) + 1, '1:2:', max(tick_event_seq) from pgque.tick group by tick_queue having tick_queue = (select queue_id from pgque.queue where queue_name = 'q')`,
			HealthConfig{}, "critical tick-order q"},
		{"ticks were out of order", `insert into pgque.tick (tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq)
			select tick_queue, max(tick_id) + 1, now() - interval '61 seconds', '1:2:', max(tick_event_seq) from pgque.tick group by tick_queue having tick_queue = (select queue_id from pgque.queue where queue_name = 'q')`,
			HealthConfig{}, ""},
		{"restored", `update pgque.tick set tick_snapshot = '4000000000:4000000000:', tick_time = now() - interval '1 hour'
			where tick_queue = (select queue_id from pgque.queue where queue_name = 'q')`, HealthConfig{}, "critical restored q"},
		{"a batch is open", `select pgque.send('q', 't', '{}'::jsonb); select pgque.force_tick('q'); select pgque.ticker('q'); select pgque.next_batch('q', 'c');
			update pgque.subscription set sub_active = now() - interval '20 minutes'`, HealthConfig{}, "warning batch-open q c"},
		{"nobody receives", `select pgque.send('q', 't', '{}'::jsonb); select pgque.force_tick('q'); select pgque.ticker('q');
			update pgque.subscription set sub_active = now() - interval '20 minutes';
			update pgque.tick set tick_time = now() - interval '20 minutes' where tick_id = (select sub_last_tick from pgque.subscription)
				and tick_queue = (select sub_queue from pgque.subscription)`, HealthConfig{}, "warning not-receiving q c"},
		{"retries overdue", `select pgque.event_retry_raw('q', 'c', now() - interval '5 minutes', 1, now(), 1, 't', '{}', null, null, null, null)`,
			HealthConfig{}, "critical retry-backlog q"},
		{"retries to come", `select pgque.event_retry_raw('q', 'c', now() + interval '5 minutes', 1, now(), 1, 't', '{}', null, null, null, null)`, HealthConfig{}, ""},
		{"dead letters", `insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, ev_id, ev_time) select sub_queue, sub_consumer, 1, now() from pgque.subscription`,
			HealthConfig{}, "warning dead-letters q c"},
		{"old dead letters", `insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, dl_time, ev_id, ev_time) select sub_queue, sub_consumer, now() - interval '2 hours', 1, now() from pgque.subscription`,
			HealthConfig{}, ""},
		{"lag above the latency asked for", `select pgque.set_queue_config('q', 'ticker_max_lag', '3 s')`, HealthConfig{MaxLatency: time.Second}, "warning max-lag q"},
		{"lag", `select pgque.set_queue_config('q', 'ticker_max_lag', '3 s')`, HealthConfig{}, ""},
		{"pg_cron", `update pgque.config set scheduler = 'pg_cron', ticker_job_id = 1`, HealthConfig{Ticks: true}, "warning other-scheduler"}, // B095
		{"pg_cron alone", `update pgque.config set scheduler = 'pg_cron', ticker_job_id = 1`, HealthConfig{}, ""},
		{"paused", `select pgque.set_queue_config('q', 'ticker_paused', 'true'); update pgque.tick set tick_time = tick_time - interval '1 hour'`, HealthConfig{}, "critical no-tick r"},
	}
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		_, pool := healthDatabase(t, v)
		for _, test := range tests {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			const fresh = `update pgque.tick set tick_time = now(); update pgque.subscription set sub_active = now(); `
			if _, err := tx.Exec(t.Context(), fresh+test.do, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if got := problems(t, tx, test.config); got != test.want {
				t.Errorf("%s: found %q, want %q", test.name, got, test.want)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Loops without a lock that meet only every few minutes are not all well in
// between; and a mishap of an hour ago does not make a new one last longer.
func TestTickOrderWhileItGoesOn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ages   []float64 // of ticks out of order, in seconds
		clears time.Duration
	}{
		{[]float64{0}, time.Minute},
		{[]float64{-5, 3}, time.Minute}, // the clock was set back
		{[]float64{59, 59.1, 59.2}, time.Second},
		{[]float64{60, 60.1}, 0},
		{[]float64{100, 200}, 100 * time.Second},
		{[]float64{200, 300, 310}, 0},
		{[]float64{10, 310}, 590 * time.Second},
		{[]float64{10, 311}, 50 * time.Second},
		{[]float64{10, 11, 3000, 3001}, 50 * time.Second},
	} {
		f := tickOrder("q", test.ages)
		if f.Clears != test.clears || (f.Severity == Critical) != (f.Clears > 0) || f.Age < 0 {
			t.Errorf("%v: %+v, want it to clear in %s", test.ages, f, test.clears)
		}
	}
}

// It works with the least privilege and says what it could not see.
func TestHealthByRole(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := healthDatabase(t, v)
		bare, reader, writer, outsider := db.Role(t), db.Role(t), db.Role(t), db.Role(t, "noinherit")
		db.Exec(t, "grant pgque_reader to "+reader)
		db.Exec(t, "grant pgque_writer to "+writer)
		for role, want := range map[string]string{
			bare:   "warning missing-grant; note not-visible; note not-visible",
			writer: "note not-visible; note not-visible",
			reader: "note limited-consumer",
		} {
			if got := findings(t, db.PoolAs(t, role), HealthConfig{}, Note); got != want {
				t.Errorf("as %s: %q, want %q", role, got, want)
			}
			if got := findings(t, pool, HealthConfig{Role: role}, Note); got != strings.Split(want, "; note not-visible")[0] && !strings.HasPrefix(want, "note not") {
				t.Errorf("for %s: %q", role, got)
			}
		}
		db.Exec(t, `update pgque.tick set tick_time = tick_time - interval '3 minutes'`)
		if got := problems(t, db.PoolAs(t, writer), HealthConfig{}); got != "critical no-tick" {
			t.Errorf("a role that sees little does not see the ticker is gone: %q", got)
		}
		healthTick(t, db)
		db.Exec(t, "grant pgque_admin to "+outsider)
		if got := problems(t, pool, HealthConfig{Role: outsider}); got != "warning missing-grant" {
			t.Errorf("noinherit: %q", got)
		}
		found, err := Health(t.Context(), pool, HealthConfig{})
		if err != nil || len(found) != 1 || found[0].Code != CodeSuperuserOwned || found[0].Severity != Warning {
			t.Errorf("a superuser's install: %+v, %v", found, err)
		}
		if _, err := Health(t.Context(), pool, HealthConfig{Role: "nobody_here"}); !errors.Is(err, ErrInvalid) {
			t.Errorf("unknown role: %v", err)
		}
		if _, err := Health(t.Context(), pgtest.Database(t).Pool(t), HealthConfig{}); !errors.Is(err, ErrNotInstalled) {
			t.Errorf("empty database: %v", err)
		}
	})
}

// The fix of a finding can be pasted.
func TestHealthFixes(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := healthDatabase(t, v)
		odd := `it's "odd"`
		if _, err := EnsureQueue(t.Context(), pool, odd, Settings{"ticker_max_lag": "3 s", "ticker_paused": "true"}); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `update pgque.queue set queue_switch_step2 = null, queue_switch_time = now() - interval '3 minutes' where queue_name = 'q'`)
		for range 2 {
			found, err := Health(t.Context(), pool, HealthConfig{})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if strings.HasPrefix(f.Fix, "select ") {
					db.Exec(t, f.Fix)
				}
			}
		}
		if got := findings(t, pool, HealthConfig{}, Note); got != "" {
			t.Errorf("after the fixes: %s", got)
		}
	})
}

func TestWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		1500 * time.Microsecond: "2ms", 59400 * time.Millisecond: "59s", 61 * time.Second: "1m1s",
		3*time.Hour + 5*time.Minute: "3h5m", 50*time.Hour + time.Minute: "2d2h",
	} {
		if got := words(d); got != want {
			t.Errorf("words(%s) = %q, want %q", d, got, want)
		}
	}
}
