package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// waker listens on a channel: a consumer for the ticks of its queue, a ticker for
// nudges. It only saves time: they look by themselves as well, so a notification
// that is lost costs at most one look's pause.
type waker struct {
	pool    *pgxpool.Pool
	channel string
	poll    time.Duration // for the log
	log     *slog.Logger
	wake    chan struct{} // holds one wake-up; more at once are the same
}

const (
	heartbeatEvery   = 10 * time.Second // of silence
	heartbeatTimeout = 5 * time.Second
	proofTimeout     = 3 * time.Second
	proofAgain       = 5 * time.Minute
)

// errNotNotified says that this connection does not hear notifications: a pooler
// that changes the session behind it.
var errNotNotified = errors.New("notifications do not arrive on this connection, a pooler may be in between")

// run listens until ctx ends. After each connection is proven it wakes the
// listener once, for what was missed in between.
func (w *waker) run(ctx context.Context) {
	lost, saidPolling := 0, false
	for ctx.Err() == nil {
		err := w.listen(ctx, func() {
			if lost > 0 {
				w.log.Info("listening again", "channel", w.channel)
			}
			lost, saidPolling = 0, false
			w.signal()
		})
		if ctx.Err() != nil {
			return
		}
		pause := proofAgain
		if errors.Is(err, errNotNotified) {
			if !saidPolling {
				w.log.Warn("polling only", "channel", w.channel, "every", w.poll, "err", err)
			}
			saidPolling = true
		} else {
			lost++
			if lost == 1 {
				w.log.Warn("lost the connection that listens; polling meanwhile", "channel", w.channel, "every", w.poll, "err", err)
			}
			pause = grow(200*time.Millisecond, 2, 10*time.Second, lost)
		}
		sleep(ctx, pause)
	}
}

func (w *waker) listen(ctx context.Context, proven func()) error {
	conn, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	proof := "pgque_proof_" + rand.Text()
	if err := w.do(ctx, conn, "listen", proof); err != nil {
		return err
	}
	if err := w.prove(ctx, conn, proof); err != nil {
		_ = w.do(ctx, conn, "unlisten", proof) // a pooler may keep the session behind it
		return err
	}
	// Not before the proof: a session that a pooler keeps would be told of every tick.
	if err := w.do(ctx, conn, "listen", w.channel); err != nil {
		return err
	}
	proven()
	for {
		if err := w.next(ctx, conn); err != nil {
			return err
		}
	}
}

func (w *waker) open(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	return connect(ctx, w.pool)
}

// do listens to a channel, or no longer.
func (w *waker) do(ctx context.Context, conn *pgx.Conn, verb, channel string) error {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, verb+" "+pgx.Identifier{channel}.Sanitize(), exec)
	return err
}

// prove sends a notification from another session and waits for it. Sent from
// the listening connection itself it would come back through any pooler.
func (w *waker) prove(ctx context.Context, conn *pgx.Conn, proof string) error {
	sendCtx, cancel := withTimeout(ctx, callTimeout)
	_, err := w.pool.Exec(sendCtx, "select pg_catalog.pg_notify($1::text, '')", exec, proof)
	cancel()
	if err != nil {
		return err
	}
	waitCtx, cancel := context.WithTimeout(ctx, proofTimeout)
	defer cancel()
	for {
		got, err := conn.WaitForNotification(waitCtx)
		if waitCtx.Err() != nil {
			return errNotNotified
		}
		if err != nil {
			return err
		}
		if got.Channel == proof {
			return nil
		}
	}
}

// next waits for one notification, and checks the connection when none comes.
func (w *waker) next(ctx context.Context, conn *pgx.Conn) error {
	waitCtx, cancel := context.WithTimeout(ctx, heartbeatEvery)
	_, err := conn.WaitForNotification(waitCtx)
	silent := waitCtx.Err() != nil
	cancel()
	if err == nil {
		w.signal()
		return nil
	}
	if ctx.Err() != nil || !silent {
		return err
	}
	beatCtx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	if _, err := conn.Exec(beatCtx, "select 1", exec); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	return nil
}

func (w *waker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// sleep waits, but not beyond ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
