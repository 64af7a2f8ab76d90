package eventstest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A tick comes whatever the queue's settings say, and leaves them as they are.
func TestTickWhateverTheSettings(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db := pgtest.Database(t)
		db.Install(t, v)
		role := db.Role(t)
		db.Exec(t, "grant pgque_admin to "+role)
		pool := db.PoolAs(t, role)
		for i, settings := range []events.Settings{
			{"ticker_paused": "true"}, {"external_ticker": "true"}, {"ticker_paused": "true", "external_ticker": "true"}, {"ticker_max_lag": "1 hour"},
		} {
			queue := fmt.Sprintf("q%d", i)
			if _, err := events.EnsureQueue(t.Context(), pool, queue, settings); err != nil {
				t.Fatal(err)
			}
			if _, err := events.Subscribe(t.Context(), pool, queue, "c"); err != nil {
				t.Fatal(err)
			}
			if _, err := events.Send(t.Context(), pool, queue, events.Event{Type: "t", Payload: json.RawMessage(`1`)}); err != nil {
				t.Fatal(err)
			}
			c := events.NewConsumer(pool, queue, "c", events.ConsumerConfig{})
			c.HandleAny(func(context.Context, *events.Event) error { return nil })
			if n := eventstest.Drain(t, pool, queue, c); n != 1 {
				t.Errorf("%v: handled %d events, want 1", settings, n)
			}
			after, err := events.EnsureQueue(t.Context(), pool, queue, settings)
			if err != nil || len(after.Changed) > 0 {
				t.Errorf("%v: the tick left %v, %v", settings, after.Changed, err)
			}
		}
	})
}
