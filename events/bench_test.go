package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
)

// BenchmarkConsume measures events per second through a handler that does nothing,
// at two sizes of batch, with the lease held.
func BenchmarkConsume(b *testing.B) {
	for _, size := range []int{500, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			_, pool := setUp(b, newest(b))
			batches := 50_000 / size
			total := batches * size
			for b.Loop() {
				b.StopTimer()
				for range batches {
					if _, err := pool.Exec(b.Context(), "select pgque.send_batch('q', 't', array(select '{\"a\":\"some small payload\"}' from generate_series(1, $1::int)))", size); err != nil {
						b.Fatal(err)
					}
					eventstest.Tick(b, pool, queue)
				}
				n, done := 0, make(chan struct{})
				ctx, cancel := context.WithCancel(b.Context())
				var began time.Time
				c := handler(pool, events.ConsumerConfig{Observer: func(o events.Observation) {
					switch o.(type) {
					case events.Leased:
						if began.IsZero() {
							began = time.Now()
						}
					case events.Settled:
						if n == total {
							n++
							close(done)
						}
					}
				}}, func(context.Context, *events.Event) error { n++; return nil })
				b.StartTimer()
				ended := make(chan error, 1)
				go func() { ended <- c.Run(ctx) }()
				<-done
				b.StopTimer()
				took := time.Since(began)
				cancel()
				<-ended
				// The same by receive and ack, two calls a batch and nothing else:
				// what a client does that watches over nothing.
				for range batches {
					if _, err := pool.Exec(b.Context(), "select pgque.send_batch('q', 't', array(select '{\"a\":\"some small payload\"}' from generate_series(1, $1::int)))", size); err != nil {
						b.Fatal(err)
					}
					eventstest.Tick(b, pool, queue)
				}
				began = time.Now()
				for n := 0; n < total; {
					n += receiveAndAck(b, pool)
				}
				b.ReportMetric(float64(total)/took.Seconds(), "events/s")
				b.ReportMetric(float64(total)/time.Since(began).Seconds(), "plain-events/s")
				b.StartTimer()
			}
		})
	}
}

func receiveAndAck(b *testing.B, pool *pgxpool.Pool) int {
	b.Helper()
	rows, err := pool.Query(b.Context(), "select msg_id, batch_id, type, payload, retry_count, created_at, extra1, extra2, extra3, extra4 from pgque.receive('q', 'c', 2147483647)")
	if err != nil {
		b.Fatal(err)
	}
	var id, batch int64
	var typ, payload, x1, x2, x3, x4 *string
	var retry *int32
	var at time.Time
	n := 0
	if _, err := pgx.ForEachRow(rows, []any{&id, &batch, &typ, &payload, &retry, &at, &x1, &x2, &x3, &x4}, func() error { n++; return nil }); err != nil {
		b.Fatal(err)
	}
	if n > 0 {
		if _, err := pool.Exec(b.Context(), "select pgque.ack($1)", batch); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

// BenchmarkSendBatch compares 1,000 events of one type with the bare call, and
// 1,000 of mixed types with one statement over unnest.
func BenchmarkSendBatch(b *testing.B) {
	_, pool := setUp(b, newest(b))
	payload := json.RawMessage(`{"a":"some small payload","b":12345,"c":[1,2,3]}`)
	for _, types := range []int{1, 3} {
		b.Run(fmt.Sprint(types, "-types"), func(b *testing.B) {
			es := make([]events.Event, 1000)
			for i := range es {
				es[i] = events.Event{Type: fmt.Sprint("t", i%types), Payload: payload}
			}
			for b.Loop() {
				if _, err := events.SendBatch(b.Context(), pool, queue, es); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			if _, err := pool.Exec(b.Context(), "select pgque.send_batch('q', 't', array(select '"+string(payload)+"' from generate_series(1, 1000)))"); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "events/s")
	})
}
