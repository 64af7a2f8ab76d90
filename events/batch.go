package events

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
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
	subID      int
	reopened   bool      // it was open before this run asked: its last holder may have crashed
	moreTicks  bool      // another batch was waiting when this one was opened
	seen       int       // events read so far
	first      []*record // read in the round trip that opened it
	haveFirst  bool
	firstLimit int // the most rows that first can hold
}

// record is an event as PgQue stores it: Event, and what is needed to write it
// back unchanged.
type record struct {
	Event
	typ                            *string
	txid                           uint64
	retry                          *int32
	extra1, extra2, extra3, extra4 *string
}

// attemptsSpent says that one more failure makes a dead letter of it.
func (r *record) attemptsSpent(maxRetries int) bool { return r.Attempt > maxRetries }

// epoch is where PostgreSQL counts its times from.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

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
			exists (select from pgque.tick t where t.tick_queue = s.sub_queue and t.tick_id > s.sub_last_tick),
			coalesce(extract(epoch from pg_catalog.clock_timestamp() - (select t.tick_time from pgque.tick t
				where t.tick_queue = s.sub_queue order by t.tick_id desc limit 1)), 0)::float8,
			extract(epoch from q.queue_ticker_idle_period)::float8
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

// openSQL opens the next batch and leaves its number and how many rows to read in
// settings of the transaction for firstSQL, unless it seems to be too large to be
// read at once. Joining it together from the tables again costs more than reading
// a small batch. The estimate may be too low, so twice as many are read.
var openSQL = `select b.batch_id, b.cur_tick_event_seq - b.prev_tick_event_seq,
		exists (select from pgque.tick t where t.tick_queue = $3::text::int and t.tick_id > b.cur_tick_id),
		pg_catalog.set_config('pgque_events.batch', case
			when coalesce(b.cur_tick_event_seq - b.prev_tick_event_seq, 0) <= ` + strconv.Itoa(wholeRows) + ` then b.batch_id::text
			else '' end, true),
		pg_catalog.set_config('pgque_events.rows', greatest(100, 2 * coalesce(b.cur_tick_event_seq - b.prev_tick_event_seq, 0))::text, true)
	from pgque.next_batch_info($1::text, $2::text) b where b.batch_id is not null`

// opened is the batch that openSQL left, or no row: the condition does not depend
// on rows, so the server looks at it before it calls the function.
const opened = `(select e.* from pgque.get_batch_events(nullif(pg_catalog.current_setting('pgque_events.batch', true), '')::bigint) e
	where pg_catalog.current_setting('pgque_events.batch', true) <> '')`

// firstSQL reads the batch that openSQL opened. To sum sizes up, as wholeSQL does,
// takes a third of the time that the rows themselves take. So each payload has an
// equal share of wholeBytes, and one that is larger is left out, with a mark: then
// the batch is read again by wholeSQL.
var firstSQL = strings.Replace(columns, "ev_data", "case when octet_length(ev_data) <= "+share+" then ev_data end", 1) + `,
		octet_length(ev_data) > ` + share + ` as left_out
	from ` + opened + ` e order by ev_id limit (select pg_catalog.current_setting('pgque_events.rows', true)::bigint)`

// share is a sub-select so that it is worked out once, not for each row.
var share = "(select " + strconv.Itoa(wholeBytes) + " / pg_catalog.current_setting('pgque_events.rows', true)::bigint)"

// firstUnevenSQL is for a queue whose payloads are of very different sizes.
var firstUnevenSQL = wholeSQL(opened)

// unevenFor is how many batches are read by firstUnevenSQL after one in which a
// payload was left out.
const unevenFor = 100

// open takes the next batch, or the one that is open already, and reads it if it
// is not large, in one round trip. It returns nil when there is none.
func (r *run) open(ctx context.Context, w waiting) (*batch, error) {
	callCtx, cancel := withTimeout(ctx, 2*callTimeout)
	defer cancel()
	var b *batch
	leftOut := false
	statements := []statement{{sql: openSQL, args: []string{r.queue, r.name, strconv.Itoa(w.queueID)}, row: func(row [][]byte) (err error) {
		b = &batch{maxRetries: w.maxRetries, subID: w.subID, moreTicks: string(row[2]) == "t"}
		b.id, err = strconv.ParseInt(string(row[0]), 10, 64)
		b.estimate, _ = strconv.ParseInt(string(row[1]), 10, 64) // NULL where the database was upgraded from an old PgQ
		return err
	}}}
	even := r.uneven == 0
	if r.can.settleAtOnce {
		sql := firstSQL
		if !even {
			r.uneven--
			sql = firstUnevenSQL
		}
		statements = append(statements, statement{sql: sql, binary: true, row: func(row [][]byte) error {
			if len(row) == 11 {
				leftOut = leftOut || len(row[10]) == 1 && row[10][0] == 1
				row = row[:10]
			}
			rec, err := r.parse(row)
			b.first = append(b.first, rec)
			return err
		}})
	}
	if err := oneTrip(callCtx, r.pool, statements...); err != nil || b == nil {
		return nil, err
	}
	var err error
	if b.reopened, err = r.isWreck(callCtx, b, w.openBatch); err != nil {
		return nil, err
	}
	r.ownBatch, r.shared = b.id, false
	b.haveFirst = r.can.settleAtOnce && b.estimate <= wholeRows && !leftOut
	if b.firstLimit = wholeRows; even {
		b.firstLimit = int(max(100, 2*b.estimate))
	}
	if leftOut {
		b.first, r.uneven = nil, unevenFor
	}
	return b, crash.At(ctx, crash.Opened)
}

// reader reads a batch in id order, whole or in pieces. Each piece is a statement
// of its own, so none is open while handlers run.
type reader struct {
	run    *run
	batch  *batch
	source string   // a query that gives the batch's rows
	args   []string // of source
	last   int64    // the highest id read
	bounds []int64  // the highest ids of the pieces that are left
	pieces bool     // bounds is valid
	done   bool
}

func (r *run) read(b *batch) *reader {
	rd := &reader{run: r, batch: b, last: math.MinInt64}
	rd.source, rd.args = "pgque.get_batch_events($1::bigint)", []string{strconv.FormatInt(b.id, 10)}
	if !r.can.settleAtOnce {
		// receive is all that pgque_reader may call. It must be given no limit
		// that cuts the batch: what it leaves out, the ack would lose.
		rd.source = `(select msg_id as ev_id, created_at as ev_time, 0::bigint as ev_txid, retry_count as ev_retry, type as ev_type,
			payload as ev_data, extra1 as ev_extra1, extra2 as ev_extra2, extra3 as ev_extra3, extra4 as ev_extra4
			from pgque.receive($1::text, $2::text, 2147483647) where batch_id = $3::bigint)`
		rd.args = []string{r.queue, r.name, strconv.FormatInt(b.id, 10)}
	}
	return rd
}

// next reads the next piece; none are left when it returns no record.
func (rd *reader) next(ctx context.Context) ([]*record, error) {
	var records []*record
	for len(records) == 0 && !rd.done {
		var err error
		if records, err = rd.retried(ctx); err != nil {
			return nil, err
		}
	}
	rd.batch.seen += len(records)
	return records, crash.At(ctx, crash.Received)
}

// retried reads once more what could not be read: that changes nothing, while
// giving up would run the handlers of earlier pieces again.
func (rd *reader) retried(ctx context.Context) (records []*record, err error) {
	ctx, cancel := withTimeout(ctx, rd.run.batchTimeout(rd.batch, 0))
	defer cancel()
	for tries := 1; ; tries++ {
		if records, err = rd.piece(ctx); err == nil || tries == 5 || ctx.Err() != nil {
			return records, err
		}
		sleep(ctx, grow(20*time.Millisecond, 3, time.Second, tries))
	}
}

func (rd *reader) piece(ctx context.Context) ([]*record, error) {
	if !rd.pieces && (rd.batch.estimate > wholeRows || rd.last > math.MinInt64) {
		if err := rd.cut(ctx); err != nil {
			return nil, err
		}
	}
	if !rd.pieces {
		return rd.whole(ctx)
	}
	if len(rd.bounds) == 0 {
		rd.done = true
		return nil, nil
	}
	n := len(rd.args)
	records, err := rd.query(ctx, columns+" from "+rd.source+" s where ev_id > $"+strconv.Itoa(n+1)+"::bigint and ev_id <= $"+strconv.Itoa(n+2)+"::bigint order by ev_id",
		strconv.FormatInt(rd.last, 10), strconv.FormatInt(rd.bounds[0], 10))
	if err != nil {
		return nil, err
	}
	rd.last, rd.bounds = rd.bounds[0], rd.bounds[1:]
	rd.done = len(rd.bounds) == 0
	return records, nil
}

// columns are read in binary form: the text of a time depends on settings.
const columns = "select ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4"

// wholeSQL reads a batch in one go, up to a limit in rows and one in bytes. The
// server keeps to it by a running sum: it sends no more than that and one row.
func wholeSQL(source string) string {
	row, rows, bytes := strconv.Itoa(rowBytes), strconv.Itoa(wholeRows), strconv.Itoa(wholeBytes)
	return columns + `
		from (select e.*, sum(coalesce(octet_length(ev_data), 0) + ` + row + `) over (order by ev_id rows unbounded preceding)
				- coalesce(octet_length(ev_data), 0) - ` + row + ` as before
			from (select * from ` + source + ` s order by ev_id limit ` + rows + `) e) w
		where before < ` + bytes + ` order by ev_id`
}

func (rd *reader) whole(ctx context.Context) (records []*record, err error) {
	limit := wholeRows
	if rd.batch.haveFirst {
		records, rd.batch.first = rd.batch.first, nil
		limit = rd.batch.firstLimit
	} else if records, err = rd.query(ctx, wholeSQL(rd.source)); err != nil {
		return nil, err
	}
	size := 0
	for _, rec := range records {
		size += len(rec.Payload) + rowBytes
	}
	// The server counts in its own encoding, in which a text may be longer than in
	// ours. Where that could matter, look once more.
	rd.done = len(records) < limit && size < wholeBytes/2
	if len(records) > 0 {
		rd.last = records[len(records)-1].ID
	}
	return records, nil
}

// cut finds where to cut the rest of a large batch, in one pass over ids and
// sizes. From here on it uses the query behind get_batch_events, if it may: the
// function builds the whole batch for each piece, the query does not.
func (rd *reader) cut(ctx context.Context) error {
	if rd.run.can.rawSQL && rd.run.can.settleAtOnce && len(rd.args) > 0 {
		var sql string
		if err := rd.run.pool.QueryRow(ctx, "select pgque.batch_event_sql($1::bigint)", exec, rd.batch.id).Scan(&sql); err != nil {
			return err
		}
		rd.source, rd.args = "("+sql+")", nil
	}
	n := len(rd.args)
	args := []any{exec}
	for _, arg := range rd.args {
		args = append(args, arg)
	}
	args = append(args, rd.last, chunkBytes)
	// "offset 0" keeps the payloads themselves out of the sort.
	found, err := rd.run.pool.Query(ctx, `select max(ev_id) from (
			select ev_id, (sum(size) over (order by ev_id rows unbounded preceding) - size) / $`+strconv.Itoa(n+2)+`::bigint as piece
			from (select ev_id, coalesce(octet_length(ev_data), 0)::bigint + `+strconv.Itoa(rowBytes)+` as size
				from `+rd.source+` s where ev_id > $`+strconv.Itoa(n+1)+`::bigint offset 0) sizes) pieces
		group by trunc(piece) order by 1`, args...)
	if err != nil {
		return err
	}
	rd.bounds, err = pgx.CollectRows(found, pgx.RowTo[int64])
	rd.pieces = err == nil
	return err
}

func (rd *reader) query(ctx context.Context, sql string, args ...string) ([]*record, error) {
	conn, err := rd.run.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	st := statement{sql: sql, args: append(slices.Clone(rd.args), args...), binary: true}
	rows := conn.Conn().PgConn().ExecParams(ctx, st.sql, st.values(), nil, nil, st.formats())
	var records []*record
	for rows.NextRow() {
		rec, err := rd.run.parse(rows.Values())
		if err != nil {
			_, _ = rows.Close()
			return nil, err
		}
		records = append(records, rec)
	}
	_, err = rows.Close()
	return records, err
}

// parse reads a row of columns and keeps nothing of it.
func (r *run) parse(row [][]byte) (*record, error) {
	if len(row) != 10 || len(row[0]) != 8 || len(row[1]) != 8 || row[3] != nil && len(row[3]) != 4 {
		return nil, errors.New("events have columns of other types than PgQue's")
	}
	rec := &record{typ: optional(row[4]),
		extra1: optional(row[6]), extra2: optional(row[7]), extra3: optional(row[8]), extra4: optional(row[9])}
	rec.ID = int64(binary.BigEndian.Uint64(row[0]))
	rec.Time = epoch.Add(time.Duration(binary.BigEndian.Uint64(row[1])) * time.Microsecond)
	if len(row[2]) == 8 {
		rec.txid = binary.BigEndian.Uint64(row[2])
	}
	if row[3] != nil {
		retry := int32(binary.BigEndian.Uint32(row[3]))
		rec.retry = &retry
	}
	rec.Payload = bytes.Clone(row[5])
	r.complete(rec)
	return rec, nil
}

// optional is nil for NULL.
func optional(value []byte) *string {
	if value == nil {
		return nil
	}
	s := string(value)
	return &s
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
