package events

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ConsumerConfig is how a consumer works. The zero value is good, and a negative
// number or time as good as zero. What is wrong is found by Run ([ErrInvalid]).
type ConsumerConfig struct {
	// Workers is how many handlers run at once in this process; 1 by default.
	Workers int
	// HandlerTimeout ends a handler's context; 5 minutes by default. The batch
	// waits for the handler all the same, so heed the context.
	HandlerTimeout time.Duration
	// Key gives the events that must stay in order one key; "" means no order.
	// Order holds among first deliveries: an event that comes again, retried or
	// handed back, comes later than those that followed it. So with Key a consumer
	// that is stopped goes on with its batch for half of Grace before it hands the
	// rest back. Without Key, order holds only with one worker that is not stopped.
	// An event for which Key panics has none.
	Key func(*Event) string
	// OnFailure says what becomes of the later events of a failed event's key.
	OnFailure FailurePolicy
	// Unhandled says what becomes of types without a handler.
	Unhandled UnhandledPolicy
	// Backoff is the pause before a failed event's next attempt; attempt is the
	// one that failed, from 1. By default 1 s, 4 s, 16 s, … up to 1 h, each more
	// or less by a quarter; so too where Backoff panics. Less than 0 is 0.
	Backoff func(attempt int) time.Duration
	// Poll is how often to look for a batch when no wake-up comes; 1 s by default.
	Poll time.Duration
	// Grace is how long handlers may go on once Run's context has ended; 20 s by
	// default. Then their contexts end, and one that does not heed that is left behind
	// after 5 s more. So give the process Grace and 5 s to stop, and a moment to settle.
	Grace time.Duration
	// Logger gets what an operator should know; nothing is logged without one.
	Logger *slog.Logger
	// Observer is told of every event ([Handled]), batch ([Settled]), change of the
	// lease ([Leased], [StandingBy]) and failed try ([ConsumerFailed]).
	Observer Observer
}

// FailurePolicy is what happens to later events of a failed event's key.
type FailurePolicy int

const (
	// GoOn handles later events of the key as if nothing had happened (default).
	GoOn FailurePolicy = iota
	// HoldKey sends the later events of the key in the batch back as well, due
	// with the failed one, their attempts unchanged (with pgque_reader alone each
	// costs one). Needs ConsumerConfig.Key.
	HoldKey
)

// UnhandledPolicy is what happens to events whose type nobody handles.
type UnhandledPolicy int

const (
	// UnhandledRetry retries them, and dead-letters them in the end (default): a
	// handler may be missing only until the next deploy.
	UnhandledRetry UnhandledPolicy = iota
	// UnhandledDead makes dead letters of them at once.
	UnhandledDead
	// UnhandledSkip acks them. Right for a consumer that wants a few types only.
	UnhandledSkip
)

// Consumer receives the events of one queue under one consumer name. One process
// at a time is active for a name; others stand by and take over within seconds.
// Parallel work is for Workers; independent work is for consumers of other names.
type Consumer struct {
	pool       *pgxpool.Pool
	queue      string
	name       string
	cfg        ConsumerConfig
	handlers   map[string]Handler
	catchAll   Handler
	middleware []func(Handler) Handler
	invalid    error // of HandleTx, which returns none

	aborting chan struct{} // closed by Abort
	aborted  atomic.Bool
}

// NewConsumer makes a consumer. Give it handlers, then call Run. The name is at
// the same time the subscription's; it may not contain "#" or ".". Run says what is
// wrong with a name or with the configuration. Besides the pool's, a consumer uses two
// connections of its own.
func NewConsumer(pool *pgxpool.Pool, queue, name string, cfg ConsumerConfig) *Consumer {
	return &Consumer{pool: pool, queue: queue, name: name, cfg: cfg, handlers: map[string]Handler{}, aborting: make(chan struct{})}
}

// Handle has h handle the events of one type. Use the function [Handle] for a
// payload with a Go type. It replaces an earlier handler of the type. Call it
// before Run.
func (c *Consumer) Handle(eventType string, h Handler) { c.handlers[eventType] = h }

// HandleAny has h handle every event whose type has no handler of its own, and
// those that were sent without a type. Call it before Run.
func (c *Consumer) HandleAny(h Handler) { c.catchAll = h }

// Use wraps every handler in middleware, the first outermost: tracing, timing,
// logging. Call it before Run.
func (c *Consumer) Use(middleware ...func(Handler) Handler) {
	c.middleware = append(c.middleware, middleware...)
}

// Run subscribes, then receives and handles batches until ctx ends. It then takes
// no new event, lets handlers finish within ConsumerConfig.Grace, settles, hands
// back what was not started and returns nil, or ErrGraceExceeded.
//
// When something is wrong from the beginning that time will not mend it returns
// at once: ErrInvalid, ErrPermission, ErrNotInstalled, ErrQueueNotFound, a login
// that is refused (SQLSTATE class 28), a database that does not exist (3D000).
// Anything else is tried again, with growing pauses: a server that is down or was
// restarted, a failover, a lost lease.
//
// It may be called again once it has returned, unless Abort was called. A second Run
// at the same time stands by, as one in another process does.
func (c *Consumer) Run(ctx context.Context) error {
	r, cancel, err := c.start(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return r.loop()
}

// Step handles one batch, if there is one, and returns the number of its events
// that were read. It is Run for a test, or for a program that works at certain
// times: it does not wait, and an error ends it, such as ErrLeased when the consumer
// is active elsewhere, ErrLeaseLost, or ErrAborted after Abort.
func (c *Consumer) Step(ctx context.Context) (int, error) {
	r, cancel, err := c.start(ctx)
	if err != nil {
		return 0, err
	}
	defer cancel()
	return r.once()
}

// Abort ends Run at once, for a second signal: handlers' contexts end, nothing of
// their batch is settled, and Run returns ErrAborted without waiting for them, but
// for a handler under the crash guard: that gets 5 s to return, so that its event
// does not pay for a crash. The batch comes again at the next start, of another
// Consumer: this one stays aborted.
func (c *Consumer) Abort() {
	if c.aborted.CompareAndSwap(false, true) {
		close(c.aborting)
	}
}

// start checks the configuration and fills in its defaults.
func (c *Consumer) start(ctx context.Context) (*run, context.CancelFunc, error) {
	if c.aborted.Load() {
		return nil, nil, fmt.Errorf("consumer %q of queue %q: %w", c.name, c.queue, ErrAborted)
	}
	if err := c.check(); err != nil {
		return nil, nil, fmt.Errorf("consumer %q of queue %q: %w", c.name, c.queue, err)
	}
	cfg := c.cfg
	cfg.Workers = max(cfg.Workers, 1)
	cfg.HandlerTimeout = orDefault(cfg.HandlerTimeout, 5*time.Minute)
	cfg.Poll = orDefault(cfg.Poll, time.Second)
	cfg.Grace = orDefault(cfg.Grace, 20*time.Second)
	cfg.Logger = loggerOr(cfg.Logger).With("queue", c.queue, "consumer", c.name)
	r, cancel := newRun(ctx, c, cfg)
	return r, cancel, nil
}

func (c *Consumer) check() error {
	if err := checkQueue(c.queue); err != nil {
		return err
	}
	if err := checkConsumer(c.name); err != nil {
		return err
	}
	if c.cfg.OnFailure == HoldKey && c.cfg.Key == nil {
		return fmt.Errorf("OnFailure is HoldKey, but there is no Key: %w", ErrInvalid)
	}
	if len(c.handlers) == 0 && c.catchAll == nil {
		return fmt.Errorf("no handler: %w", ErrInvalid)
	}
	return c.invalid
}

func (c *Consumer) wrapped(h Handler) Handler {
	for i := len(c.middleware) - 1; i >= 0; i-- {
		h = c.middleware[i](h)
	}
	return h
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}
