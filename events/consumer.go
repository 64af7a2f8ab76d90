package events

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ConsumerConfig is how a consumer works. The zero value is good.
type ConsumerConfig struct {
	// Workers is how many handlers run at once in this process; 1 by default.
	Workers int
	// HandlerTimeout ends a handler's context; 5 minutes by default.
	HandlerTimeout time.Duration
	// Key gives the events that must stay in order one key; "" means no order.
	// Without it, order holds only with one worker.
	Key func(*Event) string
	// OnFailure says what becomes of the later events of a failed event's key.
	OnFailure FailurePolicy
	// Unhandled says what becomes of types without a handler.
	Unhandled UnhandledPolicy
	// Backoff is the pause before a failed event's next attempt; attempt is the
	// one that failed, from 1. By default 1 s, 4 s, 16 s, … up to 1 h, each more
	// or less by a quarter. PgQue moves due events about once a second.
	Backoff func(attempt int) time.Duration
	// Poll is how often to look for a batch when no wake-up comes; 1 s by default.
	Poll time.Duration
	// Grace is how long handlers may go on once Run's context has ended; 20 s by
	// default. Keep it below the time that the container gets to stop.
	Grace time.Duration
	// Logger gets warnings and errors; nothing is logged without one.
	Logger *slog.Logger
	// Observer is told of every event, batch and change of the lease.
	Observer Observer
}

// FailurePolicy is what happens to later events of a failed event's key.
type FailurePolicy int

const (
	// GoOn handles later events of the key as if nothing had happened (default).
	GoOn FailurePolicy = iota
	// HoldKey sends the later events of the key in the batch back as well, due
	// with the failed one. Needs ConsumerConfig.Key.
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
// at a time is active for a name; others stand by and take over.
type Consumer struct {
	pool     *pgxpool.Pool
	queue    string
	name     string
	cfg      ConsumerConfig
	handlers map[string]Handler
	catchAll Handler
}

// NewConsumer makes a consumer. Give it handlers, then call Run.
func NewConsumer(pool *pgxpool.Pool, queue, name string, cfg ConsumerConfig) *Consumer {
	return &Consumer{pool: pool, queue: queue, name: name, cfg: cfg, handlers: map[string]Handler{}}
}

// Handle has h handle the events of one type. Use the function [Handle] for a
// payload with a Go type. It replaces an earlier handler of the type.
func (c *Consumer) Handle(eventType string, h Handler) { c.handlers[eventType] = h }

// HandleAny has h handle every event whose type has no handler of its own.
func (c *Consumer) HandleAny(h Handler) { c.catchAll = h }

// Run subscribes and consumes until ctx ends.
func (c *Consumer) Run(ctx context.Context) error { return nil }
