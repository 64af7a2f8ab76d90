package events

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
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
	// Gap is the shortest time between two nudges; 10 ms by default. Tickers should
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

// listenLoop listens for nudges and connects again when the connection is lost.
// Until then the ticker's own period is all that is lost.
func (t *Ticker) listenLoop(ctx context.Context) {
	for ctx.Err() == nil {
		heard, err := t.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		t.done(ctx, "listen", wrap(err, "listen for nudges"))
		if err == nil && !heard {
			t.log.Warn("ticker: nudges do not arrive, as behind a pooler in transaction mode; looking every period only",
				"period", t.config.Every)
			return
		}
		sleepUntil(ctx, time.Now().Add(t.pause("listen", t.config.Every)))
	}
}

// listen passes nudges on until the connection fails. It first asks for a nudge
// itself, through the pool; when that one is not heard it gives up.
func (t *Ticker) listen(ctx context.Context) (heard bool, err error) {
	conn, err := t.listener(ctx)
	if err != nil {
		return false, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	token := rand.Text()
	if err := t.execute(ctx, "select pg_notify($1, $2)", nudgeChannel, token); err != nil {
		return false, err
	}
	const proof, heartbeat = 3 * time.Second, 20 * time.Second
	for wait := proof; ; wait = heartbeat {
		payload, err := waitForNotification(ctx, conn, wait)
		switch {
		case err != nil:
			return heard, err
		case payload == nil && !heard:
			_, _ = conn.Exec(ctx, "unlisten *", exec)
			return false, nil
		case payload == nil:
			if err := ping(ctx, conn); err != nil {
				return heard, err
			}
			continue
		case *payload == token:
			heard = true
			t.done(ctx, "listen", nil)
		}
		select {
		case t.nudged <- struct{}{}:
		default: // one waits already
		}
	}
}

// listener takes a connection out of the pool and listens on it.
func (t *Ticker) listener(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	pooled, err := t.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Hijack()
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{nudgeChannel}.Sanitize(), exec); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

func (t *Ticker) execute(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	_, err := t.pool.Exec(ctx, sql, append([]any{exec}, args...)...)
	return err
}

// waitForNotification returns the payload of the next one, or nil when none came
// in time.
func waitForNotification(ctx context.Context, conn *pgx.Conn, d time.Duration) (*string, error) {
	waiting, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		return &n.Payload, nil
	case waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
		return nil, nil
	}
	return nil, err
}

// ping finds a connection that went silent.
func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return conn.Ping(ctx)
}
