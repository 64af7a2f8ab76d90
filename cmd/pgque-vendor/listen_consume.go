package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// freshLook is how old what is seen of the database may be for a consumer to be
// ready: a look is taken every few seconds, and one that fails is said at once.
const freshLook = 45 * time.Second

// consumerReady is the readiness of a consumer: its database answers, and it is
// subscribed there. Who stands by is ready as well: that is its work.
func (l *listening) consumerReady(queue, consumer string) func() (string, error) {
	return func() (string, error) {
		look := l.look.Load()
		switch {
		case look == nil:
			return "", errors.New("the database was not looked at yet")
		case look.Trouble != "":
			return "", errors.New(look.Trouble)
		case time.Since(look.Seen) > freshLook:
			return "", errors.New("the database does not answer in time")
		case !slices.ContainsFunc(look.Consumers, func(c events.ConsumerInfo) bool { return c.Queue == queue && c.Name == consumer }):
			return "", errors.New("not subscribed")
		}
		switch l.state.Load() {
		case stateActive:
			return "active", nil
		case stateInterrupted:
			return "", errors.New("consuming was interrupted and is begun again; the log says why")
		}
		return "standing by", nil
	}
}

// What a consumer is doing, as far as it was seen.
const (
	stateStandBy int32 = iota
	stateActive
	stateInterrupted
)

// consumerLog is log, and sees in it what the event library has no observation of:
// tries to settle that failed, and interruptions. A test holds it to the library's
// words.
func (l *listening) consumerLog(log *slog.Logger, queue, consumer string) *slog.Logger {
	if l == nil {
		return log
	}
	l.metrics.Consumes(queue, consumer)
	return slog.New(&watchedLog{Handler: log.Handler(), saw: func(message string) {
		switch {
		case strings.HasPrefix(message, "settling failed"):
			l.metrics.SettleFailed(queue, consumer)
		case strings.HasPrefix(message, "consuming was interrupted"):
			l.metrics.Interrupted(queue, consumer)
			l.state.Store(stateInterrupted)
		case strings.HasPrefix(message, "another process is active"):
			l.state.Store(stateStandBy)
		}
	}})
}

// watchedLog hands on records, and tells their messages also where they are not
// logged.
type watchedLog struct {
	slog.Handler
	saw func(message string)
}

func (h *watchedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

func (h *watchedLog) Handle(ctx context.Context, r slog.Record) error {
	h.saw(r.Message)
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *watchedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &watchedLog{h.Handler.WithAttrs(attrs), h.saw}
}

func (h *watchedLog) WithGroup(name string) slog.Handler {
	return &watchedLog{h.Handler.WithGroup(name), h.saw}
}
