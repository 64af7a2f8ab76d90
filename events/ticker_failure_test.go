package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// B058: a restart, a crash and a long stop of the server; every error has its cause.
func TestTickerSurvivesRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{})
	db := server.Database(t)
	db.Install(t, pgtest.Standin())
	pool := openPool(t, db.URL)
	if _, err := EnsureQueue(t.Context(), pool, "q", nil); err != nil {
		t.Fatal(err)
	}
	log, text := testLogger()
	ticker := NewTicker(pool, TickerConfig{Every: 10 * time.Millisecond, Nudge: 10 * time.Millisecond, Logger: log})
	runTicker(t, ticker)
	ticks := func(when string) {
		t.Helper()
		check := openPool(t, db.URL)
		before := lastTick(t, check, "q")
		sendText(t, check, "q")
		eventually(t, "tick "+when, func() bool { return lastTick(t, check, "q") > before })
		eventually(t, "health "+when, func() bool { return ticker.Health() == nil })
		check.Close()
	}
	ticks("at first")
	server.Restart(t)
	ticks("after a restart")
	server.Kill(t)
	eventually(t, "bad health", func() bool { return ticker.Health() != nil })
	server.Start(t)
	ticks("after a crash")
	if !strings.Contains(text.String(), "tick works again") || !strings.Contains(text.String(), "tick failed") {
		t.Errorf("want a line for the loss and one for the recovery:\n%s", text)
	}
	if n := strings.Count(text.String(), "level=ERROR"); n > 30 {
		t.Errorf("%d lines of errors:\n%s", n, text)
	}
}

// B041: a connection that went silent is given up, and health turns bad meanwhile.
func TestTickerLeavesSilentConnections(t *testing.T) {
	t.Parallel()
	db, _ := tickerDatabase(t, pgtest.Standin(), "q")
	proxy := pgtest.Proxy(t, db.Server.Address())
	ticker := NewTicker(openPool(t, proxy.URL(t, db.URL)), TickerConfig{})
	stop := runTicker(t, ticker)
	eventually(t, "health", func() bool { return ticker.Health() == nil })
	proxy.Silence(pgtest.Both)
	eventually(t, "bad health", func() bool { return ticker.Health() != nil })
	started := time.Now()
	stop() // also the end must not wait for the dead connection
	if d := time.Since(started); d > 10*time.Second {
		t.Errorf("Run took %s to return", d)
	}
}

// Privileges that go while the ticker runs: bad health, no exit, and it goes on
// when they are back.
func TestTickerLosesItsGrant(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin(), "q")
	role := db.Role(t)
	db.Exec(t, "grant pgque_admin to "+role)
	ticker := NewTicker(db.PoolAs(t, role), TickerConfig{Every: 5 * time.Millisecond})
	runTicker(t, ticker)
	eventually(t, "health", func() bool { return ticker.Health() == nil })
	db.Exec(t, "revoke pgque_admin from "+role)
	sendText(t, pool, "q")
	eventually(t, "bad health", func() bool { return errors.Is(ticker.Health(), ErrPermission) })
	before := lastTick(t, pool, "q")
	db.Exec(t, "grant pgque_admin to "+role)
	eventually(t, "tick", func() bool { return lastTick(t, pool, "q") > before })
	eventually(t, "health", func() bool { return ticker.Health() == nil })
}

// A standby cannot be ticked; when it is promoted the ticker goes on.
func TestTickerOnAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{})
	db := server.Database(t)
	db.Install(t, pgtest.Standin())
	if _, err := EnsureQueue(t.Context(), openPool(t, db.URL), "q", nil); err != nil {
		t.Fatal(err)
	}
	standby := server.Standby(t)
	db.Exec(t, "checkpoint") // else the last of what was written may stay in memory for 15 s
	server.CatchUp(t, standby)
	pool := openPool(t, standby.URL(db.Name, ""))
	ticker := NewTicker(pool, TickerConfig{})
	runTicker(t, ticker)
	eventually(t, "bad health", func() bool { return errors.Is(ticker.Health(), ErrReadOnly) })
	standby.Promote(t)
	eventually(t, "health", func() bool { return ticker.Health() == nil })
	before := lastTick(t, pool, "q")
	sendText(t, pool, "q")
	eventually(t, "tick", func() bool { return lastTick(t, pool, "q") > before })
}

// Behind pgbouncer in transaction mode everything but nudges works, said once.
func TestTickerBehindPooler(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := tickerDatabase(t, v, "q")
		db.Exec(t, `update pgque.queue set queue_switch_time = now() - interval '3 hours'`)
		log, text := testLogger()
		ticker := NewTicker(openPool(t, pgtest.Bouncer(t, db, "transaction")), TickerConfig{Every: 10 * time.Millisecond, Nudge: 10 * time.Millisecond, Logger: log})
		runTicker(t, ticker)
		for range 20 {
			before := lastTick(t, pool, "q")
			sendText(t, pool, "q")
			eventually(t, "tick", func() bool { return lastTick(t, pool, "q") > before })
		}
		eventually(t, "rotation", func() bool {
			return scalar[int](t, pool, "select count(*) from pgque.queue where queue_cur_table = 1 and queue_switch_step2 is not null") == 1
		})
		eventually(t, "word of the nudges", func() bool { return strings.Contains(text.String(), "notifications do not arrive") })
		if strings.Contains(text.String(), "level=ERROR") {
			t.Errorf("errors:\n%s", text)
		}
	})
}

func TestNudge(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin(), "q")
	ticker := NewTicker(pool, TickerConfig{Every: time.Hour, Nudge: 10 * time.Millisecond})
	runTicker(t, ticker)
	var nudger Nudger
	nudge := func() {
		t.Helper()
		if err := nudger.Nudge(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "listening", func() bool {
		nudge()
		before := lastTick(t, pool, "q")
		sendText(t, pool, "q")
		time.Sleep(50 * time.Millisecond) // what is not ticked by now was not nudged in time
		return lastTick(t, pool, "q") > before
	})
	// A burst: the nudger drops most nudges, and no event waits for that.
	for range 50 {
		sendText(t, pool, "q")
		nudge()
	}
	eventually(t, "tick of the last event", func() bool { return queueInfo(t, pool, "q").NewEvents == 0 })
	// B031: after the connection is lost it listens again.
	db.Exec(t, `select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%' and datname = current_database()`)
	eventually(t, "listening again", func() bool {
		before := lastTick(t, pool, "q")
		sendText(t, pool, "q")
		nudge()
		time.Sleep(50 * time.Millisecond)
		return lastTick(t, pool, "q") > before
	})
}

// The nudger's limit holds for a whole process, and a nudge in a transaction comes
// with its commit.
func TestNudgerLimit(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	pool := db.Pool(t)
	listener := db.Connect(t)
	if _, err := listener.Exec(t.Context(), `listen "pgque-nudge"`); err != nil {
		t.Fatal(err)
	}
	nudger := Nudger{Gap: time.Hour}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	for range 10 {
		if err := nudger.Nudge(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := listener.WaitForNotification(ctx)
		return err == nil
	}
	if heard(50 * time.Millisecond) {
		t.Error("a nudge before the commit")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !heard(5 * time.Second) {
		t.Error("no nudge at the commit")
	}
	if err := nudger.Nudge(t.Context(), pool); err != nil || heard(50*time.Millisecond) {
		t.Errorf("a second nudge within the gap (%v)", err)
	}
}

// An idle ticker takes no transaction id, although each call of PgQue's own
// ticker() takes one.
func TestIdleTickerWritesNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{Settings: map[string]string{"autovacuum": "off"}})
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) { idle(t, server.Database(t), v) })
}

func idle(t *testing.T, db *pgtest.DB, v pgtest.Variant) {
	db.Install(t, v)
	pool := openPool(t, db.URL)
	for i := range 20 {
		if _, err := EnsureQueue(t.Context(), pool, fmt.Sprint("q", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	db.Exec(t, `select pgque.ticker()`)
	// The last two ticks a minute apart: the next idle tick is a minute away.
	db.Exec(t, `update pgque.tick set tick_time = now() - interval '1 minute' where tick_id = 1`)
	ticker := NewTicker(pool, TickerConfig{Every: 5 * time.Millisecond})
	stop := runTicker(t, ticker)
	defer stop()
	eventually(t, "first maintenance", func() bool {
		ticker.mu.Lock()
		defer ticker.mu.Unlock()
		return !ticker.actions["maintain"].succeeded.IsZero()
	})
	looks := func() time.Time {
		ticker.mu.Lock()
		defer ticker.mu.Unlock()
		return ticker.actions["tick"].succeeded
	}
	xid := func() string { return db.Value(t, `select pg_snapshot_xmax(pg_current_snapshot())`) }
	before := xid()
	for range 50 {
		last := looks()
		eventually(t, "another look", func() bool { return looks() != last })
	}
	if after := xid(); after != before {
		t.Errorf("an idle ticker took transaction ids: the next was %s, now %s", before, after)
	}
}

// The server writes a type's name as settings of the session have it.
func TestQuoteAllIdentifiers(t *testing.T) {
	t.Parallel()
	db, _ := tickerDatabase(t, pgtest.Standin(), "q")
	role := db.Role(t)
	db.Exec(t, "grant pgque_admin to "+role)
	db.Exec(t, "alter role "+role+" set quote_all_identifiers = on")
	pool := db.PoolAs(t, role)
	if err := NewTicker(pool, TickerConfig{Queues: []string{"q"}}).check(t.Context()); err != nil {
		t.Error(err)
	}
	if got := findings(t, pool, HealthConfig{}, Note); strings.Contains(got, CodeMissingGrant) || strings.Contains(got, CodeLimitedConsumer) {
		t.Errorf("for a member of pgque_admin: %s", got)
	}
}

// A name that is no text is a mistake of the caller's, not a failure that passes.
func TestNameNotUTF8(t *testing.T) {
	t.Parallel()
	_, pool := tickerDatabase(t, pgtest.Standin())
	const bad = "\xff"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for name, call := range map[string]func() error{
		"ticker":   func() error { return NewTicker(pool, TickerConfig{Queues: []string{bad}}).Run(ctx) },
		"peek":     func() error { _, err := Peek(ctx, pool, bad, 1); return err },
		"role":     func() error { _, err := Health(ctx, pool, HealthConfig{Role: bad}); return err },
		"replay":   func() error { _, err := Replay(ctx, pool, DeadLetterFilter{Queue: bad}); return err },
		"to all":   func() error { _, err := ReplayToAll(ctx, pool, DeadLetterFilter{Consumer: bad}); return err },
		"purge":    func() error { _, err := Purge(ctx, pool, DeadLetterFilter{Queue: "q", Type: bad}); return err },
		"drop":     func() error { return DropQueue(ctx, pool, bad, false) },
		"no more":  func() error { _, err := Unsubscribe(ctx, pool, "q", bad); return err },
		"consumer": func() error { _, err := Consumers(ctx, pool, bad); return err },
		"read": func() (err error) {
			for _, err = range DeadLetters(ctx, pool, DeadLetterFilter{Type: bad}) {
			}
			return err
		},
	} {
		if err := call(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
