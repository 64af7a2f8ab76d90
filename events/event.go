package events

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Event is one event. To send one, fill Type, Payload and perhaps Headers, or
// let [Type.New] do it; the other fields are set on events that are received.
type Event struct {
	// Type says what happened, such as "ticket.welcome"; handlers are found by it.
	// It is sent in at most 1,024 bytes, and "" for an event that was sent without one.
	Type string
	// Payload is JSON text. It is nil for an event that was sent with NULL, and
	// can be any text when another program sent it.
	Payload json.RawMessage
	// Headers travel beside the payload, in ev_extra3, as a JSON object: a trace
	// context, [IdempotencyKey]. An event with headers takes about ten times as
	// long to send as one of many without.
	Headers map[string]string

	// ID is the queue's own number of the event. A retried event keeps it.
	ID int64
	// Time is when it was sent: the start of the sender's transaction.
	Time time.Time
	// Attempt is 1 at the first delivery and grows with each retry.
	Attempt int
	// Queue and Consumer say through which subscription it came.
	Queue, Consumer string

	err error // why New could not encode the payload; reported by Send
}

// IdempotencyKey is the header that names the cause of an event, such as the
// id of the job that sends it. [HandleTx] does the work of one key once for each
// type of event.
const IdempotencyKey = "idempotency-key"

// Type describes the events of one type: its name and the Go type of its
// payload. Make one with [Define].
type Type[T any] struct{ name string }

// Define describes events of the type name whose payload is a T, as JSON. Keep
// it in a package that publisher and consumer share.
func Define[T any](name string) Type[T] { return Type[T]{name: name} }

// Name is the event type's name.
func (t Type[T]) Name() string { return t.name }

// New makes an event to send. A payload that cannot be encoded as JSON is
// reported by Send.
func (t Type[T]) New(payload T) Event {
	data, err := json.Marshal(payload)
	return Event{Type: t.name, Payload: data, err: err}
}

// Decode reads the payload of an event of this type.
func (t Type[T]) Decode(e *Event) (T, error) {
	var payload T
	if e.Payload == nil {
		return payload, fmt.Errorf("event %d has no payload (NULL)", e.ID)
	}
	if err := json.Unmarshal(e.Payload, &payload); err != nil {
		return payload, fmt.Errorf("payload of event %d is no %q: %w", e.ID, t.name, err)
	}
	return payload, nil
}

// WithHeader gives a copy of the event with one more header.
func (e Event) WithHeader(name, value string) Event {
	headers := make(map[string]string, len(e.Headers)+1)
	for k, v := range e.Headers {
		headers[k] = v
	}
	headers[name] = value
	e.Headers = headers
	return e
}

// Handler handles one event. It returns nil when it is done, any error to get
// the event again later, or [RetryAfter], [Dead], [Skip] or [HandBack]. Its context ends when
// the handler's time limit or the grace of a shutdown is over, or when another
// process takes the consumer over.
type Handler func(ctx context.Context, e *Event) error

// Handle has fn handle the events of type t that c receives. A payload that is
// no T is that event's failure.
func Handle[T any](c *Consumer, t Type[T], fn func(ctx context.Context, e *Event, payload T) error) {
	c.Handle(t.name, func(ctx context.Context, e *Event) error {
		payload, err := t.Decode(e)
		if err != nil {
			return err
		}
		return fn(ctx, e, payload)
	})
}
