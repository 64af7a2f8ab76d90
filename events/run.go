package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// run is one call of Consumer.Run.
//
// Contexts say who may go on. stop ends when the caller asks for the end; begin
// when no handler may be started any more; work when the grace is over; living with
// Abort. The lease's ends when another process may be active, and with living: what
// was handled is settled by that one, although the caller wants to stop. handlers
// ends with work and with the lease's.
type run struct {
	pool     *pgxpool.Pool
	queue    string
	name     string
	cfg      ConsumerConfig // defaults filled in
	byType   map[string]Handler
	catchAll Handler
	aborting <-chan struct{}

	stop     context.Context
	begin    context.Context
	work     context.Context
	living   context.Context
	handlers context.Context
	endStop  context.CancelFunc
	endBegin context.CancelFunc
	endWork  context.CancelCauseFunc
	die      context.CancelCauseFunc
	abandon  chan struct{} // closed when handlers that still run are left behind

	can      capabilities
	lease    *lease
	known    waiting       // what is known to wait, so that no look is needed
	next     *batch        // opened with the ack of the one before
	unticked bool          // it was said that no ticker runs
	ownBatch int64         // the batch that this run has opened: it is no one else's wreck
	shared   bool          // ownBatch is from before the lease was lost: others may have had it since
	guarded  int64         // the batch that runs under the crash guard, until it is settled
	booked   []int64       // events of it whose bookings are ours; of one the handler may run
	returned chan struct{} // closed when the handlers that were started last have returned; nil before the first
	overdue  bool          // a handler was still running when the grace was over
	careful  int           // how many batches more are read by carefulSQL
	records  []record      // made ahead, for parse
	lastType *string       // that parse has met
	single   bool          // Step: errors are returned, not waited out
	// subscribed is true after the first time.
	subscribed bool
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
	r.living, r.die = context.WithCancelCause(context.WithoutCancel(ctx))
	r.work, r.endWork = context.WithCancelCause(r.living)
	if r.begin, r.endBegin = r.stop, r.endStop; cfg.Key != nil {
		r.begin, r.endBegin = context.WithCancel(r.work)
	}
	ended := make(chan struct{})
	go r.watch(ended)
	return r, func() { close(ended); r.endStop(); r.die(context.Canceled) }
}

// lastMoment is what handlers get after their context has ended, to return.
const lastMoment = 5 * time.Second

// watch ends the handlers' context when the grace is over, or at once on Abort,
// and says when not to wait for them any more. Where keys keep events in order the
// batch goes on for half of the grace: an event that is handed back comes later than
// those that follow it.
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
		{r.cfg.Grace / 2, r.endBegin},
		{r.cfg.Grace - r.cfg.Grace/2, func() { r.endWork(ErrGraceExceeded) }},
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
	select { // a call of the database may still be under way
	case <-ended:
	case <-r.aborting:
		r.abort()
	}
}

func (r *run) abort() {
	r.die(ErrAborted)
	r.endStop()
	select {
	case <-r.abandon:
	default:
		close(r.abandon)
	}
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
		case err == nil:
			continue
		case r.stop.Err() != nil:
			if !errors.Is(err, context.Canceled) {
				r.cfg.Logger.Warn("stopped with a batch that was not settled; it comes again", "err", err)
			}
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
	if err := context.Cause(r.living); err != nil {
		return err
	}
	if r.overdue {
		return context.Cause(r.work)
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
	defer r.letGo()
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
		r.letGo()
		r.cfg.Observer.observe(Leased{r.queue, r.name, false})
	}()
	r.cfg.Observer.observe(Leased{r.queue, r.name, true})
	r.cfg.Logger.Info("consuming")
	for failures := 0; r.stop.Err() == nil || r.next != nil; {
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
	created, err := Subscribe(r.stop, r.pool, r.queue, r.name)
	if err != nil {
		return err
	}
	if created && r.subscribed {
		r.cfg.Logger.Warn("somebody had ended the subscription; subscribed anew, and events sent in between are not delivered")
	}
	r.subscribed = true
	return nil
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
	r.lease, r.known, r.next, r.shared = l, waiting{}, nil, true
	l.keep(r.living)
	handlers, end := context.WithCancelCause(l.ctx)
	l.forget = context.AfterFunc(r.work, func() { end(context.Cause(r.work)) })
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
