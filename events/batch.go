package events

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// How much of a batch is in memory at once. A batch can be of any size: one
// large transaction, or a ticker that was down, makes one batch of it all.
const (
	wholeBytes = 16 << 20 // a batch up to this is read in one go
	chunkBytes = 12 << 20 // a larger one in pieces of this
	wholeRows  = 20_000   // more than this is not even tried in one go
	rowBytes   = 300      // what an event takes beside its payload, roughly
)

// batch is what lies between two ticks, opened for this consumer.
type batch struct {
	id         int64
	estimate   int64 // number of events, by the queue's sequence; may be far off
	maxRetries int
	queueID    int
	subID      int
	reopened   bool      // it was open before this run asked: its last holder may have crashed
	moreTicks  bool      // another batch was waiting when this one was opened
	seen       int       // events read so far
	first      []*record // read in the round trip that opened it
	haveFirst  bool
}

// waiting is what is known to wait behind the batch, when there is more.
func (b *batch) waiting() waiting {
	return waiting{queueID: b.queueID, subID: b.subID, maxRetries: b.maxRetries, hasTick: true}
}

// waiting is the look that an idle consumer repeats. It reads two public tables
// and takes no transaction id, where an empty receive writes each time.
type waiting struct {
	queueID    int
	subID      int
	openBatch  *int64
	maxRetries int
	hasTick    bool
	unticked   time.Duration // since the queue's last tick
	idlePeriod time.Duration // within which a ticker makes one even when nothing comes
}

func (r *run) look(ctx context.Context) (waiting, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var w waiting
	var unticked, idlePeriod float64
	err := r.pool.QueryRow(ctx, `select s.sub_queue, s.sub_id, s.sub_batch, coalesce(q.queue_max_retries, 5),
			(select t.tick_id from pgque.tick t where t.tick_queue = s.sub_queue and t.tick_id > s.sub_last_tick
				order by t.tick_queue, t.tick_id limit 1) is not null,
			coalesce(extract(epoch from pg_catalog.clock_timestamp() - (select t.tick_time from pgque.tick t
				where t.tick_queue = s.sub_queue order by t.tick_id desc limit 1)), 0)::numeric,
			extract(epoch from q.queue_ticker_idle_period)::numeric
		from pgque.queue q
		join pgque.subscription s on s.sub_queue = q.queue_id
		join pgque.consumer c on c.co_id = s.sub_consumer
		where q.queue_name = $1::text and c.co_name = $2::text`, exec, r.queue, r.name).
		Scan(&w.queueID, &w.subID, &w.openBatch, &w.maxRetries, &w.hasTick, &unticked, &idlePeriod)
	w.unticked, w.idlePeriod = seconds(unticked), seconds(idlePeriod)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotSubscribed
	}
	return w, err
}

// openSQL opens the next batch and leaves its number in a setting of the session
// for those who read it, unless it seems to be too large to be read at once. Joining it
// together from the tables again costs more than reading a small batch. To look for
// a later tick in the order of its index keeps the server from reading all ticks.
var openSQL = `select b.batch_id, b.cur_tick_event_seq - b.prev_tick_event_seq,
		(select t.tick_id from pgque.tick t where t.tick_queue = $3::text::int and t.tick_id > b.cur_tick_id
			order by t.tick_queue, t.tick_id limit 1) is not null,
		pg_catalog.set_config('pgque_events.batch', case
			when b.cur_tick_event_seq - b.prev_tick_event_seq > ` + strconv.Itoa(wholeRows) + ` then ''
			else coalesce(b.batch_id::text, '') end, false)
	from pgque.next_batch_info($1::text, $2::text) b`

// openAfterSQL is openSQL after an ackSQL that has acked.
var openAfterSQL = openSQL + " where pg_catalog.current_setting('pgque_events.acked', true) = '1'"

// cursorSQL and fetchSQL read the batch that openSQL opened, if any, in one implicit
// transaction. That takes the server two thirds of what get_batch_events takes, which
// first gathers all rows, each by a step of its own. What comes beyond wholeBytes is
// dropped, and then the batch is read again, the careful way.
const cursorSQL = `do $$
	declare
		batch bigint := nullif(pg_catalog.current_setting('pgque_events.batch', true), '');
		events refcursor := 'pgque_events';
	begin
		open events for execute case when batch is null then 'select where false' else pgque.batch_event_sql(batch) end;
	end $$`

var fetchSQL = "fetch forward " + strconv.Itoa(wholeRows) + " from pgque_events"

// carefulSQL is for a queue with large batches, and for a login that may not open a
// cursor. It reads no row when no batch was opened: the condition does not depend on
// rows, so the server looks at it before it calls the function.
var carefulSQL = wholeSQL(`(select e.* from pgque.get_batch_events(nullif(pg_catalog.current_setting('pgque_events.batch', true), '')::bigint) e
	where pg_catalog.current_setting('pgque_events.batch', true) <> '')`)

// carefulFor is how many batches are read by carefulSQL after one that was
// larger than wholeBytes.
const carefulFor = 100

// open takes the next batch, or the one that is open already, and reads it if it
// is not large, in one round trip. It returns nil when there is none.
func (r *run) open(ctx context.Context, w waiting) (*batch, error) {
	callCtx, cancel := withTimeout(ctx, 2*callTimeout)
	defer cancel()
	o := r.opening(openSQL, w)
	committed, err := oneTripAnd(callCtx, r.pool, []statement{o.open}, o.read...)
	if !committed && err != nil {
		return nil, err
	}
	b := o.end(err)
	if b == nil {
		return nil, nil
	}
	if b.reopened, err = r.isWreck(ctx, b, w.openBatch); err != nil {
		return nil, err
	}
	r.ownBatch, r.shared = b.id, false
	return b, crash.At(ctx, crash.Opened)
}

// opening is the opening of a batch: a statement to open it, and one to read it
// after the commit, for that it is open must not hang on reading it.
type opening struct {
	open statement
	read []statement

	run     *run
	batch   *batch // nil when there was none
	careful bool   // it is read by carefulSQL, which keeps to the limit
	size    int    // of what was read
}

func (r *run) opening(sql string, w waiting) *opening {
	o := &opening{run: r, careful: r.careful > 0 || !r.can.openCursor}
	o.open = statement{sql: sql, args: []string{r.queue, r.name, strconv.Itoa(w.queueID)}, row: func(row [][]byte) (err error) {
		if row[0] == nil {
			return nil
		}
		o.batch = &batch{queueID: w.queueID, subID: w.subID, maxRetries: w.maxRetries, moreTicks: string(row[2]) == "t"}
		o.batch.id, err = strconv.ParseInt(string(row[0]), 10, 64)
		o.batch.estimate, _ = strconv.ParseInt(string(row[1]), 10, 64) // NULL where the database was upgraded from an old PgQ
		return err
	}}
	switch {
	case !r.can.settleAtOnce:
	case o.careful:
		r.careful--
		o.read = []statement{{sql: carefulSQL, binary: true, row: o.row}}
	default:
		o.read = []statement{{sql: cursorSQL}, {sql: fetchSQL, binary: true, row: o.row}}
	}
	return o
}

func (o *opening) row(row [][]byte) error {
	if o.batch == nil || o.tooLarge() {
		return nil
	}
	rec, err := o.run.parse(row)
	if err != nil {
		return err
	}
	if o.size += rec.size(); o.tooLarge() {
		o.run.careful = carefulFor
		o.batch.first = nil
		return nil
	}
	o.batch.first = append(o.batch.first, rec)
	return nil
}

func (o *opening) tooLarge() bool { return !o.careful && o.size > wholeBytes }

// end gives the batch. When reading it failed it is read again, like a large one.
func (o *opening) end(failed error) *batch {
	b := o.batch
	if b == nil {
		return nil
	}
	b.haveFirst = len(o.read) > 0 && failed == nil && b.estimate <= wholeRows && !o.tooLarge() &&
		len(b.first) < wholeRows // else rows are left, and which ones they are PgQue's order alone says
	if !b.haveFirst {
		b.first = nil
	}
	byID := func(a, b *record) int { return cmp.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(b.first, byID) {
		slices.SortStableFunc(b.first, byID)
	}
	return b
}

// batchTimeout bounds a statement that goes over the batch: half a minute, and
// more for many events. A login without pgque_admin goes over the batch once
// more for each failure.
func (r *run) batchTimeout(b *batch, failures int) time.Duration {
	size := time.Duration(max(b.estimate, int64(b.seen), 0))
	d := 30*time.Second + size*time.Millisecond/2
	if !r.can.settleAtOnce {
		d += time.Duration(failures) * (10*time.Millisecond + size*50*time.Microsecond)
	} else {
		d += time.Duration(failures) * time.Millisecond
	}
	return min(d, time.Hour)
}
