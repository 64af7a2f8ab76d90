package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
)

// B016: a user's own pool may speak another encoding than Go does (the database's, or
// PGCLIENTENCODING). Nothing goes through it that would arrive as other characters.
func TestPoolInAnotherEncoding(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	in := func(encoding string) *pgxpool.Pool {
		cfg := pool.Config()
		cfg.ConnConfig.RuntimeParams["client_encoding"] = encoding
		p, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	umlaut := events.Event{Type: "t", Payload: json.RawMessage(`"ü"`)}
	other := events.Event{Type: "o", Payload: json.RawMessage(`"ü"`), Headers: map[string]string{"name": "ü"}}
	var seen []string
	consumer := func(p *pgxpool.Pool) *events.Consumer {
		return handler(p, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
			seen = append(seen, string(e.Payload))
			return nil
		})
	}

	latin := in("LATIN1")
	for name, es := range map[string][]events.Event{"of one type": {umlaut}, "of several types": {umlaut, other}} {
		ids, err := events.SendBatch(t.Context(), latin, queue, es)
		if !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), "client_encoding") || ids != nil {
			t.Errorf("send %s in LATIN1: %v, %v", name, ids, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := consumer(latin).Run(ctx); !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), "client_encoding") {
		t.Errorf("consume in LATIN1: %v", err)
	}

	for _, encoding := range []string{"UTF8", "utf-8", "SQL_ASCII"} { // as is the test database's encoding
		p := in(encoding)
		if _, err := events.SendBatch(t.Context(), p, queue, []events.Event{umlaut, other}); err != nil {
			t.Errorf("send in %s: %v", encoding, err)
		}
		seen = nil
		if n := eventstest.Drain(t, p, queue, consumer(p)); n != 2 || seen[0] != `"ü"` || seen[1] != `"ü"` {
			t.Errorf("consumed in %s: %d events, %q; want the 2 of this turn", encoding, n, seen)
		}
	}
}
