package events

import (
	"context"
	"sync"
	"time"
)

// handlerContext is a context with a deadline that is made only when somebody asks
// for more than the deadline. To make one costs more than all else that is done for
// an event whose handler takes no time.
type handlerContext struct {
	parent   context.Context
	deadline time.Time

	mu     sync.Mutex
	made   context.Context // nil until it is needed
	cancel context.CancelFunc
	ended  bool
}

func (c *handlerContext) context() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, c.cancel = context.WithDeadlineCause(c.parent, c.deadline, errHandlerTimeout)
		if c.ended {
			c.cancel()
		}
	}
	return c.made
}

// end cancels it: the handler has returned.
func (c *handlerContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.made != nil {
		c.cancel()
	}
}

func (c *handlerContext) Deadline() (time.Time, bool) {
	if d, ok := c.parent.Deadline(); ok && d.Before(c.deadline) {
		return d, true
	}
	return c.deadline, true
}

func (c *handlerContext) Done() <-chan struct{} { return c.context().Done() }

func (c *handlerContext) Err() error { return c.context().Err() }

// Value makes the context as well: context.Cause finds the cause by it.
func (c *handlerContext) Value(key any) any { return c.context().Value(key) }
