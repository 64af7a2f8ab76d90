package events_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// TestMain can be a consumer process instead of a test run: it prints what it
// handles, so that a test can kill or stop it.
func TestMain(m *testing.M) {
	if url := os.Getenv("EVENTS_TEST_WORKER"); url != "" {
		work(url)
	}
	if url := os.Getenv("EVENTS_TEST_DAY"); url != "" {
		pool, err := pgxpool.New(context.Background(), url)
		if err == nil {
			err = dayWork(pool)
		}
		fmt.Fprintln(os.Stderr, "ended", err)
		os.Exit(1)
	}
	if url := os.Getenv("EVENTS_TEST_CONSUMER"); url != "" {
		pool, err := pgxpool.New(context.Background(), url)
		if err == nil {
			c := handler(pool, events.ConsumerConfig{}, func(ctx context.Context, e *events.Event) error {
				fmt.Println("handling", string(e.Payload))
				select {
				case <-ctx.Done():
					fmt.Println("cancelled", string(e.Payload))
				case <-time.After(time.Minute):
				}
				return nil
			})
			err = c.Run(context.Background())
		}
		fmt.Println("ended", err)
		os.Exit(1)
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6") // most of the time they wait for the server, or for a limit
	}
	if !serverAtHand() { // an Example cannot skip itself
		_ = flag.Set("test.skip", "^Example")
	}
	os.Exit(m.Run())
}

// work handles events until it is killed.
func work(url string) {
	pool, err := pgxpool.New(context.Background(), url)
	if err == nil {
		err = handler(pool, events.ConsumerConfig{Workers: 2, Poll: 50 * time.Millisecond}, func(_ context.Context, e *events.Event) error {
			time.Sleep(time.Millisecond)
			fmt.Println(string(e.Payload))
			return nil
		}).Run(context.Background())
	}
	fmt.Println("ended", err)
	os.Exit(1)
}

// serverAtHand reports whether pgtest finds a PostgreSQL.
func serverAtHand() (ok bool) {
	defer func() { ok = recover() == nil }()
	pgtest.Server(&exampleTB{})
	return true
}
