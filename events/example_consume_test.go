package events_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// WelcomePayload and Welcome are what publisher and consumer share.
type WelcomePayload struct {
	Email string `json:"email"`
}

var Welcome = events.Define[WelcomePayload]("ticket.welcome")

// A publisher, a ticker and a consumer; usually three processes.
func Example() {
	pool, done := exampleDatabase()
	defer done()
	ctx, stop := context.WithCancel(context.Background())

	consumer := events.NewConsumer(pool, "notifications", "mailer", events.ConsumerConfig{Workers: 4})
	events.Handle(consumer, Welcome, func(ctx context.Context, e *events.Event, p WelcomePayload) error {
		fmt.Println("welcome,", p.Email)
		stop() // the example ends here; a service goes on
		return nil
	})
	ended := make(chan error)
	go func() { ended <- consumer.Run(ctx) }()
	go func() { ended <- events.NewTicker(pool, events.TickerConfig{MaxLag: 50 * time.Millisecond}).Run(ctx) }()

	// A new consumer gets what is sent after it subscribed, so let it do that first.
	for subscribed := false; !subscribed; {
		consumers, err := events.Consumers(ctx, pool, "notifications")
		if err != nil {
			fmt.Println(err)
			return
		}
		subscribed = len(consumers) == 1
	}
	if _, err := events.Send(ctx, pool, "notifications", Welcome.New(WelcomePayload{"ann@example.com"})); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-ended, <-ended)
	// Output:
	// welcome, ann@example.com
	// <nil> <nil>
}

// What a handler returns decides what becomes of the event.
func ExampleRetryAfter() {
	handler := func(ctx context.Context, e *events.Event) error {
		switch err := deliver(e); {
		case errors.Is(err, errBusy):
			return events.RetryAfter(time.Minute, err) // in a minute
		case errors.Is(err, errNoSuchUser):
			return events.Dead(err) // never again: a dead letter
		case errors.Is(err, errUnsubscribed):
			return events.Skip // done, on purpose without effect
		default:
			return err // nil: done; else again after a growing pause
		}
	}
	fmt.Println(handler(context.Background(), &events.Event{Type: "ticket.welcome"}))
	// Output: mail server is busy
}

var (
	errBusy         = errors.New("mail server is busy")
	errNoSuchUser   = errors.New("no such user")
	errUnsubscribed = errors.New("unsubscribed")
)

func deliver(*events.Event) error { return errBusy }

// Middleware wraps every handler.
func ExampleConsumer_Use() {
	pool, done := exampleDatabase()
	defer done()
	consumer := events.NewConsumer(pool, "notifications", "mailer", events.ConsumerConfig{})
	consumer.Use(func(next events.Handler) events.Handler {
		return func(ctx context.Context, e *events.Event) error {
			err := next(ctx, e)
			fmt.Println(e.Type, "attempt", e.Attempt, "error:", err)
			return err
		}
	})
	consumer.HandleAny(func(context.Context, *events.Event) error { return nil })
	// Step works off one batch at a time; the first call subscribes.
	ctx := context.Background()
	if _, err := consumer.Step(ctx); err != nil {
		fmt.Println(err)
	}
	if _, err := events.Send(ctx, pool, "notifications", Welcome.New(WelcomePayload{"ann@example.com"})); err != nil {
		fmt.Println(err)
	}
	tick(pool, "notifications")
	for {
		n, err := consumer.Step(ctx)
		if n == 0 || err != nil {
			fmt.Println(n, err)
			return
		}
	}
	// Output:
	// ticket.welcome attempt 1 error: <nil>
	// 0 <nil>
}

// tick does for an Example what eventstest.Tick does for a test.
func tick(db events.DB, queue string) {
	for _, sql := range []string{"select pgque.force_tick($1::text)", "select pgque.ticker($1::text)"} {
		if _, err := db.Exec(context.Background(), sql, queue); err != nil {
			panic(err)
		}
	}
}
