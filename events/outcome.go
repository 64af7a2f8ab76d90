package events

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"
)

// Skip is what a handler returns for an event that it leaves alone on purpose.
// The event is done, and counted as skipped. It may be wrapped, but not joined with
// another error, nor in [Dead] or [RetryAfter]: those are failures.
var Skip = errors.New("skip this event")

type retryAfterError struct {
	after time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

// RetryAfter makes err a failure whose next attempt comes after d, instead of
// the usual growing pause. A ticker moves due events about once a second, so no d is
// kept more exactly than that; one below 0 is 0, and there is no limit above.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = fmt.Errorf("retry after %s", d)
	}
	return &retryAfterError{after: max(d, 0), err: err}
}

type deadError struct{ err error }

func (e *deadError) Error() string { return e.err.Error() }
func (e *deadError) Unwrap() error { return e.err }

// Dead makes err a failure that no further attempt can mend: the event becomes
// a dead letter at once, with err's text as its reason. A login that has only
// pgque_reader cannot do that; there the event is retried as for any error.
func Dead(err error) error {
	if err == nil {
		err = errors.New("dead letter")
	}
	return &deadError{err: err}
}

type handBackError struct{ err error }

func (e *handBackError) Error() string { return e.err.Error() }
func (e *handBackError) Unwrap() error { return e.err }

// HandBack is what a handler returns when it could not begin, through no fault of
// the event: the program that it runs is gone, the reader of its output went away.
// The event comes again at once with its attempts unchanged, so end Run's context
// as well, or it comes again and again. A login that has only pgque_reader cannot
// do that; there it costs an attempt, and a batch in which it would cost an
// event's last one stays open instead.
func HandBack(err error) error {
	if err == nil {
		err = errors.New("handed back")
	}
	return &handBackError{err: err}
}

// PanicError is the failure of a handler that panicked, or that ended its
// goroutine with runtime.Goexit. Stack is where it did.
type PanicError struct {
	Value any // nil for Goexit
	Stack string
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "handler called runtime.Goexit\n" + e.Stack
	}
	return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack)
}

// Outcome is what becomes of one event when its batch is settled.
type Outcome string

const (
	OutcomeDone       Outcome = "done"
	OutcomeSkipped    Outcome = "skipped"
	OutcomeRetried    Outcome = "retried"     // it comes again, an attempt spent
	OutcomeDead       Outcome = "dead"        // a dead letter: asked for, or its attempts are spent
	OutcomeHandedBack Outcome = "handed-back" // not begun, or ended with the grace; it comes again with its attempts unchanged
	OutcomeAborted    Outcome = "aborted"     // it failed when nothing was to be settled any more: Abort, or a lost lease; its batch comes again
)

// result is one event's outcome with what settling needs to know.
type result struct {
	id      int64
	outcome Outcome
	delay   time.Duration
	reason  string
}

// resultOf turns what a handler returned into an outcome.
func (h *handling) resultOf(rec *record, err error) result {
	if err == nil { // before all that costs something
		return result{id: rec.id, outcome: OutcomeDone}
	}
	res := failure(err)
	res.id = rec.id
	if res.outcome == OutcomeDead || res.outcome == OutcomeRetried && res.delay == usualDelay {
		res.delay = h.backoff(rec.attempt)
	}
	return res
}

// usualDelay stands for what Backoff says.
const usualDelay = -1

// failure is what an error says of itself, which may have methods that panic.
func failure(err error) (res result) {
	res = result{outcome: OutcomeRetried, delay: usualDelay, reason: reasonOf(err)}
	defer func() { _ = recover() }()
	var after *retryAfterError
	var dead *deadError
	var back *handBackError
	switch {
	case errors.As(err, &back):
		res.outcome = OutcomeHandedBack
	case errors.As(err, &dead):
		res.outcome = OutcomeDead
	case errors.As(err, &after):
		res.delay = after.after
	case isSkip(err):
		res.outcome = OutcomeSkipped
	}
	return res
}

// isSkip is errors.Is, but for errors that hold others beside Skip (errors.Join):
// those are failures.
func isSkip(err error) bool {
	var several interface{ Unwrap() []error }
	return errors.Is(err, Skip) && !errors.As(err, &several)
}

func (h *handling) backoff(attempt int) (pause time.Duration) {
	usual := grow(time.Second, 4, time.Hour, attempt)
	backoff := h.run.cfg.Backoff
	if backoff == nil {
		return usual
	}
	defer func() { // it runs outside the handler's goroutine guard
		if v := recover(); v != nil {
			pause = usual
			h.pausePanicked.Do(func() {
				h.run.cfg.Logger.Error("Backoff panicked: the usual pause is taken", "attempt", attempt, "panic", v)
			})
		}
	}()
	return max(backoff(attempt), 0)
}

// grow gives min times factor for each attempt after the first, at most limit,
// and a random quarter more or less, so that what failed together does not come
// back together.
func grow(shortest time.Duration, factor float64, limit time.Duration, attempt int) time.Duration {
	d := float64(shortest)
	for i := 1; i < attempt && d < float64(limit); i++ {
		d *= factor
	}
	d *= 0.75 + rand.Float64()/2
	return min(max(time.Duration(d), shortest), limit)
}

// maxReason is the most bytes of an error's text that is kept as a reason.
const maxReason = 2000

// reasonOf makes text that PostgreSQL takes from any error, so that no error can
// make its own nack fail.
func reasonOf(err error) string {
	text := errorText(err)
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxReason {
		cut := maxReason
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + " …"
	}
	return text
}

// errorText survives an error whose Error method panics, such as a nil pointer
// in a non-nil error.
func errorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("error of type %T whose Error method panics", err)
		}
	}()
	return err.Error()
}
