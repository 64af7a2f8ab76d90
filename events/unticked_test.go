package events_test

import (
	"context"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A consumer without a ticker would wait for ever in silence: it says so once,
// and once that ticks are back.
func TestNoTickerIsSaid(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db, pool := setUp(t, v)
		const warning, relief = "no tick for a while", "ticked again"
		r := start(t, pool, events.ConsumerConfig{Poll: 20 * time.Millisecond}, func(context.Context, *events.Event) error { return nil })
		until(t, "consuming", r.active)
		time.Sleep(100 * time.Millisecond) // several looks at a queue that was ticked just now
		if r.log.count(warning) != 0 {
			t.Fatal("a queue that was just made counts as not ticked")
		}
		db.Exec(t, `update pgque.tick set tick_time = tick_time - interval '71 seconds'`)
		until(t, "the warning", func() bool { return r.log.count(warning) == 1 })
		publish(t, pool, 1)
		eventstest.Tick(t, pool, queue)
		until(t, "the relief", func() bool { return r.log.count(relief) == 1 })
		if n := r.log.count(warning); n != 1 {
			t.Errorf("it was said %d times", n)
		}
	})
}
