package events

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// take gives the next batch to handle, or nil. When the consumer is stopping that
// is one that is open already, to be handed back.
func (r *run) take() (*batch, error) {
	if b := r.next; b != nil {
		r.next = nil
		return b, crash.At(r.lease.ctx, crash.Opened)
	}
	// A batch is not opened under a context that ends with the caller's: the answer
	// would be lost, and the batch would look like a crash at the next start.
	if !r.known.hasTick {
		var err error
		if r.known, err = r.look(r.handlers); err != nil {
			return nil, err
		}
		r.sayUnticked()
		if r.known.openBatch == nil && !r.known.hasTick {
			return nil, nil
		}
	}
	w := r.known
	r.known = waiting{}
	return r.open(r.handlers, w)
}

// step handles one batch, if there is one. more says that another may be waiting.
func (r *run) step() (n int, more bool, err error) {
	b, err := r.take()
	if err != nil || b == nil {
		return 0, false, err
	}
	report := Settled{Queue: r.queue, Consumer: r.name, Batch: b.id}
	began := time.Now()
	end, err := r.handle(b)
	if err != nil {
		return b.seen, false, err
	}
	if err := crash.At(r.stop, crash.Settling); err != nil {
		return b.seen, false, err
	}
	err = r.settleUntilDone(b, end, &report)
	report.Events, report.Duration = b.seen, time.Since(began)
	if errors.Is(err, ErrStaleBatch) {
		report = Settled{Queue: r.queue, Consumer: r.name, Batch: b.id, Events: b.seen, Stale: true, Duration: report.Duration}
		r.cfg.Logger.Warn("stale ack: another process has finished the batch; nothing of ours was settled", "batch", b.id, "events", b.seen)
	} else if err != nil {
		return b.seen, false, err
	}
	if r.guarded == b.id {
		r.booked = nil
	}
	r.cfg.Observer.observe(report)
	if b.moreTicks && !report.Stale && r.next == nil {
		r.known = b.waiting()
	}
	if r.single {
		return b.seen, true, err
	}
	return b.seen, true, nil
}

// tickSlack is how much later than the idle period a tick may come.
const tickSlack = 10 * time.Second

// sayUnticked says once that no ticker seems to run, and once that one does
// again: without ticks nothing is ever delivered, and nothing else tells why. A
// ticker makes a tick in each idle period, with some seconds for a slow one.
func (r *run) sayUnticked() {
	late := r.known.unticked > r.known.idlePeriod+tickSlack
	switch {
	case late && !r.unticked:
		r.cfg.Logger.Warn("no tick for a while, so nothing is delivered: is a ticker running?",
			"last tick", r.known.unticked.Round(time.Second).String()+" ago", "fix", "pgque-vendor ticker")
	case r.unticked && !late:
		r.cfg.Logger.Info("the queue is ticked again")
	}
	r.unticked = late
}

// settleUntilDone repeats a settling that failed. The outcomes are known, so the
// handlers need not run again, however long the database is in the way.
func (r *run) settleUntilDone(b *batch, end *ending, report *Settled) error {
	var unanswered *Settled // an earlier try that may have been committed
	for failures := 1; ; failures++ {
		try := *report
		err := r.settle(r.lease.ctx, b, end, &try)
		switch {
		case err == nil:
			*report = try
			return nil
		case errors.Is(err, ErrStaleBatch) || errors.Is(classify(err), ErrStaleBatch):
			if unanswered != nil { // and it was
				*report = *unanswered
				return nil
			}
			if b.seen == 0 && !r.can.settleAtOnce { // receive acks an empty batch
				return nil
			}
			return fmt.Errorf("settle batch %d: %w", b.id, ErrStaleBatch)
		case errors.Is(context.Cause(r.work), ErrGraceExceeded) && r.living.Err() == nil:
			return fmt.Errorf("settle batch %d: %w: %w", b.id, ErrGraceExceeded, err)
		case r.single || errors.Is(err, crash.Err) || r.lease.ctx.Err() != nil:
			if cause := context.Cause(r.lease.ctx); cause != nil && !errors.Is(err, crash.Err) {
				err = cause
			}
			return wrap(err, "settle batch %d", b.id)
		}
		pause := grow(time.Second, 2, time.Minute, failures)
		if transient(err) && failures < 5 {
			pause = grow(10*time.Millisecond, 2, time.Second, failures)
		}
		r.failed("settle", err)
		r.cfg.Logger.Error("settling failed; the outcomes are kept and it is tried again", "batch", b.id, "err", err, "again_in", pause.Round(time.Millisecond))
		r.dropConnections(err)
		if sqlState(err) == "" {
			unanswered = &try
		}
		sleep(r.handlers, pause) // which also the end of the grace ends
	}
}

func (r *run) failed(action string, err error) {
	r.cfg.Observer.observe(ConsumerFailed{Queue: r.queue, Consumer: r.name, Action: action, Err: err})
}

// dropConnections empties the pool when its connections lead to the wrong server
// or to none: after a failover they would answer "read-only" for ever.
func (r *run) dropConnections(err error) {
	if connectionLost(err) {
		r.pool.Reset()
	}
}

// noRest says that every event of the batch was read.
const noRest = math.MaxInt64
