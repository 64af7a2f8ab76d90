package events

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The lease makes one process active for a (queue, consumer): PgQue itself gives
// the same batch to everybody who asks. It is a transaction-level advisory lock
// in a transaction that stays open on a connection of its own. That transaction
// has no id and no snapshot, so it holds nothing else up; and as the lock lives
// in a transaction it holds behind a pooler in transaction mode, too.
//
// The server ends the transaction when it has heard nothing for leaseTime, so a
// holder that was stopped or cut off cannot keep the lease. The holder looks
// every probeEvery and gives up, by its own clock, before the server does.
const (
	leaseTime    = 10 * time.Second
	probeEvery   = 2 * time.Second
	probeTimeout = 4 * time.Second
	standByEvery = time.Second
)

type lease struct {
	conn *pgx.Conn
	tx   pgx.Tx
	key  int64
	mark int64 // locked beside the key; nobody else knows it

	ctx  context.Context // ends when the lease is lost or released
	end  context.CancelCauseFunc
	done chan struct{} // closed when the probe has stopped

	forget func() bool // what else is to happen when it goes
}

// tryLease asks once for the lease, on a new connection. It returns ErrLeased
// when another process has it.
func tryLease(ctx context.Context, pool *pgxpool.Pool, key int64) (*lease, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	l := &lease{conn: conn, key: key, mark: lockKey("lease", rand.Text()), done: make(chan struct{})}
	if err := l.lock(ctx); err != nil {
		closeConn(conn)
		return nil, err
	}
	return l, nil
}

func (l *lease) lock(ctx context.Context) error {
	tx, err := begin(ctx, l.conn)
	if err != nil {
		return err
	}
	// Only for this transaction, and before the lock: limits of the role or the
	// database would end it. pg_settings, since older servers lack some of them.
	_, err = tx.Exec(ctx, `select set_config(name, case name when 'idle_in_transaction_session_timeout' then $1 else '0' end, true)
		from pg_catalog.pg_settings
		where name in ('idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout', 'lock_timeout')`,
		exec, fmt.Sprint(leaseTime.Milliseconds()))
	if err != nil {
		return err
	}
	var got bool
	err = tx.QueryRow(ctx, "select pg_catalog.pg_try_advisory_xact_lock($1) and pg_catalog.pg_try_advisory_xact_lock($2)", exec, l.key, l.mark).Scan(&got)
	if err != nil {
		return err
	}
	if !got {
		return ErrLeased
	}
	l.tx = tx
	return nil
}

// keep starts the probe.
func (l *lease) keep(parent context.Context) {
	l.ctx, l.end = context.WithCancelCause(parent)
	go l.probe()
}

func (l *lease) probe() {
	defer close(l.done)
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
		// A process that was stopped for a while finds out by the clock, before
		// it asks a connection that may answer from a buffer.
		if time.Since(last) > leaseTime-probeEvery {
			l.end(ErrLeaseLost)
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), probeTimeout)
		_, err := l.tx.Exec(ctx, "select 1", exec)
		cancel()
		if err != nil {
			l.end(fmt.Errorf("%w: %w", ErrLeaseLost, err))
			return
		}
		last = time.Now()
	}
}

// heldSQL is true while the server has our lock: then nobody gets its mark, given
// as $1, also not for a moment. That costs less than to search pg_locks.
const heldSQL = "not pg_catalog.pg_try_advisory_xact_lock_shared($1::text::bigint)"

func (l *lease) heldArg() string { return strconv.FormatInt(l.mark, 10) }

// held is asked in the transaction that settles a batch: it is false when the
// server no longer has our lock, however sure of it we were a moment ago.
func (l *lease) held(ctx context.Context, tx pgx.Tx) error {
	var held bool
	err := tx.QueryRow(ctx, "select "+heldSQL, exec, l.heldArg()).Scan(&held)
	if err == nil && !held {
		err = ErrLeaseLost
		l.end(err)
	}
	return err
}

// release gives the lease up at once, so that a process standing by takes over.
func (l *lease) release() {
	lost := l.ctx.Err() != nil
	l.forget()
	l.end(context.Canceled)
	<-l.done
	if !lost {
		// Closing alone lets the lock live until the server notices.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.tx.Rollback(ctx)
	}
	closeConn(l.conn)
}

// connect opens a connection outside the pool, which may be as small as one. A call
// on it ends with its context, whatever the pool's connections do to end theirs
// well: nobody answers a call that waits for a notification.
func connect(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	cfg := pool.Config()
	cfg.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	if cfg.BeforeConnect != nil { // it may fetch a fresh password
		if err := cfg.BeforeConnect(ctx, cfg.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, cfg.ConnConfig)
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
