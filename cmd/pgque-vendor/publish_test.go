package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
		for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
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

// A batch of which nobody knows whether it is in must not be called uncommitted,
// or be sent again by the hint.
func TestPublishUnknownBatch(t *testing.T) {
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
	stdin, lines := io.Pipe()
	go func() {
		fmt.Fprintln(lines, `{"type":"a","payload":1}`)
		fmt.Fprintln(lines, ``)
		for db.Value(t, `select count(*) from pgque.event_1`) != "1" {
			time.Sleep(5 * time.Millisecond)
		}
		fmt.Fprintln(lines, ``) // it is read only after the answer to the commit was
		proxy.CutAll()
		fmt.Fprintln(lines, `{"type":"a","payload":2}`)
		lines.Close()
	}()
	p := publisher{options: &publishOptions{maxPayload: events.DefaultMaxPayload, batch: 1}, conn: conn, queue: "q"}
	err = p.lines(t.Context(), &environment{stdin: stdin, stderr: io.Discard})
	if !fault.Is(err, fault.SQL) || !strings.Contains(err.Error(), "unknown whether 1 event arrived") {
		t.Fatalf("lines = %v", err)
	}
	if want := "lines 1 to 1 were committed (1 event), of lines 2 to 4 it is unknown, later ones were not"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q is not in %v", want, err)
	}
	var f *fault.Error
	if errors.As(err, &f); strings.Contains(strings.Join(f.Hints, " "), "tail") {
		t.Errorf("the hints are %q", f.Hints)
	}
}

// A write to a server that has gone ends as a broken pipe, as one to "head" does.
// Taken for that, it would end the command with 0 and not a word.
func TestPublishServerGone(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Install(t, pgtest.Standin())
	db.Exec(t, `select pgque.create_queue('q')`)
	stdin, lines := io.Pipe()
	var stdout, stderr bytes.Buffer
	env := processEnvironment()
	env.stdin, env.stdout, env.stderr = stdin, &stdout, &stderr
	env.lookup = func(name string) (string, bool) {
		return map[string]string{"PGQUE_VENDOR_DATABASE_URL": db.URL}[name], true
	}
	ended := make(chan int, 1)
	go func() {
		ended <- run([]string{"publish", "q", "--ndjson"}, env)
		stdin.Close() // or the test would write to nobody
	}()
	const session = ` from pg_stat_activity where application_name = 'pgque-vendor publish' and datname = current_database()`
	for deadline := time.Now().Add(2 * time.Minute); db.Value(t, `select count(*)`+session) != "1" && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	db.Exec(t, `select pg_terminate_backend(pid, 120000)`+session)
	for range 1000 { // more than the system takes before it notices
		fmt.Fprintf(lines, `{"type":"a","payload":"%s"}`+"\n", strings.Repeat("x", 16<<10))
	}
	lines.Close()
	if code := <-ended; code != 7 || !strings.Contains(stderr.String(), "unknown whether 1000 events arrived") {
		t.Errorf("exit %d, want 7; stdout %q, stderr\n%s", code, &stdout, &stderr)
	}
}

// What JSON's decoder would replace without a word is refused.
func TestParseEventText(t *testing.T) {
	t.Parallel()
	for line, ok := range map[string]bool{
		`{"type":"ä","payload":1}`:                                    true,
		"{\"type\":\"\ufffd\",\"payload\":1}":                         true,
		`{"type":"\uFFFD","payload":1}`:                               true,
		`{"type":"\ud83d\ude00","payload":1}`:                         true,
		"{\"type\":\"a\xff\",\"payload\":1}":                          false,
		`{"type":"a\ud800b","payload":1}`:                             false,
		"{\"type\":\"a\",\"payload\":1,\"headers\":{\"h\":\"\xff\"}}": false,
		`{"type":"a","payload":1,"headers":{"h\udc00":""}}`:           false,
	} {
		if _, err := parseEvent([]byte(line)); (err == nil) != ok {
			t.Errorf("parseEvent(%q) = %v", line, err)
		}
	}
}

// A line says what is wrong with it, and loses nothing that the decoder would drop.
func TestParseEventErrors(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"type":"a","payload":1,"payload":2}`:                     "a key is there twice",
		`{"type":"a","Type":"b","payload":1}`:                      "a key is there twice",
		`{"type":"a","payload":1,"headers":{},"headers":{"h":""}}`: "a key is there twice",
		`{"type":7,"payload":1}`:                                   `its "type" is 7, not a string`,
		`{"type":null,"payload":1}`:                                `it has no "type"`,
		`{"type":"a"}`:                                             `it has no "payload" (null is the JSON for nothing)`,
		`{"type":"a","payload":1,"headers":{"h":7}}`:               `its "headers" are not an object of strings`,
		`{"type":"a","payload":1,"paylod":2}`:                      `unknown field "paylod"`,
		`{"type":"a","payload":1} 2`:                               "something follows the JSON object",
		`[1]`:                                                      `no JSON object with "type" and "payload"`,
		`{"type":"a","payload":null,"headers":null}`:               "",
		`{"type":"a","payload":{"a":1,"a":2}}`:                     "", // jsonb's business
	} {
		if _, err := parseEvent([]byte(line)); (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) && want != "" {
			t.Errorf("parseEvent(%s) = %v, want %q", line, err, want)
		}
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
