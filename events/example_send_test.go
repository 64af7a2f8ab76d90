package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stega/pgque-vendor/events"
)

// In a transaction the event is committed with your own rows, or not at all.
func ExampleSend() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()

	tx, err := pool.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback(ctx) }()
	// … your own inserts and updates …
	event := Welcome.New(WelcomePayload{"ann@example.com"}).WithHeader(events.IdempotencyKey, "job 4711")
	if _, err := events.Send(ctx, tx, "notifications", event); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tx.Commit(ctx))
	// Output: <nil>
}

// Many events go in one transaction; ids come back in the order of the events.
func ExampleSendBatch() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()

	ids, err := events.SendBatch(ctx, pool, "notifications", []events.Event{
		Welcome.New(WelcomePayload{"ann@example.com"}),
		Welcome.New(WelcomePayload{"bob@example.com"}),
		{Type: "ticket.closed", Payload: json.RawMessage(`{"id": 7}`)}, // without a description
	})
	fmt.Println(ids[0] < ids[1] && ids[1] < ids[2], err)

	_, err = events.SendBatch(ctx, pool, "notifications", []events.Event{{Type: "ticket.closed", Payload: json.RawMessage(`{"id": 7`)}})
	fmt.Println(errors.Is(err, events.ErrInvalid), err)
	// Output:
	// true <nil>
	// true send to "notifications": event of type "ticket.closed": payload is not JSON: it ends after 8 bytes, too early: not valid
}
