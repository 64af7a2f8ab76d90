package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

const (
	latencyRate  = 5 // events per second
	latencyCount = 200
)

// latencies collects the time from just before an event was sent to its handler.
type latencies struct {
	mu  sync.Mutex
	ms  []float64
	all chan struct{}
}

func (l *latencies) add(payload []byte) {
	sent, err := strconv.ParseInt(string(payload), 10, 64)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ms = append(l.ms, float64(time.Now().UnixNano()-sent)/1e6)
	if len(l.ms) == latencyCount {
		close(l.all)
	}
}

func (l *latencies) send(t *testing.T, pool *pgxpool.Pool, after func() error) {
	for range latencyCount {
		data := json.RawMessage(strconv.FormatInt(time.Now().UnixNano(), 10))
		_, err := events.Send(t.Context(), pool, queue, events.Event{Type: "bench.event", Payload: data})
		if err == nil {
			err = after()
		}
		if err != nil {
			t.Error(err)
			return
		}
		time.Sleep(time.Second / latencyRate)
	}
}

func (l *latencies) wait(t *testing.T) (p50, p99 float64) {
	t.Helper()
	select {
	case <-l.all:
	case <-time.After(30 * time.Second):
		t.Errorf("%d of %d events came", len(l.ms), latencyCount)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return quantile(l.ms, 0.5), quantile(l.ms, 0.99)
}

// Three set-ups side by side, each in a database of its own on one server: a
// consumer that listens with ticks every 100 ms, the same nudged, and the loop
// that a team writes by hand.
func TestLatency(t *testing.T) {
	wanted(t)
	pg := server(t)
	var all sync.WaitGroup
	for _, c := range []struct {
		name          string
		ticker        events.TickerConfig
		nudge         bool
		max50, max99  float64
		targets, lags string
	}{
		{name: "latency, ticks every 100 ms", ticker: events.TickerConfig{MaxLag: 50 * time.Millisecond},
			max50: 80, max99: 150, targets: "p50 ≤ 80, p99 ≤ 150 ms", lags: "`ticker_max_lag` 50 ms"},
		{name: "latency, nudged", ticker: events.TickerConfig{MaxLag: 50 * time.Millisecond, Nudge: 10 * time.Millisecond}, nudge: true,
			max50: 15, max99: 1000, targets: "p50 ≤ 15 ms", lags: "`ticker_max_lag` 50 ms"},
	} {
		_, pool := database(t, pg)
		all.Go(func() {
			l := &latencies{all: make(chan struct{})}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			startConsumer(t, ctx, pool, l)
			go func() { _ = events.NewTicker(pool, c.ticker).Run(ctx) }()
			time.Sleep(2 * time.Second) // everything listens
			var nudger events.Nudger
			l.send(t, pool, func() error {
				if c.nudge {
					return nudger.Nudge(ctx, pool)
				}
				return nil
			})
			p50, p99 := l.wait(t)
			row(t, c.name, fmt.Sprintf("p50 %.0f, p99 %.0f ms", p50, p99), c.lags, "", c.targets, p50 <= c.max50 && p99 <= c.max99)
		})
	}
	all.Go(func() { usersLoop(t, pg) })
	all.Wait()
}

func startConsumer(t *testing.T, ctx context.Context, pool *pgxpool.Pool, l *latencies) {
	run(t, pool, "select pgque.subscribe($1, 'ours')", queue)
	c := events.NewConsumer(pool, queue, "ours", events.ConsumerConfig{})
	c.HandleAny(func(_ context.Context, e *events.Event) error { l.add(e.Payload); return nil })
	go func() { _ = c.Run(ctx) }()
}

// usersLoop receives 20, acks and sleeps a second; a ticker calls ticker() every
// 250 ms; the queue has PgQue's defaults.
func usersLoop(t *testing.T, pg *pgtest.Postgres) {
	_, pool := database(t, pg)
	run(t, pool, "select pgque.subscribe($1, 'users')", queue)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go every(ctx, 250*time.Millisecond, func() { _, _ = pool.Exec(ctx, "select pgque.ticker()") })
	l := &latencies{all: make(chan struct{})}
	go every(ctx, time.Second, func() {
		rows, err := pool.Query(ctx, "select batch_id, payload from pgque.receive($1, 'users', 20)", queue)
		if err != nil {
			return
		}
		var batch int64
		for rows.Next() {
			var data []byte
			if rows.Scan(&batch, &data) == nil {
				l.add(data)
			}
		}
		rows.Close()
		if batch > 0 {
			_, _ = pool.Exec(ctx, "select pgque.ack($1)", batch)
		}
	})
	l.send(t, pool, func() error { return nil })
	p50, p99 := l.wait(t)
	row(t, "latency of the loop by hand, ticker every 250 ms", fmt.Sprintf("p50 %.0f, p99 %.0f ms", p50, p99), "`ticker_max_lag` 3 s, the default", "", "to compare", true)
}

func every(ctx context.Context, d time.Duration, f func()) {
	for ctx.Err() == nil {
		f()
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
}
