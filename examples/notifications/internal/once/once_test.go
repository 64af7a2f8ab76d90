package once_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/once"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

func ledger(t *testing.T) (once.Ledger, *pgtest.DB) {
	t.Helper()
	db := pgtest.Database(t)
	db.Exec(t, once.DDL)
	return once.Ledger{DB: db.Pool(t)}, db
}

// An effect that failed for certain is tried again without a doubt; what is done
// is not done again, not even for a second event of the same cause.
func TestDo(t *testing.T) {
	t.Parallel()
	l, _ := ledger(t)
	refused := errors.New("refused")
	answers := []error{once.NotDone(refused), nil}
	runs := 0
	effect := func(_ context.Context, again bool) error {
		if again {
			t.Error("told that it may have been done before")
		}
		runs++
		return answers[runs-1]
	}
	cause := map[string]string{events.IdempotencyKey: "job 1"}
	first, second := &events.Event{ID: 1, Consumer: "c", Headers: cause}, &events.Event{ID: 2, Consumer: "c", Headers: cause}
	if err := l.Do(t.Context(), first, effect); !errors.Is(err, refused) {
		t.Errorf("first attempt: %v", err)
	}
	for _, e := range []*events.Event{first, first, second} {
		if err := l.Do(t.Context(), e, effect); err != nil {
			t.Errorf("event %d: %v", e.ID, err)
		}
	}
	if runs != 2 {
		t.Errorf("ran %d times, want 2", runs)
	}
	if n, err := l.Purge(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("purged %d rows of this hour, %v", n, err)
	}
	if n, err := l.Purge(t.Context(), 0); n != 1 || err != nil {
		t.Errorf("purged %d rows, %v, want 1", n, err)
	}
}

// An effect whose end is not known is left alone while its process may be at it,
// then done again, with a word about it.
func TestDoubt(t *testing.T) {
	t.Parallel()
	l, db := ledger(t)
	e := &events.Event{ID: 7, Queue: "q", Consumer: "c"}
	lost := errors.New("connection reset")
	if err := l.Do(t.Context(), e, func(context.Context, bool) error { return lost }); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	err := l.Do(t.Context(), e, func(context.Context, bool) error { t.Error("ran beside the first attempt"); return nil })
	if err == nil || !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("at once: %v", err)
	}
	db.Exec(t, "update effects set noted_at = noted_at - interval '31 seconds'")
	told := false
	if err := l.Do(t.Context(), e, func(_ context.Context, again bool) error { told = again; return nil }); err != nil || !told {
		t.Errorf("later: %v, told %v", err, told)
	}
}

// What was begun is finished and noted, although the consumer has to stop.
func TestStopInTheMiddle(t *testing.T) {
	t.Parallel()
	l, db := ledger(t)
	ctx, stop := context.WithCancel(t.Context())
	err := l.Do(ctx, &events.Event{ID: 1}, func(ctx context.Context, _ bool) error { stop(); return ctx.Err() })
	if state := db.Value(t, "select state from effects"); err != nil || state != "done" {
		t.Errorf("%v, noted as %q", err, state)
	}
}
