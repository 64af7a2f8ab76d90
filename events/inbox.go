package events

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// InboxDDL creates the table in which [HandleTx] notes what is done. Run it with
// your migrations, in the database that the effects are in, in a schema that is
// in the search_path of the handler's login; that login needs select, insert and
// (to purge) delete on it. Don't put it into schema pgque.
const InboxDDL = `create table if not exists pgque_inbox (
	queue    text not null,
	consumer text not null,
	key      text not null,
	done_at  timestamptz not null default now(),
	primary key (queue, consumer, key)
);
create index if not exists pgque_inbox_done_at on pgque_inbox (done_at);
`

// HandleTx has fn handle the events of type t, with effects in a database that
// happen once although events are delivered at least once. db is a pool: the events
// database's or any other's that has the table of [InboxDDL]. A connection or a
// transaction cannot serve several workers, nor begin anew: with one, Run returns
// ErrInvalid.
//
// Each event gets a transaction: a row of (queue, consumer, key) is inserted, fn
// does its work in tx, and both are committed together. If the row is there, the
// event was done before and fn is not called. The key is the event's type with its
// [IdempotencyKey] header, or else its id with the time when it was sent. When fn
// returns an error, [Skip] among them, everything is rolled back and the error
// counts as any handler's. fn leaves the commit to HandleTx: when it has ended the
// transaction itself, by tx or in SQL, that is an error.
//
// The transaction is READ WRITE, at the isolation level that is db's default
// (default_transaction_isolation). A serialization failure counts as any error: the
// event comes again, an attempt spent. While fn does nothing with tx the server
// keeps the transaction until fn's time is over (idle_in_transaction_session_timeout,
// unless a shorter one was set), so a process that is frozen or cut off does not
// hold the event's row for ever.
//
// An event waits, with its attempts unchanged as with [HandBack], while another
// transaction holds its row for more than some seconds, and while the table is
// missing, is not as InboxDDL makes it or is not the login's to write. The Logger
// is told of a table that cannot be used, every few seconds.
//
// Effects outside tx (an e-mail, a request) are not part of it.
func HandleTx[T any](c *Consumer, db DB, t Type[T], fn func(ctx context.Context, tx pgx.Tx, e *Event, payload T) error) {
	if err := beginsAnew(db); err != nil {
		c.invalid = fmt.Errorf("HandleTx of event type %q: %w", t.name, err)
	}
	Handle(c, t, func(ctx context.Context, e *Event, payload T) error {
		var notNoted error
		err := inTx(ctx, ownDefaults{db}, func(tx pgx.Tx) error {
			var first bool
			if first, notNoted = note(ctx, tx, e); !first {
				return notNoted
			}
			given := &givenTx{Tx: tx}
			if err := fn(ctx, given, e, payload); err != nil {
				return err
			}
			return given.stillOpen()
		})
		if notNoted != nil {
			return c.unnoted(ctx, e, notNoted)
		}
		return err
	})
}

// beginsAnew refuses what has one transaction at a time, and is of no use once its
// connection is lost.
func beginsAnew(db DB) error {
	switch db.(type) {
	case nil, pgx.Tx, *pgx.Conn, *pgxpool.Conn:
		return fmt.Errorf("a %T cannot give each event a transaction of its own, use a *pgxpool.Pool: %w", db, ErrInvalid)
	}
	return nil
}

// ownDefaults begins transactions at the isolation level that the database's owner
// chose: what is done in them is the handler's, not ours.
type ownDefaults struct{ DB }

func (db ownDefaults) Begin(ctx context.Context) (pgx.Tx, error) {
	if db, ok := db.DB.(opener); ok {
		tx, err := db.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadWrite})
		return tx, standby(err)
	}
	return db.DB.Begin(ctx)
}

// givenTx is the transaction as the handler gets it, which it should not end.
type givenTx struct {
	pgx.Tx
	ended bool
}

func (tx *givenTx) Commit(ctx context.Context) error {
	tx.ended = true
	return tx.Tx.Commit(ctx)
}

func (tx *givenTx) Rollback(ctx context.Context) error {
	tx.ended = true
	return tx.Tx.Rollback(ctx)
}

// stillOpen is asked before the commit: one that finds no transaction is no error
// to PostgreSQL. The connection is not looked at when it may be another's by now.
func (tx *givenTx) stillOpen() error {
	if tx.ended || tx.Conn().PgConn().TxStatus() == 'I' {
		return errors.New("the handler ended the transaction of HandleTx itself; return nil to commit it, an error to roll it back")
	}
	return nil
}

// inboxWait is how long an event waits for the transaction that holds its row, and
// for a table that cannot be used, before it is handed back.
const inboxWait = 5 * time.Second

// unnoted hands an event back that could not be noted, where that is no fault of its
// own: if it cost attempts, all events would soon be dead letters.
func (c *Consumer) unnoted(ctx context.Context, e *Event, err error) error {
	var unusable *inboxUnusable
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, context.DeadlineExceeded), sqlState(err) == "57014", transient(err): // our limit, statement_timeout, lock_timeout
		return HandBack(fmt.Errorf("table pgque_inbox does not take the event's row, another transaction may hold it: %w", err))
	case errors.As(err, &unusable):
		loggerOr(c.cfg.Logger).Error("events wait until their inbox can be used", "queue", c.queue, "consumer", c.name, "event", e.ID, "err", err)
		sleep(ctx, inboxWait)
		return HandBack(err)
	}
	return err
}

// noteSQL inserts the event's row, and bounds how long the transaction may be idle.
// The conflict is named, so that a table with another key, or none, fails instead of
// taking one event for another.
const noteSQL = `insert into pgque_inbox (queue, consumer, key) values ($1::text, $2::text,
	case when pg_catalog.set_config('idle_in_transaction_session_timeout', case
		when pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval between '1 ms' and $4::text::interval
		then pg_catalog.current_setting('idle_in_transaction_session_timeout') else $4::text end, true) is not null then $3::text end)
on conflict (queue, consumer, key) do nothing`

// longestIdle is the most that PostgreSQL takes for a time limit.
const longestIdle = math.MaxInt32 * time.Millisecond

// note inserts the event's row and reports whether it was not there. It waits for a
// row that another transaction has inserted and not committed, within our own limit:
// to set lock_timeout, and give the handler its own back, costs more than the insert.
func note(ctx context.Context, tx pgx.Tx, e *Event) (bool, error) {
	key, wait, idle := inboxKey(e), inboxWait, longestIdle
	if end, ok := ctx.Deadline(); ok {
		left := max(time.Until(end), 10*time.Millisecond) // 0 would be no limit
		idle = min(left, longestIdle)
		wait = min(wait, left/2) // it is to end before the handler's time does
	}
	ctx, cancel := withTimeout(ctx, wait)
	defer cancel()
	tag, err := tx.Exec(ctx, noteSQL, exec, e.Queue, e.Consumer, key, fmt.Sprintf("%dms", idle.Milliseconds()))
	if err != nil || tag.RowsAffected() > 0 {
		return err == nil, inboxError(err)
	}
	var there bool
	err = tx.QueryRow(ctx, "select exists (select from pgque_inbox where queue = $1::text and consumer = $2::text and key = $3::text)",
		exec, e.Queue, e.Consumer, key).Scan(&there)
	if err == nil && !there {
		return false, &inboxUnusable{errors.New("table pgque_inbox did not take the event's row; is there a trigger, a rule or a policy on it?")}
	}
	return false, inboxError(err)
}

// inboxUnusable is an error for which the table is to blame, and no event.
type inboxUnusable struct{ err error }

func (e *inboxUnusable) Error() string { return e.err.Error() }
func (e *inboxUnusable) Unwrap() error { return e.err }

// inboxError says what to do about a table that cannot be used: one with other
// columns or keys (class 42), constraints (23), or lengths (22001), or a view or a rule
// (55000, 0A000).
func inboxError(err error) error {
	state := sqlState(err)
	switch {
	case state == undefinedTable:
		err = fmt.Errorf("table pgque_inbox is missing; create it with events.InboxDDL: %w", err)
	case state == "42501":
		err = fmt.Errorf("the login may not use table pgque_inbox; grant it select and insert, and delete to purge: %w", err)
	case strings.HasPrefix(state, "42"), strings.HasPrefix(state, "23"), state == "22001", state == "55000", state == "0A000":
		err = fmt.Errorf("table pgque_inbox cannot tell what is done, as it is not what events.InboxDDL creates: %w", err)
	default:
		return err
	}
	return &inboxUnusable{err}
}

// longestKey is how long a key may be to stand in the inbox as it is: an index
// takes no more than 2,704 bytes.
const longestKey = 1000

// inboxKey keeps the two kinds of key apart: "5" as a header is not event 5. The
// time is with the id because a queue that was dropped and made anew, or restored
// to an earlier moment, gives the same ids to other events; a retry keeps both.
func inboxKey(e *Event) string {
	key := e.Headers[IdempotencyKey]
	if key == "" {
		return fmt.Sprintf("id:%d@%d", e.ID, e.Time.UnixMicro())
	}
	if len(e.Type)+len(key) > longestKey {
		return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(e.Type+":"+key)))
	}
	return "key:" + e.Type + ":" + key
}

// purgeStep is how many rows one statement of PurgeInbox deletes, so that it
// never holds locks for long.
const purgeStep = 1000

// PurgeInbox deletes rows of the inbox that are older than age, in small steps,
// and returns their number. Keep rows for longer than an event may be delivered
// again: longer than all its retries take, and than you replay dead letters.
func PurgeInbox(ctx context.Context, db DB, age time.Duration) (int64, error) {
	if age <= 0 {
		return 0, fmt.Errorf("purge the inbox: age %s is not positive: %w", age, ErrInvalid)
	}
	var purged int64
	for {
		n, err := purgeInbox(ctx, db, age)
		purged += n
		if err != nil {
			return purged, fmt.Errorf("purge the inbox: %w", inboxError(err))
		}
		if n < purgeStep {
			return purged, nil
		}
	}
}

func purgeInbox(ctx context.Context, db DB, age time.Duration) (int64, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	tag, err := db.Exec(ctx, `delete from pgque_inbox where ctid = any (array(
		select ctid from pgque_inbox where done_at < now() - $1::float8 * interval '1 second' order by done_at limit $2::int))`,
		exec, age.Seconds(), purgeStep)
	return tag.RowsAffected(), err
}
