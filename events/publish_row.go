package events

import (
	"encoding/json"
	"fmt"
)

// row is an event as it goes to the server.
type row struct {
	typ     string
	data    []byte  // the event's own
	headers *string // ev_extra3; nil for none
}

// size is what the event is in bytes.
func (r *row) size() int {
	size := len(r.typ) + len(r.data)
	if r.headers != nil {
		size += len(*r.headers)
	}
	return size
}

// maxType is the longest type in bytes. PgQue has no limit, but a type is a name, which
// stands in every log line and error about its events.
const maxType = 1024

// maxEvent is how many bytes an event has at most, whatever [MaxPayload] says: what
// is quoted on the way to the server may take twice as many, of at most 1 GB.
const maxEvent = 500 << 20

func newRow(e *Event, maxPayload int) (row, error) {
	if e.err != nil {
		return row{}, fmt.Errorf("%w: %w", ErrInvalid, e.err)
	}
	switch {
	case e.Type == "":
		return row{}, fmt.Errorf("type is empty: %w", ErrInvalid)
	case len(e.Type) > maxType:
		return row{}, fmt.Errorf("type of %d bytes, the limit is %d: %w", len(e.Type), maxType, ErrTooLarge)
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
	if r.size() > maxEvent {
		return row{}, fmt.Errorf("event of %d bytes, and PostgreSQL takes no statement of 1 GB: %w", r.size(), ErrTooLarge)
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
