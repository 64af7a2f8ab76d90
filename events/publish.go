package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DefaultMaxPayload is the largest payload in bytes that is sent unless
// [MaxPayload] says otherwise. PgQue itself has no limit, but every consumer has
// to hold the payload in memory.
const DefaultMaxPayload = 1 << 20

// SendOption changes how [Send] and [SendBatch] work.
type SendOption func(*sendConfig)

type sendConfig struct{ maxPayload int }

// MaxPayload sets the largest payload in bytes, and the largest headers, as JSON;
// [DefaultMaxPayload] by default. With 0 or less every event is refused.
func MaxPayload(bytes int) SendOption {
	return func(c *sendConfig) { c.maxPayload = bytes }
}

// Send sends one event and returns its id. With a pgx.Tx the event becomes
// visible when the transaction commits, and never if it does not. The event is
// checked before the round trip (ErrInvalid, ErrTooLarge); ErrQueueNotFound and
// ErrPermission (the login needs pgque_writer) come from the server.
//
// It gives up after 15 s, and a second for each MiB. As with any context that ends
// during a call, pgx closes the connection then, and the transaction is rolled back.
//
// Don't send and tick in one transaction: the tick does not see the event.
func Send(ctx context.Context, db DB, queue string, e Event, opts ...SendOption) (int64, error) {
	ids, err := SendBatch(ctx, db, queue, []Event{e}, opts...)
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// SendBatch sends the events in one transaction, all or none, and returns their
// ids in the order of the events. Long runs of one type without headers are
// fastest. An error about one of several events names its index, from 0.
func SendBatch(ctx context.Context, db DB, queue string, es []Event, opts ...SendOption) ([]int64, error) {
	cfg := sendConfig{maxPayload: DefaultMaxPayload}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := checkQueue(queue); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	rows, size := make([]row, len(es)), 0
	for i := range es {
		var err error
		if rows[i], err = newRow(&es[i], cfg.maxPayload); err != nil {
			which := fmt.Sprintf("event of type %.100q", es[i].Type)
			if len(es) > 1 {
				which = fmt.Sprintf("event %d of %d (type %.100q)", i, len(es), es[i].Type)
			}
			return nil, fmt.Errorf("send to %q: %s: %w", queue, which, err)
		}
		size += rows[i].size()
	}
	if len(rows) == 0 {
		return nil, nil
	}
	ctx, cancel := withTimeout(ctx, sendTimeout(size))
	defer cancel()
	ids, err := send(ctx, db, queue, rows, size)
	return ids, wrap(err, "send %d events to %q", len(es), queue)
}

// Check says what [Send] would refuse about an event before it asks the database:
// ErrInvalid, ErrTooLarge, or nil. Send and SendBatch check by themselves.
func Check(e Event, opts ...SendOption) error {
	cfg := sendConfig{maxPayload: DefaultMaxPayload}
	for _, opt := range opts {
		opt(&cfg)
	}
	_, err := newRow(&e, cfg.maxPayload)
	return err
}

// minRun is the number of events from which one send_batch call is cheaper than
// inserting them one by one within a larger statement: the call takes 150 µs of the
// server and a round trip, an event by itself 27 µs, one in the call 4 µs.
const minRun = 16

// maxStatement is how many bytes of events one statement carries at most, unless one
// event alone has more. PostgreSQL takes no message of 1 GB, and what a statement
// carries is in memory several times.
const maxStatement = 32 << 20

// send writes the rows in their order, so that ids rise with the index: long
// runs of one type by send_batch, what is between them in one statement.
func send(ctx context.Context, db DB, queue string, rows []row, size int) ([]int64, error) {
	parts := split(rows)
	if size > maxStatement {
		parts = cut(parts, maxStatement)
	}
	if len(parts) == 1 {
		return sendAlone(ctx, db, queue, parts[0])
	}
	return sendParts(ctx, db, queue, parts)
}

// sendAlone sends a part as a statement without a transaction around it, which takes
// one round trip. Where transactions are read-only unless they say otherwise, it is
// sent once more in one that does; in the caller's transaction nothing can be said.
func sendAlone(ctx context.Context, db DB, queue string, part []row) ([]int64, error) {
	ids, err := sendPart(ctx, db, queue, part)
	_, opens := db.(opener)
	if !opens || sqlState(err) != "25006" {
		return ids, err
	}
	ids, again := sendParts(ctx, db, queue, [][]row{part})
	switch {
	case sqlState(again) == "25P02": // a caller who began a transaction by hand is in it, and it has failed
		return nil, err
	case errors.Is(again, ErrReadOnly): // it says why: the server is a standby
		return nil, fmt.Errorf("%w: %w, and when told to write: %w", ErrReadOnly, err, again)
	}
	return ids, again
}

func sendParts(ctx context.Context, db DB, queue string, parts [][]row) ([]int64, error) {
	var ids []int64
	err := inTx(ctx, db, func(tx pgx.Tx) error {
		for _, part := range parts {
			got, err := sendPart(ctx, tx, queue, part)
			if err != nil {
				return err
			}
			ids = append(ids, got...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// split cuts the rows into parts that one statement can send.
func split(rows []row) [][]row {
	var parts [][]row
	mixedFrom := 0 // where the rows begin that no long run has taken
	for i := 0; i < len(rows); {
		end := i + 1
		for end < len(rows) && rows[i].headers == nil && rows[end].headers == nil && rows[end].typ == rows[i].typ {
			end++
		}
		if end-i >= minRun || end-i == len(rows) {
			if mixedFrom < i {
				parts = append(parts, rows[mixedFrom:i])
			}
			parts = append(parts, rows[i:end])
			mixedFrom = end
		}
		i = end
	}
	if mixedFrom < len(rows) {
		parts = append(parts, rows[mixedFrom:])
	}
	return parts
}

// cut makes several parts of one that has more than limit bytes.
func cut(parts [][]row, limit int) [][]row {
	var pieces [][]row
	for _, part := range parts {
		from, size := 0, 0
		for i := range part {
			if size += part[i].size(); size > limit && i > from {
				pieces = append(pieces, part[from:i])
				from, size = i, part[i].size()
			}
		}
		pieces = append(pieces, part[from:])
	}
	return pieces
}

func sendPart(ctx context.Context, db DB, queue string, rows []row) ([]int64, error) {
	if uniform(rows) {
		return sendRun(ctx, db, queue, rows)
	}
	return sendMixed(ctx, db, queue, rows)
}

func uniform(rows []row) bool {
	for _, r := range rows {
		if r.headers != nil || r.typ != rows[0].typ {
			return false
		}
	}
	return true
}

func sendRun(ctx context.Context, db DB, queue string, rows []row) ([]int64, error) {
	// text[], not jsonb[]: the server would parse and print every payload anew.
	ids, err := queryIDs(ctx, db, "select pgque.send_batch($1::text, $2::text, $3::text[]) where "+inUTF8, queue, rows[0].typ, payloads(rows))
	if err == nil && len(ids) != len(rows) {
		err = fmt.Errorf("send_batch returned %d ids for %d events", len(ids), len(rows))
	}
	return ids, err
}

func sendMixed(ctx context.Context, db DB, queue string, rows []row) ([]int64, error) {
	types, headers := []byte{'{'}, []byte{'{'}
	for _, r := range rows {
		types = appendElement(types, r.typ)
		if r.headers == nil {
			headers = append(headers, "NULL,"...)
		} else {
			headers = appendElement(headers, *r.headers)
		}
	}
	// extra1 and extra2 belong to upstream's next version (partition and
	// idempotency keys), so headers are in extra3.
	return queryIDs(ctx, db, `select array(select pgque.insert_event($1::text, u.typ, u.data, null, null, u.headers, null)
		from unnest($2::text[], $3::text[], $4::text[]) with ordinality as u(typ, data, headers, ord)) where `+inUTF8,
		queue, closed(types), payloads(rows), closed(headers))
}

// queryIDs reads the array of ids that a statement returns, which is no row where
// inUTF8 forbids it.
func queryIDs(ctx context.Context, db DB, sql string, args ...any) ([]int64, error) {
	rows, err := db.Query(ctx, sql, append([]any{exec, pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() && err == nil {
		ids, err = parseIDs(rows.RawValues()[0])
	}
	rows.Close()
	if rows.Err() != nil {
		err = rows.Err()
	}
	if err == nil && rows.CommandTag().RowsAffected() == 0 {
		err = errNotUTF8
	}
	return ids, err
}

// sendTimeout is what a call may take: 15 s, and a second per megabyte.
func sendTimeout(size int) time.Duration {
	return callTimeout + time.Duration(size>>20)*time.Second
}
