package events

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	upkeepEvery   = time.Second
	maintainEvery = 30 * time.Second
)

// upkeepLoop moves due retries, rotates tables and does the maintenance. It looks
// once a second, and writes only when there is something to do.
func (t *Ticker) upkeepLoop(ctx context.Context) {
	for ctx.Err() == nil {
		started := time.Now()
		wait := upkeepEvery
		if err := t.upkeep(ctx); err != nil {
			wait = t.pause("retry", upkeepEvery)
		}
		sleep(ctx, time.Until(started.Add(wait)))
	}
}

func (t *Ticker) upkeep(ctx context.Context) error {
	retries, step2, err := t.lookForUpkeep(ctx)
	if err != nil {
		t.done(ctx, "retry", wrap(err, "look for due retries"))
		return err
	}
	if t.standing.Load() {
		retries, step2 = false, false
	}
	err = nil
	if retries {
		err = t.moveRetries(ctx)
	}
	t.done(ctx, "retry", wrap(err, "move due retries"))
	if step2 {
		t.done(ctx, "rotate", wrap(t.step2(ctx), "rotate tables, step 2"))
	}
	if time.Since(t.maintained) < maintainEvery {
		return nil
	}
	t.maintained = time.Now()
	t.done(ctx, "settings", t.settle(ctx))
	if !t.standing.Load() {
		t.done(ctx, "maintain", wrap(t.maintain(ctx), "do the maintenance"))
	}
	return nil
}

// lookForUpkeep says whether a retry is due, and whether a rotation waits for its
// second step.
func (t *Ticker) lookForUpkeep(ctx context.Context) (retries, step2 bool, err error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var standby bool
	err = t.pool.QueryRow(ctx, `select pg_is_in_recovery(),
		exists (select from pgque.retry_queue where ev_retry_after <= now()),
		exists (select from pgque.queue where queue_switch_step2 is null)`, exec).Scan(&standby, &retries, &step2)
	if err == nil && standby {
		t.pool.Reset()
		err = ErrReadOnly
	}
	return retries, step2, err
}

// step2 tells PgQue that a rotation's first step is visible to all. It must have
// a transaction of its own. Without it a queue rotates once and never again.
func (t *Ticker) step2(ctx context.Context) error {
	return t.act(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `select case when pg_try_advisory_xact_lock($1, $2)
			then pgque.maint_rotate_tables_step2() end`, exec, lockTicks, lockStep2)
		return err
	})
}

// maintain rotates what is due and lets PgQue clean up; a table that is busy is
// left for the next time. Where one queue makes it fail, the others are rotated
// one by one.
func (t *Ticker) maintain(ctx context.Context) error {
	err := t.underMaintenanceLock(ctx, "pgque.maint()")
	if err != nil && ownFailure(err) {
		err = t.rotateOneByOne(ctx, err)
	}
	if err != nil {
		return err
	}
	_, step2, err := t.lookForUpkeep(ctx)
	if err == nil && step2 {
		err = t.step2(ctx)
	}
	return err
}

// rotateOneByOne starts the rotation of each queue that is due in a transaction of
// its own, and names those that fail. When none does, cause is to blame on
// something else, and is returned.
func (t *Ticker) rotateOneByOne(ctx context.Context, cause error) error {
	queues, err := t.names(ctx, `select queue_name from pgque.queue
		where queue_switch_step2 is not null and queue_switch_time + queue_rotation_period < now()
		order by queue_name`)
	if err != nil {
		return err
	}
	for _, queue := range queues {
		err := t.underMaintenanceLock(ctx, "pgque.maint_rotate_tables_step1($3)", queue)
		switch {
		case err == nil:
			t.unrotated.over(queue)
		case ownFailure(err):
			t.queueFailed("rotate", t.unrotated, queue, err)
			cause = nil
		default:
			return err
		}
	}
	return cause
}

// underMaintenanceLock makes one call under the maintenance lock. It does not
// wait long for a table's lock: whoever waits for one blocks others behind it.
func (t *Ticker) underMaintenanceLock(ctx context.Context, call string, args ...any) error {
	return t.act(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local lock_timeout = '2s'", exec); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "select case when pg_try_advisory_xact_lock($1, $2) then "+call+" end",
			append([]any{exec, lockTicks, lockMaintenance}, args...)...)
		return err
	})
}
