package events

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// lookedAt is a queue as the look found it.
type lookedAt struct {
	ID   int32
	Name string
	Wait time.Duration // until ticker() would make a tick as things stand; 0 is now
	News bool          // there are new events
	// What tells that nothing has come since: the sequence of the queue's events
	// and the number that it stands at. 0 when that cannot be told.
	Sequence uint32
	At       int64
	// Where to look for events that are committed late: the last tick's snapshot, ""
	// while there are new events, and the table that holds what was in flight then,
	// schema.name without quotes. That is the parent of all around a rotation.
	Snapshot, Table string
}

// tickSQL ticks queues whose lock it gets. The lock is taken in the statement
// that ticks, before the tick's own snapshot, which is what keeps ticks in order.
const tickSQL = `
select queue_name, case when pg_try_advisory_xact_lock($1::text::int, queue_id) then pgque.ticker(queue_name) end
  from pgque.queue
 where queue_id = any ($2::text::int[]) and not queue_external_ticker and not queue_ticker_paused
 order by queue_name`

// tick looks, and ticks what is due. It returns how long until a queue with new
// events is due: 0 when one was ticked just now, less when none has any.
func (t *Ticker) tick(ctx context.Context) (next time.Duration, err error) {
	if t.standing.Load() {
		return nothing, nil
	}
	queues, next, err := t.look(ctx)
	if err != nil {
		return next, wrap(err, "look for queues to tick")
	}
	now := time.Now()
	var due []lookedAt
	for _, q := range queues {
		if q.Wait == 0 && !t.troubled.resting(q.Name, now) {
			due = append(due, q)
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
		err := t.tickQueues(ctx, []lookedAt{q})
		if err != nil && !ownFailure(err) {
			return next, wrap(err, "tick queue %q", q.Name)
		}
		if err != nil {
			t.queueFailed("tick", t.troubled, q.Name, err)
		}
	}
	return next, nil
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

// tickQueues ticks queues in one transaction and one round trip, those of them
// that no other ticker is ticking at the moment.
func (t *Ticker) tickQueues(ctx context.Context, queues []lookedAt) error {
	ids := make([]string, len(queues))
	for i, q := range queues {
		ids[i] = strconv.Itoa(int(q.ID))
	}
	var ticked []Ticked
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	err := oneTrip(ctx, t.pool, statement{sql: tickSQL, args: []string{strconv.Itoa(int(lockTicks)), arrayText(ids)}, row: func(row [][]byte) error {
		if row[1] == nil {
			return nil
		}
		tick, err := strconv.ParseInt(string(row[1]), 10, 64)
		ticked = append(ticked, Ticked{Queue: string(row[0]), Tick: tick})
		return err
	}})
	if err := t.standbyLeft(err); err != nil {
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
		t.log.Error("ticker: "+inWords(action)+" fails for one queue, the others go on", "queue", queue, "err", err)
	}
}

// inWords names an action in the log.
func inWords(action string) string {
	if action == "late" {
		return "the look for late events"
	}
	return action
}

// act does one action in one transaction. When the server turns out to be a
// standby the pool is told to connect anew: after a failover all its connections
// are to the wrong server.
func (t *Ticker) act(ctx context.Context, fn func(context.Context, pgx.Tx) error) error {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	return t.standbyLeft(inTx(ctx, t.pool, func(tx pgx.Tx) error { return fn(ctx, tx) }))
}

// standbyLeft empties the pool after an error of a standby.
func (t *Ticker) standbyLeft(err error) error {
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
