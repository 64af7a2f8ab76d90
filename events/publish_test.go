package events_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"

	"context"
)

// Ids come back in the order of the input and rise with it, whatever the mixture.
func TestSendKeepsOrder(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		var es []events.Event
		for i := range 400 {
			e := events.Event{Type: "long", Payload: json.RawMessage(fmt.Sprint(i))}
			if i > 100 && i < 200 {
				e.Type = fmt.Sprint("mixed", i%3)
			}
			if i%50 == 7 {
				e = e.WithHeader("n", fmt.Sprint(i))
			}
			es = append(es, e)
		}
		ids, err := events.SendBatch(t.Context(), pool, queue, es)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) != len(es) || !slices.IsSorted(ids) {
			t.Fatalf("%d ids, sorted: %v", len(ids), slices.IsSorted(ids))
		}
		i := 0
		c := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error {
			want := es[i]
			if e.ID != ids[i] || e.Type != want.Type || string(e.Payload) != string(want.Payload) || e.Headers["n"] != want.Headers["n"] {
				t.Errorf("event %d: got id %d type %q payload %s headers %v", i, e.ID, e.Type, e.Payload, e.Headers)
			}
			i++
			return nil
		})
		eventstest.Drain(t, pool, queue, c)
		if i != len(es) {
			t.Errorf("received %d of %d", i, len(es))
		}
	})
}

// What is wrong is found before the round trip, and the index is in the error.
func TestSendChecks(t *testing.T) {
	good := events.Event{Type: "t", Payload: json.RawMessage(`{"a":"\\u0000 is text"}`)}
	var noDB events.DB // nothing may be sent
	for name, test := range map[string]struct {
		queue string
		e     events.Event
		want  string
		is    error
	}{
		"no JSON":          {"q", events.Event{Type: "t", Payload: json.RawMessage("{")}, "payload is not JSON", events.ErrInvalid},
		"no payload":       {"q", events.Event{Type: "t"}, "payload is empty", events.ErrInvalid},
		"escaped NUL":      {"q", events.Event{Type: "t", Payload: json.RawMessage(`{"a":"\\\u0000"}`)}, `\u0000`, events.ErrInvalid},
		"half a character": {"q", events.Event{Type: "t", Payload: json.RawMessage(`{"a":"\ud83d"}`)}, `\ud83d without its other half`, events.ErrInvalid},
		"NUL in type":      {"q", events.Event{Type: "t\x00", Payload: json.RawMessage("1")}, "type contains a NUL byte", events.ErrInvalid},
		"UTF-8":            {"q", events.Event{Type: "t", Payload: json.RawMessage("\"\xff\"")}, "not valid UTF-8", events.ErrInvalid},
		"empty type":       {"q", events.Event{Payload: json.RawMessage("1")}, "type is empty", events.ErrInvalid},
		"too large":        {"q", events.Event{Type: "t", Payload: json.RawMessage(`"` + strings.Repeat("x", events.DefaultMaxPayload) + `"`)}, "the limit is 1048576", events.ErrTooLarge},
		"cannot encode":    {"q", events.Define[chan int]("t").New(nil), "unsupported type", events.ErrInvalid},
		"header":           {"q", events.Event{Type: "t", Payload: json.RawMessage("1"), Headers: map[string]string{"k": "\x00"}}, `header "k" contains a NUL byte`, events.ErrInvalid},
		"long type":        {"q", events.Event{Type: strings.Repeat("t", 1025), Payload: json.RawMessage("1")}, "type of 1025 bytes, the limit is 1024", events.ErrTooLarge},
		"empty queue":      {"", good, "queue name is empty", events.ErrInvalid},
		"58 bytes":         {strings.Repeat("é", 29), good, "58 bytes, at most 57", events.ErrInvalid},
		"NUL in the name":  {"a\x00", good, "queue name contains a NUL byte", events.ErrInvalid},
	} {
		_, err := events.SendBatch(t.Context(), noDB, test.queue, []events.Event{good, test.e})
		if !errors.Is(err, test.is) || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		if test.queue == "q" && !strings.Contains(fmt.Sprint(err), "event 1 of 2") {
			t.Errorf("%s: %v does not name the index", name, err)
		}
		if _, err := events.Send(t.Context(), noDB, test.queue, test.e); test.queue == "q" && (!errors.Is(err, test.is) || strings.Contains(fmt.Sprint(err), "event 0") || len(fmt.Sprint(err)) > 300) {
			t.Errorf("%s alone: %v", name, err)
		}
	}
	if ids, err := events.SendBatch(t.Context(), noDB, "q", nil); ids != nil || err != nil {
		t.Errorf("nothing to send: %v %v", ids, err)
	}
}

// In the caller's transaction the event lives and dies with it.
func TestSendInTransaction(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db, pool := setUp(t, v)
		e := events.Define[string]("t").New("x").WithHeader("a", "b")
		for _, commit := range []bool{false, true} {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := events.SendBatch(t.Context(), tx, queue, []events.Event{e, e, {Type: "u", Payload: []byte("1")}}); err != nil {
				t.Fatal(err)
			}
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		conn := db.Connect(t)
		if _, err := events.Send(t.Context(), conn, queue, e); err != nil {
			t.Fatal(err)
		}
		c := handler(pool, events.ConsumerConfig{}, func(context.Context, *events.Event) error { return nil })
		if n := eventstest.Drain(t, pool, queue, c); n != 4 {
			t.Errorf("received %d events, want 4", n)
		}
		_, err := events.Send(t.Context(), conn, "missing", e)
		var pg interface{ SQLState() string }
		if !errors.Is(err, events.ErrQueueNotFound) || !errors.As(err, &pg) || pg.SQLState() != "P0001" {
			t.Errorf("send to a missing queue: %v", err)
		}
	})
}

// A transaction that commits late is delivered late, not lost (B056).
func TestLateCommit(t *testing.T) {
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		_, pool := setUp(t, v)
		var got tally
		c := handler(pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := events.Send(t.Context(), tx, queue, events.Event{Type: "t", Payload: []byte("0")}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			publish(t, pool, 2)
			eventstest.Drain(t, pool, queue, c)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventstest.Drain(t, pool, queue, c)
		eventstest.Drain(t, pool, queue, c)
		if order := got.order(); len(order) != 7 || order[6] != "0" {
			t.Errorf("received %v, want the late one last and once", order)
		}
	})
}

// B092: any name that PgQue takes works, also for the notifications.
func TestOddNames(t *testing.T) {
	_, pool := setUp(t, newest(t))
	for _, name := range []string{"Q; drop", `Ü"x'`, strings.Repeat("x", 57), " "} {
		if _, err := events.EnsureQueue(t.Context(), pool, name, nil); err != nil {
			t.Fatal(err)
		}
		c := events.NewConsumer(pool, name, `C "1'`, events.ConsumerConfig{})
		n := 0
		c.HandleAny(func(context.Context, *events.Event) error { n++; return nil })
		eventstest.Step(t, c)
		if _, err := events.Send(t.Context(), pool, name, events.Event{Type: "t", Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		if eventstest.Drain(t, pool, name, c); n != 1 {
			t.Errorf("queue %q: handled %d", name, n)
		}
	}
	for _, name := range []string{"", "a#1", "a.b"} {
		c := events.NewConsumer(pool, queue, name, events.ConsumerConfig{})
		c.HandleAny(func(context.Context, *events.Event) error { return nil })
		if err := c.Run(t.Context()); !errors.Is(err, events.ErrInvalid) {
			t.Errorf("consumer %q: %v", name, err)
		}
	}
}

var _ events.DB = (pgx.Tx)(nil)
