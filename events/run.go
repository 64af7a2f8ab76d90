package events

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// run is one call of Consumer.Run.
//
// Four contexts say who may go on. stop ends when the caller asks for the end;
// work when the grace after that is over. The lease's ends when another process
// may be active; calls of the database use that one, so that what was handled is
// settled although the caller wants to stop. handlers ends with either.
type run struct {
	pool     *pgxpool.Pool
	queue    string
	name     string
	cfg      ConsumerConfig // defaults filled in
	byType   map[string]Handler
	catchAll Handler
	aborting <-chan struct{}

	stop     context.Context
	work     context.Context
	handlers context.Context
	endStop  context.CancelFunc
	endWork  context.CancelCauseFunc
	abandon  chan struct{} // closed when handlers that still run are left behind

	can      capabilities
	lease    *lease
	known    waiting // what is known to wait, so that no look is needed
	unticked bool    // it was said that no ticker runs
	ownBatch int64   // the batch that this run has opened: it is no one else's wreck
	shared   bool    // ownBatch is from before the lease was lost: others may have had it since
	guarded  int64   // the batch that runs under the crash guard, until it is settled
	booked   []int64 // events of it whose bookings are ours, and whose handlers do not run
	overdue  bool    // a handler was still running when the grace was over
	uneven   int     // how many batches more are read by firstUnevenSQL
	single   bool    // Step: errors are returned, not waited out
}

func newRun(ctx context.Context, c *Consumer, cfg ConsumerConfig) (*run, context.CancelFunc) {
	r := &run{pool: c.pool, queue: c.queue, name: c.name, cfg: cfg, aborting: c.aborting,
		byType: map[string]Handler{}, abandon: make(chan struct{})}
	for name, h := range c.handlers {
		r.byType[name] = c.wrapped(h)
	}
	if c.catchAll != nil {
		r.catchAll = c.wrapped(c.catchAll)
	}
	r.stop, r.endStop = context.WithCancel(ctx)
	r.work, r.endWork = context.WithCancelCause(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go r.watch(ended)
	return r, func() { close(ended); r.endStop(); r.endWork(context.Canceled) }
}

// lastMoment is what handlers get after their context has ended, to return.
const lastMoment = 5 * time.Second

// watch ends the handlers' context when the grace is over, or at once on Abort,
// and says when not to wait for them any more.
func (r *run) watch(ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-r.aborting:
		r.abort()
		return
	case <-r.stop.Done():
	}
	for _, step := range []struct {
		after time.Duration
		then  func()
	}{
		{r.cfg.Grace, func() { r.endWork(ErrGraceExceeded) }},
		{lastMoment, func() { close(r.abandon) }},
	} {
		timer := time.NewTimer(step.after)
		defer timer.Stop()
		select {
		case <-ended:
			return
		case <-r.aborting:
			r.abort()
			return
		case <-timer.C:
			step.then()
		}
	}
}

func (r *run) abort() {
	r.endWork(ErrAborted)
	r.endStop()
	close(r.abandon)
}

// loop keeps a session going until the caller stops it. What is wrong at the
// start and will stay so is returned; later it may be mended under a running
// consumer (a grant restored, a schema put back), so it is tried again.
func (r *run) loop() error {
	w := &waker{pool: r.pool, channel: channel(r.queue), poll: r.cfg.Poll, log: r.cfg.Logger, wake: make(chan struct{}, 1)}
	listening, stopListening := context.WithCancel(r.stop)
	stopped := make(chan struct{})
	go func() { defer close(stopped); w.run(listening) }()
	defer func() { stopListening(); <-stopped }()

	started := false
	for failures := 0; r.stop.Err() == nil; {
		began := time.Now()
		err := r.session(w.wake, &started)
		switch {
		case fatal(err):
			return err
		case err == nil || r.stop.Err() != nil:
			continue
		case !started && permanent(err):
			return fmt.Errorf("consumer %q of queue %q: %w", r.name, r.queue, err)
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		failures++
		pause := grow(250*time.Millisecond, 2, 5*time.Second, failures)
		r.failed("consume", err)
		r.cfg.Logger.Error("consuming was interrupted", "err", err, "again_in", pause.Round(time.Millisecond))
		r.dropConnections(err)
		sleep(r.stop, pause)
	}
	return r.ending()
}

// ending is what Run returns once it was asked to stop. A settling that outlasts
// the grace, after handlers that did not, is none of the caller's business.
func (r *run) ending() error {
	err := context.Cause(r.work)
	if errors.Is(err, ErrAborted) || errors.Is(err, ErrGraceExceeded) && r.overdue {
		return err
	}
	return nil
}

// once is loop for Step.
func (r *run) once() (int, error) {
	r.single = true
	if err := r.prepare(); err != nil {
		return 0, fmt.Errorf("consumer %q of queue %q: %w", r.name, r.queue, err)
	}
	l, err := tryLease(r.stop, r.pool, r.leaseKey())
	if err != nil {
		return 0, fmt.Errorf("consumer %q of queue %q: %w", r.name, r.queue, err)
	}
	r.hold(l)
	defer r.lease.release()
	for {
		n, more, err := r.step()
		if n > 0 || !more || err != nil { // an empty batch is passed
			return n, err
		}
	}
}

// session subscribes, becomes the active process and handles batches until it no
// longer is, or the caller stops it.
func (r *run) session(wake <-chan struct{}, started *bool) error {
	if err := r.prepare(); err != nil {
		return err
	}
	active, err := r.standBy(started)
	if err != nil || !active {
		return err
	}
	defer func() {
		r.lease.release()
		r.cfg.Observer.observe(Leased{r.queue, r.name, false})
	}()
	r.cfg.Observer.observe(Leased{r.queue, r.name, true})
	r.cfg.Logger.Info("consuming")
	for failures := 0; r.stop.Err() == nil; {
		_, more, err := r.step()
		switch {
		case r.lease.ctx.Err() != nil && !fatal(err):
			return context.Cause(r.lease.ctx)
		case err != nil && transient(err) && failures < 10:
			failures++ // the batch is as it was; ask again
			sleep(r.stop, grow(5*time.Millisecond, 2, time.Second, failures))
			continue
		case err != nil:
			return err
		}
		failures = 0
		if !more {
			r.wait(wake)
		}
	}
	return nil
}

// fatal errors end Run, whatever else happened.
func fatal(err error) bool {
	return errors.Is(err, crash.Err) || errors.Is(err, ErrAborted) || errors.Is(err, ErrGraceExceeded)
}

// prepare finds out what the login may do and subscribes.
func (r *run) prepare() error {
	can, err := r.capabilities(r.stop)
	if err != nil {
		return err
	}
	if can != r.can && !can.settleAtOnce {
		r.cfg.Logger.Warn("this login has pgque_reader but not pgque_admin: failures are settled one by one, Dead becomes a retry, no crash guard, handing back at shutdown costs an attempt",
			"fix", "grant pgque_admin to "+can.login)
	}
	r.can = can
	_, err = Subscribe(r.stop, r.pool, r.queue, r.name)
	return err
}

func (r *run) leaseKey() int64 { return lockKey("consumer", r.queue, r.name) }

// standBy waits for the lease, and says whether it has it: also when a stop came
// in the same moment, for then it must be given back.
func (r *run) standBy(started *bool) (active bool, err error) {
	for said := false; r.stop.Err() == nil; {
		l, err := tryLease(r.stop, r.pool, r.leaseKey())
		if err == nil {
			*started = true
			r.hold(l)
			return true, nil
		}
		if !errors.Is(err, ErrLeased) {
			return false, err
		}
		*started = true
		if !said {
			r.cfg.Observer.observe(StandingBy{r.queue, r.name})
			r.cfg.Logger.Info("another process is active for this consumer; standing by")
			said = true
		}
		sleep(r.stop, grow(standByEvery, 1, standByEvery*3/2, 1))
	}
	return false, nil
}

func (r *run) hold(l *lease) {
	r.lease, r.known, r.shared = l, waiting{}, true
	l.keep(context.WithoutCancel(r.stop))
	handlers, end := context.WithCancelCause(l.ctx)
	l.forget = context.AfterFunc(r.work, func() {
		cause := context.Cause(r.work)
		end(cause)
		if errors.Is(cause, ErrAborted) {
			l.end(cause) // nothing is settled any more
		}
	})
	r.handlers = handlers
}

// wait pauses until something may have come.
func (r *run) wait(wake <-chan struct{}) {
	timer := time.NewTimer(r.cfg.Poll)
	defer timer.Stop()
	select {
	case <-wake:
	case <-timer.C:
	case <-r.stop.Done():
	case <-r.lease.ctx.Done():
	}
}

// step handles one batch, if there is one. more says that another may be waiting.
func (r *run) step() (n int, more bool, err error) {
	// A batch is not opened under a context that the caller may end: the answer
	// would be lost, and the batch would look like a crash at the next start.
	if !r.known.hasTick {
		if r.known, err = r.look(r.lease.ctx); err != nil {
			return 0, false, err
		}
		r.sayUnticked()
		if r.known.openBatch == nil && !r.known.hasTick {
			return 0, false, nil
		}
	}
	w := r.known
	r.known = waiting{}
	b, err := r.open(r.lease.ctx, w)
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
	r.cfg.Observer.observe(report)
	if b.moreTicks && !report.Stale {
		r.known = waiting{queueID: w.queueID, subID: w.subID, maxRetries: w.maxRetries, hasTick: true}
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
		case errors.Is(context.Cause(r.work), ErrGraceExceeded):
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
