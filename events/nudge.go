package events

import (
	"context"
	"sync/atomic"
	"time"
)

// nudgeChannel carries nudges. The channels of queues begin with "pgque_", so
// none can be the same.
const nudgeChannel = "pgque-nudge"

// Nudger tells tickers that something was sent, so that they tick at once instead
// of at their next look (TickerConfig.Nudge). It is for events that cannot wait a
// tenth of a second. The zero value is ready; share one in a process.
//
// A NOTIFY makes commits wait for one another, so a Nudger sends at most one in
// its gap: a ticker goes on looking at that gap until it finds nothing new.
type Nudger struct {
	// Gap is the shortest time between two nudges; 10 ms when zero or less. Tickers should
	// have the same or a longer one.
	Gap  time.Duration
	last atomic.Int64 // when the last nudge was sent, in nanoseconds of Unix time
}

// Nudge nudges the tickers, unless that was done within the gap. Call it after
// the commit, or with the transaction that sends the events. It needs no right.
func (n *Nudger) Nudge(ctx context.Context, db DB) error {
	gap := n.Gap
	if gap <= 0 {
		gap = 10 * time.Millisecond
	}
	now, last := time.Now().UnixNano(), n.last.Load()
	if since := now - last; since >= 0 && since < int64(gap) || !n.last.CompareAndSwap(last, now) {
		return nil
	}
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	_, err := db.Exec(ctx, "select pg_notify($1, '')", exec, nudgeChannel)
	return wrap(err, "nudge the tickers")
}
