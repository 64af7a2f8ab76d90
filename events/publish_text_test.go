package events_test

import (
	"encoding/json"
	"testing"

	"github.com/stega/pgque-vendor/events"
)

// What means something in the text of an array arrives as it was sent.
func TestPayloadsWithQuotes(t *testing.T) {
	_, pool := setUp(t, newest(t))
	payloads := []string{`null`, `"null"`, `"a\"b"`, `"\\"`, `"\\\""`, `{}`, `"{},{"`, `["a","b"]`, `" "`, `"é\u2028\t"`, `{"a\\b":"c\"d"}`, `""`}
	es := make([]events.Event, len(payloads))
	for i, p := range payloads {
		es[i] = events.Event{Type: "t", Payload: json.RawMessage(p)}
	}
	ids, err := events.SendBatch(t.Context(), pool, queue, es)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int64]string{}
	stored, err := events.Peek(t.Context(), pool, queue, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range stored {
		got[e.ID] = string(e.Payload)
	}
	for i, id := range ids {
		if got[id] != payloads[i] {
			t.Errorf("sent %s, stored %s", payloads[i], got[id])
		}
	}
}
