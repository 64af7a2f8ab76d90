package events

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// retryBudget ends a round of moving retries, so that rotation has its turn.
	retryBudget = 5 * time.Second
	// retryCalls is how often one transaction calls maint_retry_events, which
	// moves 10 events a call. It keeps the number of commits low.
	retryCalls = 20
)

// moveRetries puts due events back into their queues until none is due, another
// ticker is at it, or the budget is spent.
func (t *Ticker) moveRetries(ctx context.Context) error {
	for started := time.Now(); time.Since(started) < retryBudget; {
		moved, err := t.moveSome(ctx, "", `
			with guard as materialized (select pg_try_advisory_xact_lock($1, $2) as mine)
			select coalesce(sum(pgque.maint_retry_events()), 0)
			  from guard, generate_series(1, $3::int) where mine`, lockTicks, lockRetries, retryCalls)
		if err != nil && ownFailure(err) {
			return t.moveQueueByQueue(ctx, err)
		}
		if err != nil || moved < 10*retryCalls {
			return err
		}
	}
	return nil
}

// moveSome runs a statement that moves events and gives how many, after another
// one where it needs a lock first.
func (t *Ticker) moveSome(ctx context.Context, before, sql string, args ...any) (moved int, err error) {
	err = t.act(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if before != "" {
			if _, err := tx.Exec(ctx, before, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, sql, append([]any{exec}, args...)...).Scan(&moved)
	})
	if err == nil && moved > 0 {
		t.config.Observer.observe(Retried{Events: moved})
	}
	return moved, err
}

// moveQueueByQueue is for when PgQue's function fails. It takes the due events of
// the whole database in order, so those of one queue that cannot take them back
// keep all others waiting. Here each queue is on its own, and those that fail are
// named. When none does, cause is to blame on something else, and is returned.
func (t *Ticker) moveQueueByQueue(ctx context.Context, cause error) error {
	queues, err := t.names(ctx, `select queue_name from pgque.queue where exists (
		select from pgque.retry_queue where ev_queue = queue_id and ev_retry_after <= now()) order by queue_name`)
	if err != nil {
		return err
	}
	for _, queue := range queues {
		// The lock is the one that PgQue's function takes, so that two never move one.
		_, err := t.moveSome(ctx, "set local lock_timeout = '2s'; lock table pgque.retry_queue in share update exclusive mode", `
			with due as (
				delete from pgque.retry_queue where (ev_owner, ev_id) in (
					select ev_owner, ev_id from pgque.retry_queue join pgque.queue on queue_id = ev_queue
					 where queue_name = $1 and ev_retry_after <= now() order by ev_retry_after limit 500)
				returning *)
			select count(pgque.insert_event_raw($1, ev_id, ev_time, ev_owner, ev_retry, ev_type, ev_data,
			             ev_extra1, ev_extra2, ev_extra3, ev_extra4)) from due`, queue)
		switch {
		case err == nil:
			t.unretried.over(queue)
		case ownFailure(err):
			t.queueFailed("retry", t.unretried, queue, err)
			cause = nil
		default:
			return err
		}
	}
	return cause
}
