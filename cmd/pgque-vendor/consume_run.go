package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// eventHandler is what consume does with an event.
type eventHandler interface {
	handle(ctx context.Context, e *events.Event) error
	// close ends what still runs once no event is handled any more.
	close()
	// idle says that no event is being handled.
	idle() bool
}

// consumption is one run of consume.
type consumption struct {
	options *consumeOptions
	log     *slog.Logger
	handler eventHandler
	counts  consumeCounts
	shown   *listening

	// The root command's own handling would end the process at once, and leave what
	// COMMAND started behind.
	onSecondSignal *atomic.Pointer[func(os.Signal)]

	ctx  context.Context // ends when no further event is to be started
	stop context.CancelCauseFunc
}

func newConsumption(ctx context.Context, env *environment, o *consumeOptions, shown *listening) *consumption {
	c := &consumption{options: o, log: roleLog(env), shown: shown, onSecondSignal: env.onSecondSignal}
	shown.consumes(o.queue, o.consumer)
	c.ctx, c.stop = context.WithCancelCause(ctx)
	switch {
	case o.print:
		c.handler = &printer{out: env.stream(), giveUp: c.giveUp}
	case o.stream:
		c.handler = newStreams(c.newProgram(env), o, c.log)
	default:
		c.handler = &commandHandler{command: c.newProgram(env), options: o}
	}
	return c
}

// run consumes until the first signal, or until something ends it that is not an
// event's fault.
func (c *consumption) run(pool *pgxpool.Pool) error {
	consumer := events.NewConsumer(pool, c.options.queue, c.options.consumer, c.config())
	if len(c.options.types) == 0 {
		consumer.HandleAny(c.handler.handle)
	}
	for _, t := range c.options.types {
		consumer.Handle(t, c.handler.handle)
	}
	var second atomic.Pointer[errInterrupted]
	abort := func(s os.Signal) {
		second.Store(&errInterrupted{s})
		consumer.Abort()
	}
	c.onSecondSignal.Store(&abort)
	defer c.onSecondSignal.Store(nil)
	err := consumer.Run(c.ctx)
	finished := c.handler.idle()
	c.handler.close()

	var interrupted errInterrupted
	cause := context.Cause(c.ctx)
	switch {
	case second.Load() != nil:
		return *second.Load()
	case cause != nil && !errors.As(cause, &interrupted):
		return cause // what giveUp was told
	case errors.Is(err, events.ErrGraceExceeded) && c.options.print && finished:
		return nil // printing has no grace of its own, and the last line was written
	case errors.Is(err, events.ErrGraceExceeded):
		return fault.New(fault.Usage, "events were still being handled %s after the signal; they come again: %w", c.options.grace, err)
	}
	return err
}

func (c *consumption) config() events.ConsumerConfig {
	o := c.options
	grace := max(o.grace, time.Nanosecond) // 0 would be the library's default
	if o.print {
		grace = time.Millisecond
	}
	return events.ConsumerConfig{
		Workers: o.workers,
		// The limit is the handlers' own: it leaves out the wait for a process that is
		// started anew.
		HandlerTimeout: o.limit + o.grace + time.Minute,
		Unhandled:      otherPolicies[o.other],
		Grace:          grace,
		Logger:         c.log,
		Observer:       c.observe,
	}
}

// giveUp ends consume over something that is not the event's fault, such as a
// COMMAND that is gone. No further event is started, and this one is handed back
// with its attempts unchanged; meanwhile other workers finish theirs.
func (c *consumption) giveUp(_ context.Context, err error) error {
	c.stop(err)
	return events.HandBack(err)
}

// consumeCounts is what became of the events.
type consumeCounts struct {
	done, skipped, retried, dead, handedBack atomic.Int64
	open                                     atomic.Int64 // done or skipped in a batch that was not settled
}

func (n *consumeCounts) String() string {
	text := fmt.Sprintf("%d done, %d skipped, %d to be retried, %d dead letters", n.done.Load(), n.skipped.Load(), n.retried.Load(), n.dead.Load())
	if back := n.handedBack.Load(); back > 0 {
		text += fmt.Sprintf(", %d handed back", back)
	}
	if open := n.open.Load(); open > 0 {
		text += fmt.Sprintf("; %d of these not acked, to come again", open)
	}
	return text
}

// observe counts, and logs each event that failed.
func (c *consumption) observe(o events.Observation) {
	c.shown.observe(o)
	switch o := o.(type) {
	case events.Settled:
		c.counts.open.Store(0)
		c.counts.retried.Add(int64(o.Retried))
		c.counts.dead.Add(int64(o.Dead))
		c.counts.handedBack.Add(int64(o.HandedBack))
	case events.Handled:
		switch o.Outcome {
		case events.OutcomeDone:
			c.counts.done.Add(1)
			c.counts.open.Add(1)
		case events.OutcomeSkipped:
			c.counts.skipped.Add(1)
			c.counts.open.Add(1)
		case events.OutcomeRetried, events.OutcomeDead:
			c.log.Warn("event failed", "event", o.ID, "type", o.Type, "attempt", o.Attempt, "outcome", o.Outcome, "reason", o.Err)
		case events.OutcomeAborted:
			c.log.Warn("event aborted, its batch comes again", "event", o.ID, "type", o.Type, "attempt", o.Attempt, "reason", o.Err)
		}
	}
}
