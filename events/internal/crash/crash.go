// Package crash lets a test end a consumer at a named point, as a killed process
// would end there. Outside tests no hook is in the context and At does nothing.
package crash

import (
	"context"
	"errors"
)

// Err is what the consumer's run returns when it was ended at a point.
var Err = errors.New("crashed, as the test asked")

// The points, in the order in which a batch passes them.
const (
	Opened   = "opened"   // the batch is open, nothing was read
	Received = "received" // events were read, no handler ran
	Booked   = "booked"   // the crash guard has booked the next event
	Handled  = "handled"  // one handler has returned
	Settling = "settling" // every handler has returned, nothing was settled
	Settled  = "settled"  // outcomes and ack are written, not committed
	Acked    = "acked"    // the batch is committed
)

// Points are all of them.
var Points = []string{Opened, Received, Booked, Handled, Settling, Settled, Acked}

type key struct{}

// With gives a context in which At asks hook whether to crash.
func With(ctx context.Context, hook func(point string) bool) context.Context {
	return context.WithValue(ctx, key{}, hook)
}

// At returns Err when the test wants the consumer to die here.
func At(ctx context.Context, point string) error {
	if hook, ok := ctx.Value(key{}).(func(string) bool); ok && hook(point) {
		return Err
	}
	return nil
}
