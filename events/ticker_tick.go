package events

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// dueQueue is a queue that the look found.
type dueQueue struct {
	ID   int32
	Name string
	Wait time.Duration // until ticker() would make a tick for its new events; 0 is now
}

// lookSQL finds the queues that pgque.ticker(queue) would tick, by the rules that
// it goes by, and those that have new events but no right to a tick yet. Asking
// ticker() itself costs a transaction id each time and, with many queues, ten
// times as long. The rules, with "age" the last tick's and "new" the events since:
//
//   - no tick, or one tick and new = 0: tick
//   - new > 0: when age >= max_lag or new >= max_count
//   - new = 0 (an idle tick, so that a consumer's position and the tables go on):
//     when age >= max_lag / 2 and age reaches twice the distance of the last two
//     ticks, or the idle period
//
// A sequence that was never used counts as 1, as PgQue reads it.
const lookSQL = `
select q.queue_id, q.queue_name,
       case when e.new > 0 and e.new < q.queue_ticker_max_count
            then greatest(extract(epoch from q.queue_ticker_max_lag - e.age), 0)
            else 0 end::float8
  from pgque.queue q
  left join lateral (
        select tick_id, tick_time, tick_event_seq from pgque.tick
         where tick_queue = q.queue_id
         order by tick_queue desc, tick_id desc limit 1) l on true
 cross join lateral (
        select s.new, s.age, s.new <= 0 and (
                   p.tick_time is null
                or s.age >= q.queue_ticker_max_lag / 2
                   and (s.age >= q.queue_ticker_idle_period or s.age >= 2 * (l.tick_time - p.tick_time))) as idle
          from (select coalesce(pg_sequence_last_value(to_regclass(q.queue_event_seq)), 1) - l.tick_event_seq as new,
                       now() - l.tick_time as age
                offset 0) s
          left join lateral (
                select tick_time from pgque.tick
                 where s.new <= 0 and tick_queue = q.queue_id and tick_id < l.tick_id
                 order by tick_queue desc, tick_id desc limit 1) p on true) e
 where not q.queue_external_ticker and not q.queue_ticker_paused
   and ($1::text[] is null or q.queue_name = any ($1))
   and (l.tick_id is null or e.new > 0 or e.idle)
 order by q.queue_name`

// tickSQL ticks queues whose lock it gets. The lock is taken in the statement
// that ticks, before the tick's own snapshot, which is what keeps ticks in order.
const tickSQL = `
select queue_name, case when pg_try_advisory_xact_lock($1, queue_id) then pgque.ticker(queue_name) end
  from pgque.queue
 where queue_id = any ($2) and not queue_external_ticker and not queue_ticker_paused
 order by queue_name`

// tick looks, and ticks what is due. It returns how long until a queue with new
// events is due: 0 when one was ticked just now, less when none has any.
func (t *Ticker) tick(ctx context.Context) (next time.Duration, err error) {
	const nothing = -1
	if t.standing.Load() {
		return nothing, nil
	}
	queues, err := lookForTicks(ctx, t.pool, t.queues())
	if err != nil {
		return nothing, wrap(err, "look for queues to tick")
	}
	now, next := time.Now(), time.Duration(nothing)
	var due []dueQueue
	for _, q := range queues {
		if t.troubled.resting(q.Name, now) {
			continue
		}
		if q.Wait == 0 {
			due = append(due, q)
		}
		if next < 0 || q.Wait < next {
			next = q.Wait
		}
	}
	if len(due) == 0 {
		return next, nil
	}
	err = t.tickQueues(ctx, due)
	if err == nil || !ownFailure(err) {
		return next, wrap(err, "tick")
	}
	for _, q := range due {
		err := t.tickQueues(ctx, []dueQueue{q})
		if err != nil && !ownFailure(err) {
			return next, wrap(err, "tick queue %q", q.Name)
		}
		if err != nil {
			t.queueFailed("tick", t.troubled, q.Name, err)
		}
	}
	return next, nil
}

// lookForTicks looks at the queues of these names, or at all when names is nil.
func lookForTicks(ctx context.Context, db DB, names []string) ([]dueQueue, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := db.Query(ctx, lookSQL, exec, names)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (q dueQueue, err error) {
		var wait float64
		err = row.Scan(&q.ID, &q.Name, &wait)
		q.Wait = seconds(wait)
		return q, err
	})
}

// names reads the names of queues.
func (t *Ticker) names(ctx context.Context, sql string) ([]string, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := t.pool.Query(ctx, sql, exec)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// queues is the list of names for SQL: nil, so NULL, means all.
func (t *Ticker) queues() []string {
	if len(t.config.Queues) == 0 {
		return nil
	}
	return t.config.Queues
}

// tickQueues ticks queues in one transaction, those of them that no other ticker
// is ticking at the moment.
func (t *Ticker) tickQueues(ctx context.Context, queues []dueQueue) error {
	ids := make([]int32, len(queues))
	for i, q := range queues {
		ids[i] = q.ID
	}
	var ticked []Ticked
	err := t.act(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, tickSQL, exec, lockTicks, ids)
		if err != nil {
			return err
		}
		var queue string
		var tick *int64
		_, err = pgx.ForEachRow(rows, []any{&queue, &tick}, func() error {
			if tick != nil {
				ticked = append(ticked, Ticked{Queue: queue, Tick: *tick})
			}
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	for _, q := range queues {
		if t.troubled.over(q.Name) {
			t.log.Info("ticker: queue works again", "queue", q.Name)
		}
	}
	for _, tick := range ticked {
		t.config.Observer.observe(tick)
	}
	return nil
}

// queueFailed books a failure of one queue, and logs its first.
func (t *Ticker) queueFailed(action string, troubled troubles, queue string, err error) {
	t.config.Observer.observe(TickerFailed{Action: action, Queue: queue, Err: err})
	if troubled.add(queue, time.Now()) {
		t.log.Error("ticker: "+action+" fails for one queue, the others go on", "queue", queue, "err", err)
	}
}

// act does one action in one transaction. When the server turns out to be a
// standby the pool is told to connect anew: after a failover all its connections
// are to the wrong server.
func (t *Ticker) act(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	err := inTx(ctx, t.pool, func(tx pgx.Tx) error { return fn(ctx, tx) })
	if readOnly(err) {
		t.pool.Reset()
		return fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	return err
}

// readOnly says that the server cannot write. A standby refuses the very BEGIN of
// a READ WRITE transaction, with 0A000.
func readOnly(err error) bool { return sqlState(err) == "25006" || sqlState(err) == "0A000" }

// ownFailure says that an error of the server is the queue's own, so that the
// other queues can go on: something PgQue raised, or an object that is damaged or
// gone. The rest (connections, resources, privileges, conflicts) concerns all.
func ownFailure(err error) bool {
	if sqlState(err) == "" || connectionLost(err) || transient(err) || readOnly(err) {
		return false
	}
	switch sqlState(err) {
	case "42501", "42883":
		return false
	}
	switch sqlState(err)[:2] {
	case "25", "28", "3F", "53", "57":
		return false
	}
	return true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
