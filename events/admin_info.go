package events

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// QueueInfo is the state of a queue. Ages are by the server's clock.
type QueueInfo struct {
	Name             string
	Paused, External bool          // no ticks, or ticks from elsewhere
	MaxLag           time.Duration // ticker_max_lag
	MaxCount         int           // ticker_max_count
	IdlePeriod       time.Duration // ticker_idle_period
	RotationPeriod   time.Duration // rotation_period
	MaxRetries       int           // max_retries; 5 where it is not set
	LastTick         time.Time     // zero when there is none
	TickAge          time.Duration // since LastTick
	// Sent is how many events were sent so far, at most: numbers that were taken and
	// rolled back count as well, and those that a Ticker takes for events which were
	// committed after their tick. NewEvents is how many no tick has covered yet.
	Sent, NewEvents int64

	Consumers   int
	Retries     int64         // events that wait for a retry, due or not
	DueRetries  int64         // those of them that are due
	DeadLetters int64         // -1 when this login may not see them
	RotationAge time.Duration // since the tables were rotated last
	HalfRotated bool          // the rotation's second step is still to be done
}

// Queues gives the state of all queues, by name. It needs no role; without
// pgque_reader DeadLetters is -1.
//
// Errors: [ErrNotInstalled].
func Queues(ctx context.Context, db DB) ([]QueueInfo, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	deadLetters, err := deadLetterCount(ctx, db, "dl_queue_id = q.queue_id")
	if err != nil {
		return nil, wrap(err, "list queues")
	}
	rows, err := db.Query(ctx, `
		select q.queue_name, q.queue_ticker_paused, q.queue_external_ticker,
		       extract(epoch from q.queue_ticker_max_lag)::numeric, q.queue_ticker_max_count,
		       extract(epoch from q.queue_ticker_idle_period)::numeric,
		       extract(epoch from q.queue_rotation_period)::numeric, coalesce((to_jsonb(q) ->> 'queue_max_retries')::int, 5),
		       `+inMicroseconds("l.tick_time")+`, coalesce(extract(epoch from now() - l.tick_time), 0)::numeric,
		       greatest(s.newest - 1, 0), greatest(s.newest - coalesce(l.tick_event_seq, 1), 0),
		       (select count(*) from pgque.subscription where sub_queue = q.queue_id),
		       coalesce(r.waiting, 0), coalesce(r.due, 0),
		       `+deadLetters+`,
		       extract(epoch from now() - q.queue_switch_time)::numeric, q.queue_switch_step2 is null
		  from pgque.queue q
		 cross join lateral (select coalesce(pg_sequence_last_value(to_regclass(q.queue_event_seq)), 1) as newest offset 0) s
		  left join lateral (select tick_time, tick_event_seq from pgque.tick where tick_queue = q.queue_id
		                      order by tick_queue desc, tick_id desc limit 1) l on true
		  left join (select ev_queue, count(*) as waiting, count(*) filter (where ev_retry_after <= now()) as due
		               from pgque.retry_queue group by ev_queue) r on r.ev_queue = q.queue_id
		 order by q.queue_name`, exec)
	if err != nil {
		return nil, wrap(err, "list queues")
	}
	queues, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (q QueueInfo, err error) {
		var lag, idle, rotation, tickAge, rotationAge float64
		var tick *int64
		err = row.Scan(&q.Name, &q.Paused, &q.External, &lag, &q.MaxCount, &idle, &rotation, &q.MaxRetries,
			&tick, &tickAge, &q.Sent, &q.NewEvents, &q.Consumers, &q.Retries, &q.DueRetries, &q.DeadLetters, &rotationAge, &q.HalfRotated)
		q.MaxLag, q.IdlePeriod, q.RotationPeriod = seconds(lag), seconds(idle), seconds(rotation)
		q.TickAge, q.RotationAge = seconds(tickAge), seconds(rotationAge)
		if tick != nil {
			q.LastTick = time.UnixMicro(*tick)
		}
		return q, err
	})
	return queues, wrap(err, "list queues")
}

// ConsumerInfo is the state of a subscription. Ages are by the server's clock.
type ConsumerInfo struct {
	Queue, Name string
	// Pending is how many events up to the queue's last tick the consumer has not
	// finished, at most (see QueueInfo.NewEvents).
	Pending int64
	// Lag is how far back the consumer is: the age of the last tick that it has
	// finished, or 0 when nothing is pending.
	Lag time.Duration
	// Active is since when it has neither taken nor finished a batch.
	Active time.Duration
	// Batch is the number of the open batch, 0 when there is none; then BatchAge is
	// since when it is open.
	Batch       int64
	BatchAge    time.Duration
	Retries     int64 // events that wait for a retry
	DeadLetters int64 // -1 when this login may not see them
}

// Consumers gives the state of the subscriptions of a queue, or of all queues when
// queue is "", by queue and name. It needs no role; without pgque_reader
// DeadLetters is -1.
//
// Errors: [ErrQueueNotFound], [ErrNotInstalled].
func Consumers(ctx context.Context, db DB, queue string) ([]ConsumerInfo, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	deadLetters, err := deadLetterCount(ctx, db, "dl_queue_id = q.queue_id and dl_consumer_id = c.co_id")
	if err != nil {
		return nil, wrap(err, "list consumers")
	}
	rows, err := db.Query(ctx, `
		select q.queue_name, c.co_name, coalesce(l.tick_event_seq - t.tick_event_seq, 0),
		       coalesce(extract(epoch from now() - t.tick_time), 0)::numeric, extract(epoch from now() - s.sub_active)::numeric,
		       coalesce(s.sub_batch, 0),
		       (select count(*) from pgque.retry_queue where ev_owner = s.sub_id), `+deadLetters+`
		  from pgque.subscription s
		  join pgque.queue q on q.queue_id = s.sub_queue
		  join pgque.consumer c on c.co_id = s.sub_consumer
		  left join pgque.tick t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick
		  left join lateral (select tick_event_seq from pgque.tick where tick_queue = q.queue_id
		                      order by tick_queue desc, tick_id desc limit 1) l on true
		 where $1::text is null or q.queue_name = $1
		 order by q.queue_name, c.co_name`, exec, textOrNull(queue))
	if err != nil {
		return nil, wrap(err, "list consumers")
	}
	consumers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c ConsumerInfo, err error) {
		var lag, active float64
		err = row.Scan(&c.Queue, &c.Name, &c.Pending, &lag, &active, &c.Batch, &c.Retries, &c.DeadLetters)
		c.Active = seconds(active)
		if c.Pending > 0 {
			c.Lag = seconds(lag)
		}
		if c.Batch != 0 {
			c.BatchAge = c.Active
		}
		return c, err
	})
	if err == nil && len(consumers) == 0 && queue != "" {
		err = queueThere(ctx, db, queue)
	}
	return consumers, wrap(err, "list consumers")
}

func queueThere(ctx context.Context, db DB, queue string) error {
	var there bool
	err := db.QueryRow(ctx, "select exists (select from pgque.queue where queue_name = $1)", exec, queue).Scan(&there)
	if err == nil && !there {
		return fmt.Errorf("queue %q: %w", queue, ErrQueueNotFound)
	}
	return err
}

// deadLetterCount is the SQL that counts dead letters, or "-1" for a login that
// may not see them: one such column would make the whole statement fail.
func deadLetterCount(ctx context.Context, db DB, where string) (string, error) {
	var visible bool
	err := db.QueryRow(ctx, "select has_table_privilege('pgque.dead_letter', 'select')", exec).Scan(&visible)
	if err != nil || !visible {
		return "-1", err
	}
	return "(select count(*) from pgque.dead_letter where " + where + ")", nil
}
