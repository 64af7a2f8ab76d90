package events

import (
	"context"
	"errors"
	"testing"
	"time"
)

// It behaves as the context that it makes late, whenever it is first asked.
func TestHandlerContext(t *testing.T) {
	type key struct{}
	stopped := errors.New("stopped")
	parent, stop := context.WithCancelCause(context.WithValue(t.Context(), key{}, "v"))
	long := func() *handlerContext {
		return &handlerContext{parent: parent, deadline: time.Now().Add(time.Hour)}
	}

	c := long()
	if c.Value(key{}) != "v" || c.Err() != nil {
		t.Errorf("value %v, err %v", c.Value(key{}), c.Err())
	}
	child, cancel := context.WithCancel(c)
	defer cancel()
	c.end()
	<-c.Done()
	<-child.Done()
	if !errors.Is(c.Err(), context.Canceled) {
		t.Errorf("after the handler: %v", c.Err())
	}

	asked := long()
	asked.end()
	if asked.Err() == nil {
		t.Error("first asked after its end, it says that the handler runs")
	}

	over := &handlerContext{parent: parent, deadline: time.Now().Add(-time.Second)}
	if cause := context.Cause(over); !errors.Is(cause, errHandlerTimeout) || !errors.Is(over.Err(), context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v because of %v", over.Err(), cause)
	}
	if d, ok := over.Deadline(); !ok || d != over.deadline {
		t.Errorf("deadline %v", d)
	}
	sooner, cancelSooner := context.WithTimeout(parent, time.Minute)
	defer cancelSooner()
	want, _ := sooner.Deadline()
	if d, _ := (&handlerContext{parent: sooner, deadline: time.Now().Add(time.Hour)}).Deadline(); d != want {
		t.Errorf("deadline %v, its parent's is %v", d, want)
	}

	late := long()
	stop(stopped)
	if cause := context.Cause(late); !errors.Is(cause, stopped) {
		t.Errorf("the parent was stopped, the cause is %v", cause)
	}
}
