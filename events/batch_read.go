package events

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

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

// texts are the columns that can be of any size.
var texts = []string{"ev_data", "ev_extra1", "ev_extra2", "ev_extra3", "ev_extra4"}

// sizeSQL is the size of a row in memory, roughly.
var sizeSQL = func() string {
	sum := strconv.Itoa(rowBytes)
	for _, text := range texts {
		sum += "::bigint + coalesce(octet_length(" + text + "), 0)"
	}
	return "(" + sum + ")"
}()

// size is what sizeSQL says of it.
func (r *record) size() int {
	n := rowBytes + len(r.Payload)
	for _, extra := range []*string{r.extra1, r.extra2, r.extra3, r.extra4} {
		if extra != nil {
			n += len(*extra)
		}
	}
	return n
}

// wholeSQL reads a batch in one go, up to a limit in rows and one in bytes. The
// server keeps to it by a running sum: it sends no more than that and one row.
func wholeSQL(source string) string {
	rows, bytes := strconv.Itoa(wholeRows), strconv.Itoa(wholeBytes)
	return columns + `
		from (select e.*, sum(` + sizeSQL + `) over (order by ev_id rows unbounded preceding) - ` + sizeSQL + ` as before
			from (select * from ` + source + ` s order by ev_id limit ` + rows + `) e) w
		where before < ` + bytes + ` order by ev_id`
}

func (rd *reader) whole(ctx context.Context) (records []*record, err error) {
	if rd.batch.haveFirst {
		records, rd.batch.first = rd.batch.first, nil
	} else if records, err = rd.query(ctx, wholeSQL(rd.source)); err != nil {
		return nil, err
	}
	size := 0
	for _, rec := range records {
		size += rec.size()
	}
	// The server counts in its own encoding, in which a text may be longer than in
	// ours. Where that could matter, look once more.
	rd.done = len(records) < wholeRows && size < wholeBytes/2
	if len(records) > 0 {
		rd.last = records[len(records)-1].ID
	}
	return records, nil
}

// cut finds where to cut the rest of a large batch, in one pass over ids and
// sizes. From here on it uses the query behind get_batch_events: the
// function builds the whole batch for each piece, the query does not.
func (rd *reader) cut(ctx context.Context) error {
	if rd.run.can.settleAtOnce && len(rd.args) > 0 {
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
			from (select ev_id, `+sizeSQL+` as size
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
