package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Peek gives the newest committed events of a queue, at most limit, the oldest of
// them first. It consumes nothing, and sees events that no tick has covered yet
// and those that all consumers have had, until the queue's tables rotate. An event
// that came back for a retry is there again, with Attempt and the Consumer that
// gets it. It needs no role.
//
// Errors: [ErrInvalid] for a name that no queue can have or a negative limit,
// [ErrQueueNotFound], [ErrNotInstalled].
func Peek(ctx context.Context, db DB, queue string, limit int) ([]Event, error) {
	if err := checkQueue(queue); err != nil {
		return nil, err
	}
	if limit < 0 {
		return nil, fmt.Errorf("peek into queue %q: limit is %d, less than 0: %w", queue, limit, ErrInvalid)
	}
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var table string
	err := db.QueryRow(ctx, `select queue_data_pfx::regclass::text from pgque.queue where queue_name = $1`, exec, queue).Scan(&table)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrQueueNotFound
	}
	if err != nil {
		return nil, wrap(err, "peek into queue %q", queue)
	}
	// By transaction first: on that there is an index.
	rows, err := db.Query(ctx, fmt.Sprintf(`
		select e.ev_id, `+inMicroseconds("e.ev_time")+`, coalesce(e.ev_retry, 0) + 1, coalesce(e.ev_type, ''), e.ev_data, e.ev_extra3, coalesce(c.co_name, '')
		  from (select * from %s order by ev_txid desc, ev_id desc limit $1) e
		  left join pgque.subscription s on s.sub_id = e.ev_owner and s.sub_queue = (select queue_id from pgque.queue where queue_name = $2)
		  left join pgque.consumer c on c.co_id = s.sub_consumer
		 order by e.ev_txid desc, e.ev_id desc`, table), exec, limit, queue)
	if err != nil {
		return nil, wrap(err, "peek into queue %q", queue)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		var sent int64
		var payload, headers *string
		err = row.Scan(&e.ID, &sent, &e.Attempt, &e.Type, &payload, &headers, &e.Consumer)
		e.Queue, e.Time = queue, time.UnixMicro(sent)
		if payload != nil {
			e.Payload = json.RawMessage(*payload)
		}
		if headers != nil {
			e.Headers = parseHeaders(*headers)
		}
		return e, err
	})
	slices.Reverse(found)
	if sqlState(err) == undefinedTable { // the queue was dropped meanwhile
		err = ErrQueueNotFound
	}
	return found, wrap(err, "peek into queue %q", queue)
}
