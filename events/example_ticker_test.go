package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// A ticker runs in a process of its own, or beside your consumers; as many as you
// like. Without one nothing is delivered.
func ExampleTicker() {
	pool, done := exampleDatabase()
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	ticker := events.NewTicker(pool, events.TickerConfig{
		MaxLag: 50 * time.Millisecond, // half of its period
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Observer: func(o events.Observation) {
			if tick, ok := o.(events.Ticked); ok && tick.Queue == "notifications" {
				cancel() // your metrics would count it; this example is over
			}
		},
	})
	_, err := events.Send(ctx, pool, "notifications", Welcome.New(WelcomePayload{"ann@example.com"}))
	fmt.Println("sent:", err)
	fmt.Println("ran:", ticker.Run(ctx)) // until ctx ends
	// Output:
	// sent: <nil>
	// ran: <nil>
}

// A nudge makes a ticker with TickerConfig.Nudge tick at once, for events that
// cannot wait for its next look.
func ExampleNudger() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()
	var nudger events.Nudger // one for the process: it limits itself

	_, err := events.Send(ctx, pool, "notifications", Welcome.New(WelcomePayload{"ann@example.com"}))
	if err == nil {
		err = nudger.Nudge(ctx, pool) // after the commit, or with the same pgx.Tx
	}
	fmt.Println(err)
	// Output: <nil>
}

// Health finds what keeps events from being delivered, the worst first.
func ExampleHealth() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()
	_, _ = events.EnsureQueue(ctx, pool, "reports", events.Settings{"ticker_max_lag": "3 seconds"})

	findings, err := events.Health(ctx, pool, events.HealthConfig{MaxLatency: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range findings {
		if f.Queue == "reports" {
			fmt.Println(f.Severity, f.Code)
			fmt.Println(f.Text)
			fmt.Println(f.Fix)
		}
	}
	// Output:
	// warning max-lag
	// events of queue "reports" may wait 3s for a tick, although the ticker looks every 100ms
	// select pgque.set_queue_config('reports', 'ticker_max_lag', '50 ms')
}

// Queues and subscriptions are ensured at every start; in a transaction they are
// made with your own tables, or not at all.
func ExampleEnsureQueue() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()

	result, err := events.EnsureQueue(ctx, pool, "tickets", events.Settings{"max_retries": "3"})
	fmt.Println(result.Created, err)
	result, err = events.EnsureQueue(ctx, pool, "tickets", events.Settings{"max_retries": "4"})
	fmt.Println(result.Created, result.Changed, err)
	created, err := events.Subscribe(ctx, pool, "tickets", "mailer")
	fmt.Println(created, err)

	consumers, err := events.Consumers(ctx, pool, "tickets")
	for _, c := range consumers {
		fmt.Println(c.Name, c.Pending, c.Lag)
	}
	fmt.Println(err)
	// Output:
	// true <nil>
	// false [{max_retries 3 4}] <nil>
	// true <nil>
	// mailer 0 0s
	// <nil>
}

// Dead letters go back to the consumer that gave up on them, once their cause is
// mended. Of two that replay one at once, one does.
func ExampleReplay() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()

	for letter, err := range events.DeadLetters(ctx, pool, events.DeadLetterFilter{Queue: "notifications"}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(letter.ID, letter.Event.Type, letter.Reason)
	}
	n, err := events.Replay(ctx, pool, events.DeadLetterFilter{Queue: "notifications", Type: "ticket.welcome"})
	fmt.Println(n, err)
	_, err = events.Replay(ctx, pool, events.DeadLetterFilter{IDs: []int64{42}})
	fmt.Println(errors.Is(err, events.ErrNotFound))
	// Output:
	// 0 <nil>
	// true
}

// A queue can be looked into without consuming.
func ExamplePeek() {
	pool, done := exampleDatabase()
	defer done()
	ctx := context.Background()
	_, _ = events.Send(ctx, pool, "notifications", Welcome.New(WelcomePayload{"ann@example.com"}))

	newest, err := events.Peek(ctx, pool, "notifications", 10)
	for _, e := range newest {
		fmt.Println(e.Type, string(e.Payload))
	}
	fmt.Println(err)
	// Output:
	// ticket.welcome {"email":"ann@example.com"}
	// <nil>
}
