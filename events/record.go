package events

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// record is an event as PgQue stores it: Event, and what is needed to write it
// back unchanged.
type record struct {
	Event                          // the handler's, who may overwrite it
	id                             int64
	attempt                        int
	typ                            *string
	txid                           uint64
	retry                          *int32
	extra1, extra2, extra3, extra4 *string

	context handlerContext // of its handler, if one is called
}

// attemptsSpent says that one more failure makes a dead letter of it.
func (r *record) attemptsSpent(maxRetries int) bool { return r.attempt > maxRetries }

// epoch is where PostgreSQL counts its times from.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// parse reads a row of columns and keeps nothing of it.
func (r *run) parse(row [][]byte) (*record, error) {
	if len(row) != 10 || len(row[0]) != 8 || len(row[1]) != 8 || row[3] != nil && len(row[3]) != 4 {
		return nil, errors.New("events have columns of other types than PgQue's")
	}
	rec := r.newRecord()
	rec.typ = r.eventType(row[4])
	rec.extra1, rec.extra2, rec.extra3, rec.extra4 = optional(row[6]), optional(row[7]), optional(row[8]), optional(row[9])
	rec.id = int64(binary.BigEndian.Uint64(row[0]))
	rec.ID = rec.id
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

// slab is how many records are made at once. A handler that keeps an event keeps
// them all in memory, without their payloads.
const slab = 32

func (r *run) newRecord() *record {
	if len(r.records) == 0 {
		r.records = make([]record, slab)
	}
	rec := &r.records[0]
	r.records = r.records[1:]
	return rec
}

// eventType is optional for types: mostly the one of the event before.
func (r *run) eventType(value []byte) *string {
	if value == nil || r.lastType == nil || *r.lastType != string(value) {
		r.lastType = optional(value)
	}
	return r.lastType
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
	rec.attempt = 1
	if rec.retry != nil {
		rec.attempt = int(*rec.retry) + 1
	}
	rec.Attempt = rec.attempt
	if rec.typ != nil {
		rec.Type = *rec.typ
	}
	if rec.extra3 != nil {
		rec.Headers = parseHeaders(*rec.extra3)
	}
}

// parseHeaders reads ev_extra3. Other programs may keep anything there: what is no JSON
// object gives no headers, and a value that is no string gives its JSON text.
func parseHeaders(extra3 string) map[string]string {
	var headers map[string]string
	if json.Unmarshal([]byte(extra3), &headers) == nil {
		return headers
	}
	var values map[string]json.RawMessage
	if json.Unmarshal([]byte(extra3), &values) != nil {
		return nil
	}
	headers = make(map[string]string, len(values))
	for name, value := range values {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		headers[name] = text
	}
	return headers
}
