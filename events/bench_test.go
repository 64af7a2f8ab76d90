package events_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
)

// BenchmarkConsume measures events per second through a handler that does nothing,
// at two sizes of batch, with the lease held.
func BenchmarkConsume(b *testing.B) {
	for _, size := range []int{500, 5000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			_, pool := setUp(b, newest(b))
			total := 20 * size
			for b.Loop() {
				b.StopTimer()
				for range 20 {
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
				// The same by hand, with nothing done about the rows: the floor.
				for range 20 {
					if _, err := pool.Exec(b.Context(), "select pgque.send_batch('q', 't', array(select '{\"a\":\"some small payload\"}' from generate_series(1, $1::int)))", size); err != nil {
						b.Fatal(err)
					}
					eventstest.Tick(b, pool, queue)
				}
				began = time.Now()
				for range 20 {
					if _, err := pool.Exec(b.Context(), `with b as materialized (select pgque.next_batch('q', 'c') as id),
						e as materialized (select count(*) from b, lateral pgque.get_batch_events(b.id))
						select pgque.finish_batch(b.id), e.* from b, e`); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(total)/took.Seconds(), "events/s")
				b.ReportMetric(float64(total)/time.Since(began).Seconds(), "floor-events/s")
				b.StartTimer()
			}
		})
	}
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
