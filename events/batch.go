package events

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// How much of a batch is in memory at once. A batch can be of any size: one
// large transaction, or a ticker that was down, makes one batch of it all.
const (
	wholeBytes = 16 << 20 // a batch up to this is read in one go
	chunkBytes = 5 << 20  // a larger one in pieces of this
	wholeRows  = 20_000   // more than this is not even tried in one go
	chunkRows  = 4_000    // the first piece; later ones fit chunkBytes
	rowBytes   = 300      // what an event takes beside its payload, roughly
)

// batch is what lies between two ticks, opened for this consumer.
type batch struct {
	id         int64
	estimate   int64 // number of events, by the queue's sequence; may be far off
	maxRetries int
	subID      int
	reopened   bool // it was open before this run asked: its last holder may have crashed
	seen       int  // events read so far
}

// record is an event as PgQue stores it: Event, and what is needed to write it
// back unchanged.
type record struct {
	Event
	typ                            *string
	txid                           string
	retry                          *int32
	extra1, extra2, extra3, extra4 *string
}

// attemptsSpent says that one more failure makes a dead letter of it.
func (r *record) attemptsSpent(maxRetries int) bool { return r.Attempt > maxRetries }

// waiting is the look that an idle consumer repeats. It reads two public tables
// and takes no transaction id, where an empty receive writes each time.
type waiting struct {
	subID      int
	openBatch  *int64
	maxRetries int
	hasTick    bool
}

func (r *run) look(ctx context.Context) (waiting, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var w waiting
	err := r.pool.QueryRow(ctx, `select s.sub_id, s.sub_batch, coalesce(q.queue_max_retries, 5),
			exists (select from pgque.tick t where t.tick_queue = s.sub_queue and t.tick_id > s.sub_last_tick)
		from pgque.queue q
		join pgque.subscription s on s.sub_queue = q.queue_id
		join pgque.consumer c on c.co_id = s.sub_consumer
		where q.queue_name = $1::text and c.co_name = $2::text`, exec, r.queue, r.name).
		Scan(&w.subID, &w.openBatch, &w.maxRetries, &w.hasTick)
	if err == pgx.ErrNoRows {
		err = ErrNotSubscribed
	}
	return w, err
}

// open takes the next batch, or the one that is open already. It returns nil
// when there is none.
func (r *run) open(ctx context.Context, w waiting) (*batch, error) {
	callCtx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	b := &batch{maxRetries: w.maxRetries, subID: w.subID}
	var id, estimate *int64
	err := inTx(callCtx, r.pool, func(tx pgx.Tx) error {
		return tx.QueryRow(callCtx, `select batch_id, cur_tick_event_seq - prev_tick_event_seq
			from pgque.next_batch_info($1::text, $2::text)`, exec, r.queue, r.name).Scan(&id, &estimate)
	})
	if err != nil || id == nil {
		return nil, err
	}
	b.id = *id
	if estimate != nil {
		b.estimate = *estimate
	}
	b.reopened = w.openBatch != nil && *w.openBatch != r.ownBatch
	r.ownBatch = b.id
	return b, crash.At(ctx, crash.Opened)
}

// reader reads a batch in id order, whole or in pieces. Each piece is a statement
// of its own, so none is open while handlers run.
type reader struct {
	run    *run
	batch  *batch
	source string // a query that gives the batch's rows
	args   []any  // of source
	rows   int    // most rows of the next piece
	bytes  int    // most bytes of the next piece
	last   int64  // the highest id read
	done   bool
}

func (r *run) read(b *batch) *reader {
	rd := &reader{run: r, batch: b, last: -1 << 63}
	rd.source, rd.args = "pgque.get_batch_events($1::bigint)", []any{b.id}
	rd.rows, rd.bytes = wholeRows, wholeBytes
	if b.estimate > wholeRows {
		rd.rows, rd.bytes = chunkRows, chunkBytes
	}
	if !r.can.settleAtOnce {
		// receive is all that pgque_reader may call. It must be given no limit
		// that cuts the batch: what it leaves out, the ack would lose.
		rd.source = `(select msg_id as ev_id, created_at as ev_time, 0 as ev_txid, retry_count as ev_retry, type as ev_type,
			payload as ev_data, extra1 as ev_extra1, extra2 as ev_extra2, extra3 as ev_extra3, extra4 as ev_extra4
			from pgque.receive($1::text, $2::text, 2147483647) where batch_id = $3::bigint)`
		rd.args = []any{r.queue, r.name, b.id}
	}
	return rd
}

// next reads the next piece; none are left when it returns no record.
func (rd *reader) next(ctx context.Context) ([]*record, error) {
	if rd.done {
		return nil, nil
	}
	callCtx, cancel := withTimeout(ctx, rd.run.batchTimeout(rd.batch, 0))
	defer cancel()
	var records []*record
	var size int
	// Reading again changes nothing, while giving up would run the handlers of
	// the pieces before this one again.
	for tries := 1; ; tries++ {
		err := rd.useRawSQL(callCtx)
		if err == nil {
			records, size, err = rd.query(callCtx)
		}
		if err == nil {
			break
		}
		if tries == 5 || callCtx.Err() != nil {
			return nil, err
		}
		sleep(callCtx, grow(20*time.Millisecond, 3, time.Second, tries))
	}
	rd.done = len(records) < rd.rows && size < rd.bytes
	if len(records) > 0 {
		rd.last = records[len(records)-1].ID
		rd.batch.seen += len(records)
		rd.bytes = chunkBytes
		rd.rows = min(max(chunkBytes/(size/len(records)+1), 16), 50_000)
	}
	return records, crash.At(ctx, crash.Received)
}

// useRawSQL changes a large batch over to the query behind get_batch_events:
// the function builds the whole batch for each piece, the query does not.
func (rd *reader) useRawSQL(ctx context.Context) error {
	if rd.bytes != chunkBytes || !rd.run.can.rawSQL || !rd.run.can.settleAtOnce || len(rd.args) == 0 {
		return nil
	}
	var sql string
	err := rd.run.pool.QueryRow(ctx, "select pgque.batch_event_sql($1::bigint)", exec, rd.batch.id).Scan(&sql)
	if err != nil {
		return err
	}
	rd.source, rd.args = "("+sql+")", nil
	return nil
}

func (rd *reader) query(ctx context.Context) ([]*record, int, error) {
	// The running sum is the server's: it sends no more bytes than were asked
	// for, but always one row.
	n := len(rd.args)
	sql := `select ev_id, floor(extract(epoch from ev_time) * 1000000)::bigint, ev_txid::text, ev_retry, ev_type, ev_data,
			ev_extra1, ev_extra2, ev_extra3, ev_extra4
		from (select e.*, sum(coalesce(octet_length(ev_data), 0) + ` + strconv.Itoa(rowBytes) + `) over (order by ev_id rows unbounded preceding)
				- coalesce(octet_length(ev_data), 0) as before
			from (select * from ` + rd.source + ` s where ev_id > $` + strconv.Itoa(n+1) + `::bigint order by ev_id limit $` + strconv.Itoa(n+2) + `::bigint) e) w
		where before < $` + strconv.Itoa(n+3) + `::bigint order by ev_id`
	args := append([]any{exec}, rd.args...)
	found, err := rd.run.pool.Query(ctx, sql, append(args, rd.last, rd.rows, rd.bytes)...)
	if err != nil {
		return nil, 0, err
	}
	size := 0
	var records []*record
	var at int64
	rec := new(record)
	into := []any{&rec.ID, &at, &rec.txid, &rec.retry, &rec.typ, (*[]byte)(&rec.Payload), &rec.extra1, &rec.extra2, &rec.extra3, &rec.extra4}
	_, err = pgx.ForEachRow(found, into, func() error {
		copied := *rec
		copied.Time = time.UnixMicro(at)
		rd.run.complete(&copied)
		records = append(records, &copied)
		size += len(copied.Payload) + rowBytes
		return nil
	})
	return records, size, err
}

// complete fills in what is derived from the stored row.
func (r *run) complete(rec *record) {
	rec.Queue, rec.Consumer = r.queue, r.name
	rec.Attempt = 1
	if rec.retry != nil {
		rec.Attempt = int(*rec.retry) + 1
	}
	if rec.typ != nil {
		rec.Type = *rec.typ
	}
	if rec.extra3 != nil {
		// What others keep in extra3 is theirs: no JSON object means no headers.
		_ = json.Unmarshal([]byte(*rec.extra3), &rec.Headers)
	}
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
