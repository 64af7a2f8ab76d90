package events

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// tickerDatabase is a database with PgQue and queues that tick at once.
func tickerDatabase(t *testing.T, v pgtest.Variant, queues ...string) (*pgtest.DB, *pgxpool.Pool) {
	t.Helper()
	db := pgtest.Database(t)
	db.Install(t, v)
	pool := db.Pool(t)
	for _, q := range queues {
		if _, err := EnsureQueue(t.Context(), pool, q, Settings{"ticker_max_lag": "1 ms"}); err != nil {
			t.Fatal(err)
		}
	}
	return db, pool
}

// runTicker runs a ticker until the test ends or stop is called.
func runTicker(t *testing.T, ticker *Ticker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ticker.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run = %v", err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("Run did not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

// eventually polls until ok, or fails.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const patience = 2 * time.Minute
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

// syncBuffer is a log that tests read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func testLogger() (*slog.Logger, *syncBuffer) {
	b := &syncBuffer{}
	return slog.New(slog.NewTextHandler(b, nil)), b
}

func scalar[T any](t *testing.T, db DB, sql string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(context.Background(), sql, append([]any{exec}, args...)...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func sendText(t *testing.T, db DB, queue string) {
	t.Helper()
	if _, err := db.Exec(context.Background(), "select pgque.send($1, 't', '{}'::jsonb)", exec, queue); err != nil {
		t.Fatal(err)
	}
}

func lastTick(t *testing.T, db DB, queue string) int64 {
	t.Helper()
	return scalar[int64](t, db, `select coalesce(max(tick_id), 0) from pgque.tick join pgque.queue on queue_id = tick_queue where queue_name = $1`, queue)
}
