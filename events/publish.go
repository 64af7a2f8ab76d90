package events

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
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

// MaxPayload sets the largest payload in bytes; 1 MiB by default.
func MaxPayload(bytes int) SendOption {
	return func(c *sendConfig) { c.maxPayload = bytes }
}

// Send sends one event and returns its id. With a pgx.Tx the event becomes
// visible when the transaction commits, and never if it does not. The event is
// checked before the round trip (ErrInvalid, ErrTooLarge); ErrQueueNotFound and
// ErrPermission (the login needs pgque_writer) come from the server.
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
// fastest. An error about one event names its index.
func SendBatch(ctx context.Context, db DB, queue string, es []Event, opts ...SendOption) ([]int64, error) {
	cfg := sendConfig{maxPayload: DefaultMaxPayload}
	for _, opt := range opts {
		opt(&cfg)
	}
	if err := checkQueue(queue); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	rows := make([]row, len(es))
	for i := range es {
		var err error
		if rows[i], err = newRow(&es[i], cfg.maxPayload); err != nil {
			return nil, fmt.Errorf("send to %q: event %d of %d (type %q): %w", queue, i, len(es), es[i].Type, err)
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	ctx, cancel := withTimeout(ctx, sendTimeout(rows))
	defer cancel()
	ids, err := send(ctx, db, queue, rows)
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

// row is an event as it goes to the server.
type row struct {
	typ     string
	data    []byte  // the event's own
	headers *string // ev_extra3; nil for none
}

func newRow(e *Event, maxPayload int) (row, error) {
	if e.err != nil {
		return row{}, fmt.Errorf("%w: %w", ErrInvalid, e.err)
	}
	if e.Type == "" {
		return row{}, fmt.Errorf("type is empty: %w", ErrInvalid)
	}
	if err := checkText("type", e.Type); err != nil {
		return row{}, err
	}
	if err := checkPayload(e.Payload, maxPayload); err != nil {
		return row{}, err
	}
	r := row{typ: e.Type, data: e.Payload}
	if len(e.Headers) > 0 {
		headers, err := encodeHeaders(e.Headers)
		if err != nil {
			return row{}, err
		}
		if len(headers) > maxPayload {
			return row{}, fmt.Errorf("headers of %d bytes, the limit is %d: %w", len(headers), maxPayload, ErrTooLarge)
		}
		r.headers = &headers
	}
	return r, nil
}

func encodeHeaders(headers map[string]string) (string, error) {
	for name, value := range headers {
		if err := checkText("header name", name); err != nil {
			return "", err
		}
		if err := checkText(fmt.Sprintf("header %q", name), value); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(headers)
	return string(data), err
}

// minRun is the number of events from which one send_batch call is cheaper than
// inserting them one by one within a larger statement: the call takes 150 µs of the
// server and a round trip, an event by itself 27 µs, one in the call 4 µs.
const minRun = 16

// send writes the rows in their order, so that ids rise with the index: long
// runs of one type by send_batch, what is between them in one statement.
func send(ctx context.Context, db DB, queue string, rows []row) ([]int64, error) {
	parts := split(rows)
	if len(parts) == 1 {
		return sendPart(ctx, db, queue, parts[0])
	}
	ids := make([]int64, 0, len(rows))
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

// parseIDs reads numbers as PostgreSQL writes an array of them, in a fifth of the
// time that pgx takes for an array of anything.
func parseIDs(array []byte) ([]int64, error) {
	text, ok := bytes.CutPrefix(array, []byte("{"))
	if ok {
		text, ok = bytes.CutSuffix(text, []byte("}"))
	}
	if !ok {
		return nil, fmt.Errorf("%q are no ids", array)
	}
	if len(text) == 0 {
		return nil, nil
	}
	ids := make([]int64, 0, bytes.Count(text, []byte(","))+1)
	for number := range bytes.SplitSeq(text, []byte(",")) {
		id, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// payloads writes the payloads as PostgreSQL writes an array. Given as a slice
// they would be encoded one by one, by reflection.
func payloads(rows []row) string {
	size := 2
	for _, r := range rows {
		size += len(r.data) + len(r.data)/4 + 3
	}
	var array strings.Builder // its bytes are not copied to become a string
	array.Grow(size)
	var element []byte
	before := byte('{')
	for _, r := range rows {
		element = appendElement(append(element[:0], before), r.data)
		array.Write(element[:len(element)-1])
		before = ','
	}
	array.WriteByte('}')
	return array.String()
}

// appendElement adds a text, and a comma, to an array.
func appendElement[T string | []byte](array []byte, text T) []byte {
	array = append(array, '"')
	from := 0
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			array = append(append(array, text[from:i]...), '\\')
			from = i
		}
	}
	return append(append(array, text[from:]...), '"', ',')
}

// closed ends an array of at least one element.
func closed(array []byte) string {
	array[len(array)-1] = '}'
	return string(array)
}

// sendTimeout is what a call may take: 15 s, and a second per megabyte.
func sendTimeout(rows []row) time.Duration {
	size := 0
	for _, r := range rows {
		size += len(r.data)
	}
	return callTimeout + time.Duration(size>>20)*time.Second
}
