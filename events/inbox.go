package events

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
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
// happen once although events are delivered at least once. db may be the events
// database or any other that has the table of [InboxDDL].
//
// Each event gets a transaction: a row of (queue, consumer, key) is inserted, fn
// does its work in tx, and both are committed together. If the row is there, the
// event was done before and fn is not called. The key is the event's type with its
// [IdempotencyKey] header, or else its id with the time when it was sent. When fn
// returns an error, [Skip] among them, everything is rolled back and the error
// counts as any handler's.
//
// Effects outside tx (an e-mail, a request) are not part of it.
func HandleTx[T any](c *Consumer, db DB, t Type[T], fn func(ctx context.Context, tx pgx.Tx, e *Event, payload T) error) {
	Handle(c, t, func(ctx context.Context, e *Event, payload T) error {
		return inTx(ctx, db, func(tx pgx.Tx) error {
			first, err := note(ctx, tx, e)
			if err != nil || !first {
				return err
			}
			return fn(ctx, tx, e, payload)
		})
	})
}

// note inserts the event's row and reports whether it was not there. Another
// worker's row that is not committed yet is waited for.
func note(ctx context.Context, tx pgx.Tx, e *Event) (bool, error) {
	tag, err := tx.Exec(ctx, `insert into pgque_inbox (queue, consumer, key) values ($1::text, $2::text, $3::text) on conflict do nothing`,
		exec, e.Queue, e.Consumer, inboxKey(e))
	return tag.RowsAffected() > 0, inboxError(err)
}

func inboxError(err error) error {
	if sqlState(err) == "42P01" {
		return fmt.Errorf("table pgque_inbox is missing; create it with events.InboxDDL: %w", err)
	}
	return err
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
