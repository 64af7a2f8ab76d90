package bench

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
)

func nothing(context.Context, *events.Event) error { return nil }

// A handler that does nothing, under the lease and the crash guard, beside the
// bare receive and ack: what a client does that watches over nothing.
func TestConsume(t *testing.T) {
	wanted(t)
	for _, size := range []int{500, 5000} {
		_, pool := database(t, server(t))
		c := sideBySide(t, pool, size, 50_000/size)
		c.report(t, fmt.Sprintf("consume, %d a tick", size), "bare `receive` + `ack`", 0)
	}
}

func sideBySide(t *testing.T, pool *pgxpool.Pool, size, batches int) comparison {
	t.Helper()
	for _, consumer := range []string{"ours", "bare"} {
		run(t, pool, "select pgque.subscribe($1, $2)", queue, consumer)
	}
	n, filled := size*batches, 0
	taken := map[string]int{}
	next := func(consumer string) { // both consume the same events
		if taken[consumer] == filled {
			fill(t, pool, batches, size, payload)
			filled++
		}
		taken[consumer]++
	}
	ours := func() float64 {
		next("ours")
		return float64(n) / consume(t, pool, "ours", events.ConsumerConfig{}, n, nothing).Seconds()
	}
	bare := func() float64 {
		next("bare")
		return perSecond(t, n, func() error { return receiveAll(t, pool, n) })
	}
	return compare(t, ours, bare)
}

// receiveAll takes n events by receive and ack.
func receiveAll(t *testing.T, pool *pgxpool.Pool, n int) error {
	for got := 0; got < n; {
		// No limit: what receive leaves out, the ack loses.
		rows, err := pool.Query(t.Context(), `select msg_id, batch_id, type, payload, retry_count, created_at, extra1, extra2, extra3, extra4
			from pgque.receive($1, 'bare', 2147483647)`, queue)
		if err != nil {
			return err
		}
		var id, batch int64
		var typ, data, x1, x2, x3, x4 *string
		var retry *int32
		var at time.Time
		before := got
		if _, err := pgx.ForEachRow(rows, []any{&id, &batch, &typ, &data, &retry, &at, &x1, &x2, &x3, &x4}, func() error { got++; return nil }); err != nil {
			return err
		}
		if got == before {
			continue // an empty batch, finished by receive itself
		}
		if _, err := pool.Exec(t.Context(), "select pgque.ack($1)", batch); err != nil {
			return err
		}
	}
	return nil
}

// The cost of an event must not grow with its batch.
func TestCostPerEvent(t *testing.T) {
	wanted(t)
	_, pool := database(t, server(t))
	run(t, pool, "select pgque.subscribe($1, 'flat')", queue)
	var all []string
	var smallest, largest, cheapest float64
	for _, size := range []int{10, 100, 1000, 10_000, 100_000} {
		batches := max(1, min(200, 20_000/size))
		turns := make([]float64, 3)
		for i := range turns {
			fill(t, pool, batches, size, payload)
			took := consume(t, pool, "flat", events.ConsumerConfig{}, batches*size, nothing)
			turns[i] = float64(took.Nanoseconds()) / 1000 / float64(batches*size)
		}
		cost := quantile(turns, 0.5)
		all = append(all, fmt.Sprintf("%.1f", cost))
		if smallest == 0 {
			smallest, cheapest = cost, cost
		}
		largest, cheapest = cost, min(cheapest, cost)
	}
	row(t, "µs per event at 10, 100, 1,000, 10,000, 100,000 a batch", strings.Join(all, ", "), "the cheapest of them",
		fmt.Sprintf("%.2f", largest/cheapest), "the last ≤ 2 × the cheapest", largest <= 2*cheapest)
}

// One batch of 200,000 events of 1 KB, as after an outage of the ticker.
func TestHeap(t *testing.T) {
	wanted(t)
	_, pool := database(t, server(t))
	run(t, pool, "select pgque.subscribe($1, 'large')", queue)
	const n = 200_000
	fill(t, pool, 1, n, `"`+strings.Repeat("x", 1022)+`"`)
	var took time.Duration
	peak := peakHeap(func() {
		took = consume(t, pool, "large", events.ConsumerConfig{Workers: 4}, n, nothing)
	})
	row(t, "200,000 events of 1 KB in one batch", fmt.Sprintf("%.1f MB heap, %.1f s", peak, took.Seconds()), "", "", "< 32 MB", peak < 32)
}

// peakHeap is the most heap in use beyond what there was before, in MB.
func peakHeap(f func()) float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	base, peak, done := m.HeapAlloc, atomic.Uint64{}, make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		var m runtime.MemStats
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				if runtime.ReadMemStats(&m); m.HeapAlloc > base {
					peak.Store(max(peak.Load(), m.HeapAlloc-base))
				}
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return float64(peak.Load()) / (1 << 20)
}
