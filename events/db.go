package events

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How the files of this package are written, so that they stay one thing:
//
//   - Functions that do one job take a DB, so a caller's transaction works.
//     Long-running parts (Consumer, Ticker) take a *pgxpool.Pool.
//   - Every statement is sent with the argument exec (pgx.QueryExecModeExec):
//     one round trip, nothing prepared, right behind any pooler.
//   - Every call has a deadline: withTimeout(ctx, callTimeout), or longer where
//     a batch is read or settled.
//   - Writes of our own go through inTx: READ COMMITTED and READ WRITE by name,
//     whatever the database's defaults are.
//   - Errors leave through wrap, which adds the sentinel of errors.go and keeps
//     the *pgconn.PgError with its SQLSTATE in the chain.
//   - Loops log with a *slog.Logger (quiet unless given; attributes "queue",
//     "consumer", "err"), and tell an Observer what happened.
//
// The exported API, by file:
//
//	event.go       Event, Type, Define, Handler, Handle, IdempotencyKey
//	publish.go     Send, SendBatch, Check, MaxPayload
//	consumer.go    Consumer, ConsumerConfig, NewConsumer: Handle, HandleAny, Use, Run, Step, Abort
//	outcome.go     RetryAfter, Dead, Skip, HandBack, Outcome, PanicError
//	inbox.go       HandleTx, InboxDDL, PurgeInbox
//	ticker.go      Ticker, TickerConfig, NewTicker: Run
//	nudge.go       Nudger
//	admin.go       EnsureQueue, Subscribe, Unsubscribe, Queues, Consumers (functions that take ctx, db)
//	deadletter.go  DeadLetters (an iterator), Replay, ReplayToAll, Purge
//	health.go      Health, Finding

// DB is what a call needs of a database handle. *pgxpool.Pool, *pgxpool.Conn,
// *pgx.Conn and pgx.Tx are all one. Given a pgx.Tx, the call is part of that
// transaction: it is committed, or rolled back, with the caller's own rows.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error)
}

// exec is the first argument of every statement. It asks for one round trip
// without a prepared statement, whatever the pool's own default is, since those
// break behind a pooler in transaction mode.
const exec = pgx.QueryExecModeExec

// inMicroseconds is SQL for a time that is read with time.UnixMicro. With exec results
// come as text, and how a login has a time, an interval or a float8 written is a setting
// of its own (DateStyle, IntervalStyle, extra_float_digits). So read no time as such,
// and a fraction as numeric.
func inMicroseconds(at string) string { return "(extract(epoch from " + at + ") * 1000000)::bigint" }

// callTimeout bounds each database call, so that a connection that went silent
// is noticed. It is far above what any of them needs.
const callTimeout = 15 * time.Second

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer from the database within %s", d))
}

// inTx runs fn in one transaction of its own, or in a savepoint when db is a
// transaction already, and commits when fn returns nil.
func inTx(ctx context.Context, db DB, fn func(tx pgx.Tx) error) error {
	tx, err := begin(ctx, db)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done { // also when fn panics: its connection and locks must not stay behind
			rollback(ctx, tx)
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	done = true
	return tx.Commit(ctx)
}

// opener opens transactions of its own, as all that is a [DB] does but a transaction.
type opener interface {
	BeginTx(context.Context, pgx.TxOptions) (pgx.Tx, error)
}

// begin opens a transaction that is READ COMMITTED and READ WRITE by name: a
// database whose default is repeatable read would otherwise hold a snapshot from
// before the lock it waited for.
func begin(ctx context.Context, db DB) (pgx.Tx, error) {
	if db, ok := db.(opener); ok {
		tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
		return tx, standby(err)
	}
	return db.Begin(ctx)
}

// standby names what a standby says to a BEGIN for writing, which is not the
// 25006 that it says to a write.
func standby(err error) error {
	if sqlState(err) == "0A000" {
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// statement is SQL with its arguments as text.
type statement struct {
	sql    string
	args   []string
	binary bool // the form of the results
	// row gets each row's values, which are overwritten by the next.
	row func(values [][]byte) error
}

func (st statement) values() [][]byte {
	values := make([][]byte, len(st.args))
	for i, arg := range st.args {
		values[i] = []byte(arg)
	}
	return values
}

func (st statement) formats() []int16 {
	if st.binary {
		return []int16{pgx.BinaryFormatCode}
	}
	return nil
}

// oneTrip runs statements in a transaction of their own, with begin and commit in
// the same round trip. When one fails the connection is left in a failed
// transaction, and the pool drops it.
func oneTrip(ctx context.Context, pool *pgxpool.Pool, statements ...statement) error {
	_, err := oneTripAnd(ctx, pool, statements)
	return err
}

// oneTripAnd is oneTrip with statements that come after the commit, in the same
// round trip, which a failure of theirs does not undo.
func oneTripAnd(ctx context.Context, pool *pgxpool.Pool, statements []statement, then ...statement) (committed bool, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	all := slices.Concat([]statement{{sql: "begin isolation level read committed read write"}}, statements, []statement{{sql: "commit"}}, then)
	batch := &pgconn.Batch{}
	for _, st := range all {
		batch.ExecParams(st.sql, st.values(), nil, nil, st.formats())
	}
	results := conn.Conn().PgConn().ExecBatch(ctx, batch)
	var refused error // of a row; the rest is read all the same, to the commit
	for i := 0; results.NextResult() && i < len(all); i++ {
		rows := results.ResultReader()
		for rows.NextRow() {
			if refused == nil && all[i].row != nil {
				refused = all[i].row(rows.Values())
			}
		}
		if tag, err := rows.Close(); i == len(statements)+1 {
			committed = err == nil && tag.String() == "COMMIT"
		}
	}
	if err := results.Close(); err != nil {
		return committed, standby(err)
	}
	if !committed {
		return false, errors.New("the server did not commit")
	}
	return true, refused
}

// rollback ends tx although ctx may be over already.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// lockKey is the number of an advisory lock, made from what it protects.
// Advisory locks are per database, so the database's name is no part of it.
func lockKey(parts ...string) int64 {
	sum := sha256.Sum256([]byte("pgque-vendor\x00" + strings.Join(parts, "\x00")))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// channel is where PgQue announces the ticks of a queue. It goes through
// pgx.Identifier.Sanitize in a LISTEN, since any character may be in it.
func channel(queue string) string { return "pgque_" + queue }

// inUTF8 is true when the server takes our texts for what they are. A connection that
// says it speaks another encoding would have them stored as other characters, without
// an error. Where the server's text is of no encoding, or UTF8, nothing is converted.
const inUTF8 = `(pg_catalog.current_setting('client_encoding') = 'UTF8'
	or pg_catalog.current_setting('client_encoding') = 'SQL_ASCII' and pg_catalog.current_setting('server_encoding') in ('UTF8', 'SQL_ASCII'))`

// loggerOr gives a logger that drops everything when l is nil.
func loggerOr(l *slog.Logger) *slog.Logger {
	if l != nil {
		return l
	}
	return slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.Level(127)}))
}
