package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// When the answer is lost nobody knows whether the events are in, and the text must
// not claim either.
func TestPublishUnknownOutcome(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Install(t, pgtest.Standin())
	db.Exec(t, `select pgque.create_queue('q')`)
	proxy := pgtest.Proxy(t, db.Server.Address())
	conn, err := pgx.Connect(t.Context(), proxy.URL(t, db.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	p := publisher{options: &publishOptions{maxPayload: events.DefaultMaxPayload}, conn: conn, queue: "q"}
	proxy.Silence(pgtest.ToClient)
	go func() {
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if db.Value(t, `select last_value || is_called::text from pgque.event_1_id_seq`) == "1true" {
				break // the server has it
			}
		}
		proxy.CutAll()
	}()
	_, err = p.send(t.Context(), []events.Event{{Type: "t", Payload: []byte("1")}})
	if !fault.Is(err, fault.SQL) || !strings.Contains(err.Error(), "unknown whether 1 event arrived") {
		t.Errorf("send = %v", err)
	}
}

func FuzzParseEvent(f *testing.F) {
	for _, seed := range []string{
		`{"type": "a", "payload": 1}`, `{"type": "a", "payload": null, "headers": {"h": "v"}}`, `{"type": "a"}`,
		`{"TYPE": "a", "payload": "\u0000"}`, `{} {}`, `[1]`, `null`, `{"payload": {"type": 1}, "type": null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		event, err := parseEvent(line)
		if err != nil {
			return
		}
		if err := events.Check(event); err != nil && !errors.Is(err, events.ErrInvalid) {
			t.Errorf("Check(%+v) = %v", event, err)
		}
		if len(event.Payload) == 0 {
			t.Errorf("%q gave an event without a payload", line)
		}
	})
}
