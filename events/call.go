package events

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// call runs the handler for the event's type.
func (r *run) call(rec *record, began time.Time) (err error) {
	handler := r.byType[rec.Type]
	if handler == nil || rec.typ == nil {
		handler = r.catchAll
	}
	if handler == nil {
		return r.unhandled(rec)
	}
	ctx := &rec.context
	ctx.parent, ctx.deadline = r.handlers, began.Add(r.cfg.HandlerTimeout)
	defer ctx.end()
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: string(debug.Stack())}
		}
	}()
	err = handler(ctx, &rec.Event)
	if err != nil && errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errHandlerTimeout) {
		err = fmt.Errorf("handler did not return within %s: %w", r.cfg.HandlerTimeout, err)
	}
	return err
}

// errHandlerTimeout is the cause of the end of a context after HandlerTimeout.
var errHandlerTimeout = errors.New("the handler's time is over")

func (r *run) unhandled(rec *record) error {
	err := fmt.Errorf("no handler for event type %q", rec.Type)
	switch r.cfg.Unhandled {
	case UnhandledDead:
		return Dead(err)
	case UnhandledSkip:
		return Skip
	}
	return err
}
