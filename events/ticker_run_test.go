package events

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A ticker that runs twice at once would share what it remembers; one that runs again
// goes on with it.
func TestTickerRunsOnceAtATime(t *testing.T) {
	t.Parallel()
	_, pool := tickerDatabase(t, pgtest.Standin(), "q")
	ticker := NewTicker(pool, TickerConfig{Every: 5 * time.Millisecond})
	for range 2 {
		stop := runTicker(t, ticker)
		before := lastTick(t, pool, "q")
		sendText(t, pool, "q")
		eventually(t, "tick", func() bool { return lastTick(t, pool, "q") > before })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // where it does run it would not end
		err := ticker.Run(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("a second Run: %v", err)
		}
		stop()
	}
}

// An Observer that ends the goroutine of a loop, as t.FailNow does, must not leave a
// ticker that seems to run.
func TestTickerWhoseObserverEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	db, pool := tickerDatabase(t, pgtest.Standin(), "q")
	db.Exec(t, `select pgque.subscribe('q', 'c')`)
	for i, ends := range []func(Observation) bool{
		func(o Observation) bool { _, is := o.(Ticked); return is },
		func(o Observation) bool { _, is := o.(Retried); return is },
	} {
		db.Exec(t, fmt.Sprintf(`select pgque.event_retry_raw('q', 'c', now(), %d, now(), 1, 't', '{}', null, null, null, null)`, i+1))
		sendText(t, pool, "q")
		ticker := NewTicker(db.Pool(t), TickerConfig{Observer: func(o Observation) {
			if ends(o) {
				runtime.Goexit()
			}
		}})
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { ended <- ticker.Run(ctx) }()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), "Observer") {
				t.Errorf("loop %d: Run = %v", i, err)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("Run goes on without loop %d", i)
		}
	}
}
