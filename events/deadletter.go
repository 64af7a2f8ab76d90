package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeadLetter is an event that a consumer has given up on: its attempts were
// spent, or its handler returned [Dead].
type DeadLetter struct {
	// ID is the dead letter's number in the database; replay and purge go by it.
	ID     int64
	Reason string    // the last failure's text
	Died   time.Time // when the event became a dead letter
	Event  Event     // as it was; Attempt is the last one that failed
}

// DeadLetterFilter chooses dead letters. Zero fields choose all, and negative times too.
type DeadLetterFilter struct {
	IDs      []int64       // by number; nil is all, and an empty slice none
	Queue    string        // of this queue
	Consumer string        // that this consumer gave up on
	Type     string        // with this event type
	Older    time.Duration // that died longer ago than this, by the server's clock
	Newer    time.Duration // that died more recently than this, by the server's clock
	// NoPayload leaves Event.Payload nil: for a list of what may be large.
	NoPayload bool
}

// where is the filter in SQL, for the tables' aliases of deadLetterTables; its
// parameters are $1 to $6.
const (
	deadLetterTables = `pgque.dead_letter d
		join pgque.queue q on q.queue_id = d.dl_queue_id
		join pgque.consumer c on c.co_id = d.dl_consumer_id`
	deadLetterWhere = `($1::bigint[] is null or d.dl_id = any ($1))
		and ($2::text is null or q.queue_name = $2) and ($3::text is null or c.co_name = $3)
		and ($4::text is null or d.ev_type = $4)
		and ($5::float8 is null or d.dl_time < now() - make_interval(secs => $5))
		and ($6::float8 is null or d.dl_time > now() - make_interval(secs => $6))`
)

func (f DeadLetterFilter) args() []any {
	return []any{exec, f.IDs, textOrNull(f.Queue), textOrNull(f.Consumer), textOrNull(f.Type), secondsOrNull(f.Older), secondsOrNull(f.Newer)}
}

func secondsOrNull(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// deadLetterPage is how many dead letters are read at once. Payloads can be large.
const deadLetterPage = 50

// DeadLetters gives the dead letters that the filter chooses, oldest number first.
// It reads them in small pages, so nothing stays open while the caller works, and
// ends with the first error. It needs pgque_reader.
func DeadLetters(ctx context.Context, db DB, filter DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		for after := int64(0); ; {
			page, err := deadLetters(ctx, db, filter, after)
			if err != nil {
				yield(DeadLetter{}, wrap(err, "read dead letters"))
				return
			}
			for _, d := range page {
				if !yield(d, nil) {
					return
				}
				after = d.ID
			}
			if len(page) < deadLetterPage {
				return
			}
		}
	}
}

func deadLetters(ctx context.Context, db DB, filter DeadLetterFilter, after int64) ([]DeadLetter, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := db.Query(ctx, `select d.dl_id, coalesce(d.dl_reason, ''), `+inMicroseconds("d.dl_time")+`, q.queue_name, c.co_name,
		d.ev_id, `+inMicroseconds("d.ev_time")+`, coalesce(d.ev_retry, 0) + 1, coalesce(d.ev_type, ''), case when not $9::boolean then d.ev_data end, d.ev_extra3
		from `+deadLetterTables+` where `+deadLetterWhere+` and d.dl_id > $7 order by d.dl_id limit $8`,
		append(filter.args(), after, deadLetterPage, filter.NoPayload)...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadLetter, err error) {
		var died, sent int64
		var payload, headers *string
		e := &d.Event
		err = row.Scan(&d.ID, &d.Reason, &died, &e.Queue, &e.Consumer, &e.ID, &sent, &e.Attempt, &e.Type, &payload, &headers)
		d.Died, e.Time = time.UnixMicro(died), time.UnixMicro(sent)
		if payload != nil {
			e.Payload = json.RawMessage(*payload)
		}
		if headers != nil {
			e.Headers = parseHeaders(*headers)
		}
		return d, err
	})
}

// deadLetterStep is how many dead letters one transaction moves or deletes.
const deadLetterStep = 500

// Replay gives dead letters back to the consumer that gave up on them, as retries
// that are due now, with their old number and time, and as if never tried: the next
// Attempt is 1.
// Other consumers of the queue do not see them again. It returns how many. Those
// whose consumer has unsubscribed stay where they are.
//
// It goes in steps, each a transaction of its own unless db is one. Of two that
// replay the same dead letter at once, one does. For IDs of which none can be
// replayed it gives [ErrNotFound] or [ErrNotSubscribed]. It needs pgque_admin.
func Replay(ctx context.Context, db DB, filter DeadLetterFilter) (int, error) {
	const subscribed = ` and exists (select from pgque.subscription s
		where s.sub_queue = d.dl_queue_id and s.sub_consumer = d.dl_consumer_id)`
	n, err := moveDeadLetters(ctx, db, filter, subscribed, `
		select count(case when exists (
				select from pgque.retry_queue r join pgque.subscription s on s.sub_id = r.ev_owner
				 where s.sub_queue = m.dl_queue_id and s.sub_consumer = m.dl_consumer_id and r.ev_id = m.ev_id)
			then m.ev_id -- it waits for a retry already
			else pgque.event_retry_raw(m.queue_name, m.co_name, now(), m.ev_id, m.ev_time, 0, m.ev_type, m.ev_data,
				m.ev_extra1, m.ev_extra2, m.ev_extra3, m.ev_extra4) end)`)
	if errors.Is(err, ErrNotFound) {
		for _, err := range DeadLetters(ctx, db, filter) {
			if err == nil { // there, but not to be replayed
				return 0, wrap(ErrNotSubscribed, "replay dead letters %v", filter.IDs)
			}
		}
	}
	return n, wrap(err, "replay dead letters")
}

// ReplayToAll sends dead letters again as new events, which every consumer of the
// queue gets, with new numbers and times. It returns how many. It goes in steps as
// [Replay] does, and gives [ErrNotFound] for IDs of which none is there.
func ReplayToAll(ctx context.Context, db DB, filter DeadLetterFilter) (int, error) {
	n, err := moveDeadLetters(ctx, db, filter, "", `
		select count(pgque.insert_event(m.queue_name, m.ev_type, m.ev_data,
			m.ev_extra1, m.ev_extra2, m.ev_extra3, m.ev_extra4))`)
	return n, wrap(err, "replay dead letters to all consumers")
}

// Purge deletes dead letters for good and returns how many. It refuses a filter
// that chooses all of the database ([ErrInvalid]): name a queue, or IDs. It goes in
// steps as [Replay] does, and gives [ErrNotFound] for IDs of which none is there.
// It needs pgque_admin.
func Purge(ctx context.Context, db DB, filter DeadLetterFilter) (int, error) {
	if filter.Queue == "" && len(filter.IDs) == 0 {
		return 0, fmt.Errorf("purge of dead letters names neither a queue nor an id: %w", ErrInvalid)
	}
	n, err := moveDeadLetters(ctx, db, filter, "", "select count(*)")
	return n, wrap(err, "purge dead letters")
}

// moveDeadLetters takes dead letters out of their table step by step and does
// something with them, as "m", in the same statement. Taking a row out locks it,
// so one that another process takes at the same moment is not taken twice,
// whatever PgQue's own functions do.
func moveDeadLetters(ctx context.Context, db DB, filter DeadLetterFilter, and, do string) (total int, err error) {
	sql := `
		with chosen as (
			select d.dl_id, q.queue_name, c.co_name from ` + deadLetterTables + `
			 where ` + deadLetterWhere + and + ` order by d.dl_id limit $7 for update of d),
		m as (
			delete from pgque.dead_letter d using chosen
			 where d.dl_id = chosen.dl_id returning d.*, chosen.queue_name, chosen.co_name) ` + do + ` from m`
	for {
		n, err := moveStep(ctx, db, sql, append(filter.args(), deadLetterStep))
		switch {
		case err != nil:
			return total, err
		case n == 0 && total == 0 && len(filter.IDs) > 0:
			return 0, fmt.Errorf("dead letter %v: %w", filter.IDs, ErrNotFound)
		case n == 0:
			return total, nil
		}
		total += n
	}
}

func moveStep(ctx context.Context, db DB, sql string, args []any) (n int, err error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	err = inTx(ctx, db, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql, args...).Scan(&n) })
	return n, err
}
