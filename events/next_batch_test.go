package events_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
)

// The next batch is opened with the ack of the one before. A stop in that moment
// hands it back, its attempts unchanged, and leaves nothing open.
func TestStopWithTheNextBatchOpen(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	for range 2 {
		publish(t, pool, 3)
		eventstest.Tick(t, pool, queue)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var handled atomic.Int32
	c := handler(pool, events.ConsumerConfig{Observer: func(o events.Observation) {
		if _, ok := o.(events.Settled); ok && ctx.Err() == nil {
			if n := value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null"); n != 1 {
				t.Errorf("%d batches are open after the first ack, want the next", n)
			}
			stop()
		}
	}}, func(context.Context, *events.Event) error { handled.Add(1); return nil })
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := handled.Load(); n != 3 {
		t.Errorf("%d events were handled, want the first batch's 3", n)
	}
	if n := value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null"); n != 0 {
		t.Error("a batch is still open")
	}
	if n := value[int](t, pool, "select count(*) from pgque.retry_queue where ev_retry is null and ev_retry_after <= now()"); n != 3 {
		t.Errorf("%d events were handed back, want 3", n)
	}
}

// An ack does not fail because the next batch cannot be opened.
func TestAckWithoutTheNextBatch(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	for range 2 {
		publish(t, pool, 3)
		eventstest.Tick(t, pool, queue)
	}
	const hide, show = "alter function pgque.next_batch_info(text, text) rename to hidden", "alter function pgque.hidden(text, text) rename to next_batch_info"
	var handled atomic.Int32
	r := start(t, pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error {
		if handled.Add(1) == 3 {
			db.Exec(t, hide)
		}
		return nil
	})
	until(t, "failures to open the second", func() bool { return r.log.count("interrupted") > 0 })
	if n := value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null"); n != 0 {
		t.Error("the first batch is still open")
	}
	db.Exec(t, show)
	until(t, "the second batch", func() bool { return handled.Load() == 6 })
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if n := r.log.count("settling failed"); n != 0 {
		t.Errorf("log:\n%s", r.log)
	}
}

// A process that dies right after the ack has opened the next batch: that one is
// handled one event at a time, and costs no event an attempt.
func TestCrashWithTheNextBatchOpen(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	for range 2 {
		publish(t, pool, 3)
		eventstest.Tick(t, pool, queue)
	}
	var got tally
	h := func(_ context.Context, e *events.Event) error {
		if e.Attempt != 1 {
			t.Errorf("event %d is at attempt %d", e.ID, e.Attempt)
		}
		got.add(e)
		return nil
	}
	if err := handler(pool, events.ConsumerConfig{}, h).Run(eventstest.CrashAt(t.Context(), eventstest.Acked, 1)); err == nil {
		t.Fatal("it did not crash")
	}
	eventstest.Drain(t, pool, queue, handler(pool, events.ConsumerConfig{}, h))
	if _, total := got.count(); total != 6 {
		t.Errorf("%d deliveries, want each event once", total)
	}
	if n := value[int](t, pool, retries); n != 0 {
		t.Errorf("%d retries", n)
	}
}

// Batches of few but large events, one behind the other: the first is read again in
// pieces, the next ones with care from the start, and each event is handled once.
func TestLargeBatchesBehindOneAnother(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	const batches, each = 3, 250 // of 24 MB
	for range batches {
		if _, err := pool.Exec(t.Context(), "select pgque.send_batch('q', 't', array(select '\"' || repeat('x', 100000) || i || '\"' from generate_series(1, $1::int) i))", each); err != nil {
			t.Fatal(err)
		}
		eventstest.Tick(t, pool, queue)
	}
	var mu sync.Mutex
	times := map[int64]int{}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	settled := 0
	c := handler(pool, events.ConsumerConfig{Workers: 2, Observer: func(o events.Observation) {
		if s, ok := o.(events.Settled); ok {
			if settled += s.Events; settled == batches*each {
				stop()
			}
		}
	}}, func(_ context.Context, e *events.Event) error {
		mu.Lock()
		defer mu.Unlock()
		times[e.ID]++
		return nil
	})
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("event %d was handled %d times", id, n)
		}
	}
	if len(times) != batches*each {
		t.Errorf("%d events were handled, want %d", len(times), batches*each)
	}
}
