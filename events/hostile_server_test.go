package events_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// runTicker ticks until the test ends.
func runTicker(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- events.NewTicker(pool, events.TickerConfig{Every: 20 * time.Millisecond, MaxLag: time.Millisecond}).Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("ticker: %v", err)
		}
	})
}

// replicated starts a server with PgQue and a queue, and a standby of it.
func replicated(t *testing.T) (primary, standby *pgtest.Postgres, db *pgtest.DB) {
	t.Helper()
	primary = pgtest.NewServer(t, pgtest.Options{})
	db = primary.Database(t)
	db.Install(t, newest(t))
	if _, err := events.EnsureQueue(t.Context(), db.Pool(t), queue, nil); err != nil {
		t.Fatal(err)
	}
	standby = primary.Standby(t)
	return primary, standby, db
}

// The primary dies and the standby is promoted: ticker and consumer find the new
// primary by themselves (25006 and its relatives), and nothing committed is lost.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary, standby, db := replicated(t)
	both := strings.Replace(db.URL, primary.Address(), primary.Address()+","+standby.Address(), 1) + "&target_session_attrs=read-write"
	if !strings.Contains(db.URL, "?") {
		both = strings.Replace(both, "&", "?", 1)
	}
	pool := newPool(t, both, nil)
	early := newPool(t, standby.URL(db.Name, ""), nil) // a process that was given the standby alone
	runTicker(t, pool)
	var got tally
	h := func(_ context.Context, e *events.Event) error { got.add(e); return nil }
	cfg := events.ConsumerConfig{Poll: 100 * time.Millisecond}
	a := start(t, pool, cfg, h)
	until(t, "start", a.active)
	publish(t, pool, 10)
	until(t, "delivery from the first primary", func() bool { n, _ := got.count(); return n == 10 })
	b := start(t, early, cfg, h)
	until(t, "refusal of the standby", func() bool { return b.log.count(events.ErrReadOnly.Error()) > 0 })
	until(t, "the standby to have all", func() bool {
		return value[int](t, early, "select count(*) from pgque.tick") == value[int](t, pool, "select count(*) from pgque.tick") &&
			value[int](t, early, "select count(*) from pgque.subscription where sub_batch is null and sub_last_tick = (select max(tick_id) from pgque.tick)") == 1
	})
	primary.Kill(t)
	standby.Promote(t)
	promoted := time.Now()
	until(t, "sending to the new primary", func() bool {
		_, err := events.Send(context.Background(), pool, queue, events.Event{Type: "t", Payload: []byte("11")})
		return err == nil
	})
	until(t, "delivery from the new primary", func() bool { n, _ := got.count(); return n == 11 })
	t.Logf("delivered %s after the promotion", time.Since(promoted).Round(100*time.Millisecond))
	until(t, "one of them active, one standing by", func() bool {
		return a.log.count("standing by")+b.log.count("standing by") > 0
	})
	for _, r := range []*running{a, b} {
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

// A pool whose server is a standby by now is emptied, so that its next connections
// find the primary.
func TestStandbyEmptiesThePool(t *testing.T) {
	t.Parallel()
	primary, standby, db := replicated(t)
	there := newPool(t, standby.URL(db.Name, ""), nil)
	until(t, "the queue on the standby", func() bool {
		return value[bool](t, there, "select to_regclass('pgque.queue') is not null") && value[int](t, there, "select count(*) from pgque.queue") == 1
	})
	// What a name in DNS does at a failover: it leads elsewhere from now on.
	var address atomic.Value
	address.Store(standby.Address())
	pool := newPool(t, db.URL, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dial(ctx, network, address.Load().(string))
		}
	})
	var got tally
	r := start(t, pool, events.ConsumerConfig{Poll: 100 * time.Millisecond}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
	until(t, "refusal", func() bool { return r.log.count(events.ErrReadOnly.Error()) > 0 })
	address.Store(primary.Address())
	until(t, "start", r.active)
	publish(t, db.Pool(t), 3)
	eventstest.Tick(t, db.Pool(t), queue)
	until(t, "delivery", func() bool { n, _ := got.count(); return n == 3 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

// Publishers, ticker and consumer under load, in a database whose defaults are
// stricter, with a pool whose connections are retired all the time.
func TestIsolationUnderLoad(t *testing.T) {
	for _, isolation := range []string{"repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			db, direct := setUp(t, newest(t))
			db.Exec(t, fmt.Sprintf("alter database %q set default_transaction_isolation = '%s'", db.Name, isolation))
			pool := newPool(t, db.URL, func(c *pgxpool.Config) { c.MaxConnLifetime, c.MaxConns = 200*time.Millisecond, 12 })
			runTicker(t, pool)
			var got tally
			r := start(t, pool, events.ConsumerConfig{Workers: 3, Backoff: func(int) time.Duration { return 0 }}, func(_ context.Context, e *events.Event) error {
				if got.add(e) == 1 && len(e.Payload) == 3 && e.Payload[2] == '7' {
					return errors.New("once")
				}
				return nil
			})
			var sent atomic.Int64
			var publishers sync.WaitGroup
			until2s := time.Now().Add(2 * time.Second)
			for range 4 {
				publishers.Go(func() {
					for time.Now().Before(until2s) {
						n := sent.Add(1)
						es := []events.Event{{Type: "t", Payload: fmt.Append(nil, n)}}
						if n%5 == 0 {
							es[0].Headers = map[string]string{"a": "b"}
						}
						if _, err := events.SendBatch(context.Background(), pool, queue, es); err != nil {
							t.Errorf("send: %v", err)
							return
						}
					}
				})
			}
			publishers.Wait()
			until(t, "all handled", func() bool { n, _ := got.count(); return int64(n) == sent.Load() })
			until(t, "retries handled", func() bool { return value[int](t, direct, retries) == 0 })
			if err := r.end(); err != nil {
				t.Error(err)
			}
			if n := r.log.count("interrupted"); n > 0 {
				t.Errorf("interrupted %d times:\n%s", n, r.log)
			}
			t.Logf("%d events", sent.Load())
		})
	}
}

// needed fails in CI, and skips elsewhere, without a program that comes with
// PostgreSQL and is as new as the server.
func needed(t *testing.T, program string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("%s: %v", program, err)
	default:
		t.Skipf("%s, so no dump can be restored: %v", program, err)
	}
}

// A dump, restored into another cluster, has ticks from the future. Its queue
// cannot be ticked, and is named with the way out; new queues work beside it.
func TestRestoredElsewhere(t *testing.T) {
	t.Parallel()
	dump, err := exec.LookPath("pg_dump")
	needed(t, "pg_dump", err)
	db, pool := setUp(t, newest(t))
	db.Exec(t, "do $$ begin for i in 1..5000 loop perform pg_current_xact_id(); commit; end loop; end $$") // far on
	publish(t, pool, 3)
	eventstest.Tick(t, pool, queue)
	text, err := exec.Command(dump, "--no-owner", "--no-privileges", "--dbname", db.URL).Output()
	needed(t, "pg_dump", err)
	other := pgtest.NewServer(t, pgtest.Options{})
	restored := other.Database(t)
	restored.Exec(t, "create role pgque_reader; create role pgque_writer; create role pgque_admin") // they belong to the cluster, not to the dump
	psql := exec.Command("psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--dbname", restored.URL)
	psql.Stdin = strings.NewReader(string(text))
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	there := restored.Pool(t)
	if n := value[int](t, there, "select count(*) from pgque.tick where pg_snapshot_xmax(tick_snapshot)::text::bigint > pg_snapshot_xmax(pg_current_snapshot())::text::bigint"); n == 0 {
		t.Fatal("this cluster is further on than the dump's")
	}
	findings, err := events.Health(t.Context(), there, events.HealthConfig{})
	if err != nil {
		t.Fatal(err)
	}
	fix := ""
	for _, f := range findings {
		if f.Code == events.CodeRestored && f.Queue == queue {
			fix, _, _ = strings.Cut(f.Fix, ";")
		}
	}
	if fix == "" {
		t.Fatalf("findings %+v", findings)
	}
	if _, err := events.EnsureQueue(t.Context(), there, "fresh", nil); err != nil {
		t.Fatal(err)
	}
	runTicker(t, there)
	delivers := func(name string) {
		t.Helper()
		var got tally
		c := events.NewConsumer(there, name, consumer, events.ConsumerConfig{Poll: 50 * time.Millisecond})
		c.HandleAny(func(_ context.Context, e *events.Event) error { got.add(e); return nil })
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		until(t, "subscription to "+name, func() bool {
			return value[int](t, there, "select count(*) from pgque.subscription join pgque.queue on queue_id = sub_queue where queue_name = $1", name) == 1
		})
		if _, err := events.Send(t.Context(), there, name, events.Event{Type: "t", Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		until(t, "delivery from "+name, func() bool { n, _ := got.count(); return n == 1 })
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	delivers("fresh")
	if _, err := there.Exec(t.Context(), fix, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", fix, err)
	}
	if _, err := events.EnsureQueue(t.Context(), there, queue, nil); err != nil {
		t.Fatal(err)
	}
	delivers(queue)
}
