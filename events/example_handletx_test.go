package events_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events"
)

// The effect and the note that it is done are one transaction, so an event that
// comes twice has its effect once.
func ExampleHandleTx() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()
	if _, err := pool.Exec(ctx, events.InboxDDL+"create table welcomed (email text)"); err != nil {
		fmt.Println(err)
	}

	consumer := events.NewConsumer(pool, "notifications", "crm", events.ConsumerConfig{})
	events.HandleTx(consumer, pool, Welcome, func(ctx context.Context, tx pgx.Tx, e *events.Event, p WelcomePayload) error {
		_, err := tx.Exec(ctx, "insert into welcomed values ($1)", p.Email)
		return err
	})
	if _, err := consumer.Step(ctx); err != nil { // subscribes
		fmt.Println(err)
	}

	event := Welcome.New(WelcomePayload{"ann@example.com"}).WithHeader(events.IdempotencyKey, "job 4711")
	if _, err := events.SendBatch(ctx, pool, "notifications", []events.Event{event, event}); err != nil {
		fmt.Println(err)
	}
	tick(pool, "notifications")
	for n := 1; n > 0; {
		var err error
		if n, err = consumer.Step(ctx); err != nil {
			fmt.Println(err)
		}
	}
	var rows int
	fmt.Println(pool.QueryRow(ctx, "select count(*) from welcomed").Scan(&rows), rows)
	// Output: <nil> 1
}
