package events

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// Handled is observed after each event's handler has returned, and for events
// that none was started for (Outcome handed-back).
type Handled struct {
	Queue, Consumer, Type string
	ID                    int64
	Attempt               int
	Outcome               Outcome
	Err                   error // what the handler returned
	Duration              time.Duration
}

func (Handled) observation() {}

// handling is the work on one batch.
type handling struct {
	run   *run
	batch *batch

	mu      sync.Mutex
	results []result                 // of events that were not done or skipped
	held    map[string]time.Duration // keys of failed events, when they may go on
	failed  atomic.Pointer[error]    // ends the work with nothing settled

	keyPanicked, pausePanicked sync.Once // said
}

// handle reads the batch and runs the handlers. When it returns nil as error,
// every handler has returned and the ending says what becomes of each event.
func (r *run) handle(b *batch) (*ending, error) {
	h := &handling{run: r, batch: b, held: map[string]time.Duration{}}
	guarded := b.reopened && r.can.settleAtOnce
	if guarded {
		if r.guarded != b.id {
			r.guarded, r.booked = b.id, nil
		}
		r.cfg.Logger.Warn("the batch was left open; its events run one at a time, in case one of them kills the process", "batch", b.id)
	}
	end := &ending{restAfter: noRest}
	if guarded {
		end.unbook = r.booked // of an earlier try, which an error ended
	}
	rd := r.read(b)
	stopping := func() bool { return r.begin.Err() != nil && !rd.done && b.seen > 0 && r.can.settleAtOnce }
	for !stopping() {
		records, err := rd.next(r.handlers)
		if err != nil && stopping() && r.lease.ctx.Err() == nil && !errors.Is(err, crash.Err) {
			break
		}
		if err != nil {
			return nil, r.interrupted(err)
		}
		if len(records) == 0 {
			break
		}
		if guarded {
			err = h.oneByOne(records, end)
		} else {
			err = h.all(records)
		}
		r.overdue = r.overdue || errors.Is(context.Cause(r.work), ErrGraceExceeded)
		if err != nil {
			return nil, r.interrupted(err)
		}
	}
	if stopping() {
		end.restAfter = rd.last
	}
	end.results = h.results
	return end, r.refuseToSpend(end)
}

// interrupted gives the reason why the work on a batch ended early, rather than
// the error of whatever call was under way.
func (r *run) interrupted(err error) error {
	if errors.Is(err, crash.Err) {
		return err
	}
	if cause := context.Cause(r.lease.ctx); cause != nil {
		return cause
	}
	return err
}

// errNotHandedBack keeps the batch open at a shutdown.
var errNotHandedBack = errors.New("stopped in the middle of a batch that could not be handed back without spending the last attempt of an event; the batch comes again")

// refuseToSpend guards events that never ran: without pgque_admin handing back
// costs an attempt, and the last one would make a dead letter.
func (r *run) refuseToSpend(end *ending) error {
	if r.can.settleAtOnce {
		return nil
	}
	for _, res := range end.results {
		if res.outcome == OutcomeHandedBack && res.reason == lastAttempt {
			return errNotHandedBack
		}
	}
	return nil
}

// lastAttempt marks a hand-back that nack would turn into a dead letter.
const lastAttempt = "handed back at its last attempt"

// all runs the handlers of the records, several at once, and waits for them.
func (h *handling) all(records []*record) error {
	workers := min(h.run.cfg.Workers, len(records))
	if workers == 1 {
		return h.work(inOrder(records))
	}
	return h.work(h.share(records, workers)...)
}

// inOrder gives the records one after the other, then nil.
func inOrder(records []*record) func() *record {
	return func() (rec *record) {
		if len(records) > 0 {
			rec, records = records[0], records[1:]
		}
		return rec
	}
}

// work runs one worker for each share and waits for them, unless they are to be
// left behind.
func (h *handling) work(shares ...func() *record) error {
	var wg sync.WaitGroup
	wg.Add(len(shares))
	for _, next := range shares {
		go h.worker(next, wg.Done)
	}
	returned := make(chan struct{})
	h.run.returned = returned
	go func() { wg.Wait(); close(returned) }()
	select {
	case <-returned:
		return h.ended()
	case <-h.run.abandon:
		return context.Cause(h.run.work)
	}
}

// worker handles its share. A handler that ends its goroutine (runtime.Goexit, a
// t.FailNow in a test) ends this one; another goes on in its place. Another function of
// the user's that does ends the work on the batch, for what became of its event is
// not known.
func (h *handling) worker(next func() *record, done func()) {
	var current *record
	through := false
	began := time.Now()
	defer func() {
		if current == nil {
			if !through {
				h.failed.CompareAndSwap(nil, &errGoexit)
			}
			done()
			return
		}
		defer func() { // of a finish that does the same
			if !through {
				h.failed.CompareAndSwap(nil, &errGoexit)
				done()
			}
		}()
		h.finish(current, &PanicError{Stack: string(debug.Stack())}, time.Since(began))
		through = true
		go h.worker(next, done)
	}()
	for rec := next(); rec != nil && h.ended() == nil; rec = next() {
		if h.sentBack(rec) {
			began = time.Now()
			continue
		}
		current = rec
		err := h.run.call(rec, began)
		current = nil
		ended := time.Now() // once for each event: the next begins now
		h.finish(rec, err, ended.Sub(began))
		began = ended
	}
	through = true
}

var errGoexit = errors.New("an Observer, a Key, a Backoff or an error's method has called runtime.Goexit, as t.FailNow does: the batch is not settled")

// ended says that the work on the batch must not go on.
func (h *handling) ended() error {
	if failed := h.failed.Load(); failed != nil {
		return *failed
	}
	if h.run.lease.ctx.Err() == nil { // cheaper than its cause, and asked for each event
		return nil
	}
	return context.Cause(h.run.lease.ctx)
}

// sentBack hands an event back that is not to be started: the consumer is
// stopping, or the event's key is held.
func (h *handling) sentBack(rec *record) bool {
	if h.run.begin.Err() != nil {
		h.handBack(rec, 0)
		return true
	}
	delay, held := h.isHeld(h.key(rec))
	if held && (h.run.can.settleAtOnce || !rec.attemptsSpent(h.batch.maxRetries)) {
		h.handBack(rec, delay)
		return true
	}
	return false
}

// finish notes what becomes of an event whose handler has returned.
func (h *handling) finish(rec *record, err error, took time.Duration) {
	r := h.run
	res := h.resultOf(rec, err)
	if err != nil && errors.Is(context.Cause(r.work), ErrGraceExceeded) && res.outcome == OutcomeRetried {
		res.outcome = OutcomeHandedBack // we stopped it; that is no failure of the event
	}
	if res.outcome == OutcomeHandedBack {
		res = h.handedBack(rec, 0)
		h.hold(h.key(rec), 0) // later ones of the key would overtake it
	}
	if res.outcome == OutcomeDead && !r.can.settleAtOnce {
		res.outcome = OutcomeRetried
	}
	if !rec.attemptsSpent(h.batch.maxRetries) && res.outcome == OutcomeRetried && r.can.settleAtOnce {
		res.reason = "" // only a dead letter keeps it
	}
	h.add(res)
	if res.outcome == OutcomeRetried && r.cfg.OnFailure == HoldKey {
		h.hold(h.key(rec), res.delay)
	}
	r.cfg.Observer.observe(Handled{r.queue, r.name, rec.Type, rec.id, rec.attempt, h.shown(rec, res.outcome), err, took})
	if err := crash.At(r.stop, crash.Handled); err != nil {
		h.failed.Store(&err)
	}
}

// shown is the outcome as it will be. Settling itself goes by the queue's
// max_retries of then.
func (h *handling) shown(rec *record, outcome Outcome) Outcome {
	switch {
	case outcome == OutcomeDone || outcome == OutcomeSkipped:
		return outcome
	case h.run.lease.ctx.Err() != nil:
		return OutcomeAborted
	case outcome == OutcomeRetried && rec.attemptsSpent(h.batch.maxRetries):
		return OutcomeDead
	}
	return outcome
}

func (h *handling) add(res result) {
	if res.outcome == OutcomeDone || res.outcome == OutcomeSkipped {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.results = append(h.results, res)
}

func (h *handling) handedBack(rec *record, delay time.Duration) result {
	res := result{id: rec.id, outcome: OutcomeHandedBack, delay: delay}
	if rec.attemptsSpent(h.batch.maxRetries) {
		res.reason = lastAttempt
	}
	return res
}

func (h *handling) handBack(rec *record, delay time.Duration) {
	h.add(h.handedBack(rec, delay))
	r := h.run
	r.cfg.Observer.observe(Handled{r.queue, r.name, rec.Type, rec.id, rec.attempt, OutcomeHandedBack, nil, 0})
}

// oneByOne is all under the crash guard.
func (h *handling) oneByOne(records []*record, end *ending) error {
	for _, rec := range records {
		if h.run.begin.Err() == nil {
			booked, err := h.run.book(h.run.lease.ctx, h.batch, end.unbook, rec)
			if err != nil {
				return err
			}
			end.unbook, h.run.booked = nil, nil
			if !booked {
				continue
			}
			end.unbook = []int64{rec.ID} // once it has run
			h.run.booked = end.unbook
		}
		if err := h.work(inOrder([]*record{rec})); err != nil {
			return err
		}
	}
	return nil
}
