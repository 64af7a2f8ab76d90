package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// watched runs a Watch until the test ends. It gives what was shown so far, and
// waits until something is.
func watched(t *testing.T, pool *pgxpool.Pool) (all func() []Look, until func(what string, is func(Look) bool)) {
	t.Helper()
	var mu sync.Mutex
	var looks []Look
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		Watch(ctx, pool, events.HealthConfig{}, slog.New(slog.DiscardHandler), func(l Look) {
			mu.Lock()
			defer mu.Unlock()
			looks = append(looks, l)
		})
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	all = func() []Look {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(looks)
	}
	return all, func(what string, is func(Look) bool) {
		t.Helper()
		began := time.Now()
		for ; ; time.Sleep(20 * time.Millisecond) {
			seen := all()
			if len(seen) > 0 && is(seen[len(seen)-1]) {
				break
			}
			if time.Since(began) > patience {
				t.Fatalf("%s: not seen within %s; looks: %+v", what, patience, seen)
			}
		}
		t.Logf("%s: seen after %s", what, time.Since(began).Round(10*time.Millisecond))
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db := pgtest.Database(t)
		db.Install(t, v)
		pool := db.Pool(t)
		if _, err := events.EnsureQueue(t.Context(), pool, "q", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := events.Subscribe(t.Context(), pool, "q", "c"); err != nil {
			t.Fatal(err)
		}
		// A login that may only look sees all the same.
		viewer := db.Role(t)
		db.Exec(t, "grant pgque_reader to "+viewer)
		all, until := watched(t, db.PoolAs(t, viewer))
		until("the consumer", func(l Look) bool {
			return l.Trouble == "" && len(l.Queues) == 1 && len(l.Consumers) == 1 && l.Queues[0].Sent == 0
		})

		events10 := make([]events.Event, 10)
		for i := range events10 {
			events10[i] = events.Event{Type: "t", Payload: []byte(`{}`)}
		}
		if _, err := events.SendBatch(t.Context(), pool, "q", events10); err != nil {
			t.Fatal(err)
		}
		sent := func(l Look) bool { return len(l.Queues) == 1 && l.Queues[0].Sent == 10 }
		noTicker := func(l Look) bool {
			return slices.ContainsFunc(l.Findings, func(f events.Finding) bool {
				return f.Code == events.CodeNoTick && f.Queue == "q" && f.Severity == events.Critical && f.Fix == "pgque-vendor ticker"
			})
		}
		until("what was sent", sent)
		until("that no ticker runs", noTicker)
		// That is within ten seconds wherever a look takes less than three: the first
		// look comes within two, and the next one tells.
		looks := slices.DeleteFunc(all(), func(l Look) bool { return l.Trouble != "" })
		if first, told := slices.IndexFunc(looks, sent), slices.IndexFunc(looks, noTicker); told != first+1 {
			t.Errorf("look %d saw the events, and only look %d that no ticker runs", first, told)
		}
		db.Exec(t, "select pgque.ticker()")
		until("the tick", func(l Look) bool {
			return l.Queues[0].NewEvents == 0 && len(l.Consumers) == 1 && l.Consumers[0].Pending == 10 &&
				!slices.ContainsFunc(l.Findings, func(f events.Finding) bool { return f.Severity > events.Note })
		})
	})
}

// A database that falls silent is said within the deadline, and seen again when it
// answers; what was seen before stays.
func TestWatchSilentDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Install(t, pgtest.Standin())
	db.Exec(t, "select pgque.create_queue('q')")
	proxy := pgtest.Proxy(t, fmt.Sprintf("%s:%d", db.Server.Host(), db.Server.Port()))
	pool, err := pgxpool.New(t.Context(), proxy.URL(t, db.URL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	_, until := watched(t, pool)
	until("the queue", func(l Look) bool { return l.Trouble == "" && len(l.Queues) == 1 })
	proxy.Silence(pgtest.ToClient | pgtest.ToServer)
	until("the silence", func(l Look) bool {
		return l.Trouble == "the database does not answer in time" && len(l.Queues) == 1 && l.Seen.Before(l.At)
	})
	proxy.Resume()
	until("the database again", func(l Look) bool { return l.Trouble == "" })
}

// What a client is told of a failure names neither host nor login.
func TestReasonHoldsNoSecret(t *testing.T) {
	t.Parallel()
	_, unreachable := pgconn.Connect(t.Context(), "postgres://app:hunter2@127.0.0.1:1/stega-events")
	for want, err := range map[string]error{
		"the database cannot be reached; the log says more":        unreachable,
		"the database refuses (SQLSTATE 28P01); the log says more": fmt.Errorf("connect: %w", &pgconn.PgError{Code: "28P01", Message: `password authentication failed for user "app"`}),
		"the database does not answer in time":                     fmt.Errorf("10.0.0.1: %w", context.DeadlineExceeded),
		events.ErrNotInstalled.Error():                             fmt.Errorf("stega-events: %w", events.ErrNotInstalled),
		events.ErrPermission.Error():                               errors.Join(events.ErrPermission, &pgconn.PgError{Code: "42501"}),
	} {
		got := Reason(err)
		if got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
		for _, secret := range []string{"hunter2", "app", "127.0.0.1", "10.0.0.1", "stega-events"} {
			if strings.Contains(got, secret) {
				t.Errorf("%q holds %q", got, secret)
			}
		}
	}
}

// A queue that was never ticked, is paused or ticked from elsewhere, and one whose
// ticks go on, are not said to wait.
func TestUntickedQueues(t *testing.T) {
	t.Parallel()
	old := time.Now().Add(-time.Minute)
	for name, test := range map[string]struct {
		queue events.QueueInfo
		was   waiting
		said  []events.Finding
		want  int
	}{
		"waits":         {queue: events.QueueInfo{NewEvents: 1, LastTick: old}, was: waiting{tick: old, since: old}, want: 1},
		"never ticked":  {queue: events.QueueInfo{NewEvents: 1}, was: waiting{since: old}, want: 1},
		"nothing new":   {queue: events.QueueInfo{LastTick: old}, was: waiting{tick: old, since: old}},
		"was ticked":    {queue: events.QueueInfo{NewEvents: 1, LastTick: time.Now()}, was: waiting{tick: old, since: old}},
		"just now":      {queue: events.QueueInfo{NewEvents: 1, LastTick: old}, was: waiting{tick: old, since: time.Now().Add(-time.Second)}},
		"may wait long": {queue: events.QueueInfo{NewEvents: 1, LastTick: old, MaxLag: 2 * time.Minute}, was: waiting{tick: old, since: old}},
		"paused":        {queue: events.QueueInfo{NewEvents: 1, LastTick: old, Paused: true}, was: waiting{tick: old, since: old}},
		"external":      {queue: events.QueueInfo{NewEvents: 1, LastTick: old, External: true}, was: waiting{tick: old, since: old}},
		"said for all": {queue: events.QueueInfo{NewEvents: 1, LastTick: old}, was: waiting{tick: old, since: old},
			said: []events.Finding{{Code: events.CodeNoTick}}},
	} {
		w := watcher{healthy: test.said, waiting: map[string]waiting{"": test.was}}
		if got := w.untickedQueues([]events.QueueInfo{test.queue}); len(got) != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	for want, look := range map[time.Duration]Look{
		lookEvery:       {Took: time.Millisecond},
		5 * time.Second: {Took: 500 * time.Millisecond},
		slowestLooks:    {Took: lookLimit},
	} {
		if got := look.pause(); got != want {
			t.Errorf("after %s: %s, want %s", look.Took, got, want)
		}
	}
	if got := (&Look{Took: lookLimit, Trouble: "x"}).pause(); got != lookEvery {
		t.Errorf("after a failure: %s", got)
	}
}
