package events_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
)

// More than 32 MB of events go in several statements, and are all there, in order.
func TestSendBatchOfManyBytes(t *testing.T) {
	t.Parallel()
	db, _ := setUp(t, newest(t))
	var statements atomic.Int32
	pool := newPool(t, db.URL, func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = tracer(func(_ context.Context, sql string) {
			if strings.Contains(sql, "send_batch") {
				statements.Add(1)
			}
		})
	})
	large := append(append([]byte{'"'}, bytes.Repeat([]byte{'x'}, 1<<20-100)...), '"')
	es := make([]events.Event, 40)
	for i := range es {
		es[i] = events.Event{Type: "t", Payload: large}
	}
	ids, err := events.SendBatch(t.Context(), pool, queue, es)
	if err != nil || len(ids) != 40 {
		t.Fatalf("%d ids, %v", len(ids), err)
	}
	for i := 1; i < len(ids); i++ {
		if ids[i] <= ids[i-1] {
			t.Errorf("id %d comes after %d", ids[i], ids[i-1])
		}
	}
	if n := statements.Load(); n != 2 {
		t.Errorf("%d statements, want 2", n)
	}
}
