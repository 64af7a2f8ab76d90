package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	committed := func(n string) {
		for deadline := time.Now().Add(patience); db.Value(t, `select count(*) from pgque.event_1`) != n && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	go func() {
		fmt.Fprintln(lines, `{"type":"a","payload":1}`)
		fmt.Fprintln(lines, ``)
		committed("1")
		fmt.Fprintln(lines, ``) // it is read only after the answer to the commit was
		proxy.Silence(pgtest.ToClient)
		fmt.Fprintln(lines, `{"type":"a","payload":2}`)
		committed("2")
		proxy.CutAll()
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
		`[1]`:                                                      `no JSON object with "type" and "payload": it is a JSON array`,
		`[1] 2`:                                                    `no JSON object with "type" and "payload": it is a JSON array`,
		`"x"`:                                                      `no JSON object with "type" and "payload": it is a JSON string`,
		`7`:                                                        `no JSON object with "type" and "payload": it is a JSON number`,
		`true`:                                                     `no JSON object with "type" and "payload": it is a JSON bool`,
		`null`:                                                     `no JSON object with "type" and "payload": it is null`,
		`nope`:                                                     `no JSON object with "type" and "payload": invalid character`,
		`{"type":"a","payload":1,"headers":{"h":"1","h":"2"}}`:      `its header "h" is there twice`,
		`{"type":"a","payload":1,"headers":{"h":"1","\u0068":"1"}}`: `its header "h" is there twice`,
		`{"type":"a","payload":1,"headers":{"h":null}}`:             `its "headers" are not an object of strings`,
		`{"type":"a","payload":1,"headers":{"h":{"i":"1"}}}`:        `its "headers" are not an object of strings`,
		`{"type":"a","payload":1,"headers":["h"]}`:                  `its "headers" are not an object of strings`,
		`{"type":"a","payload":1,"payload_text":"x"}`:               `it has a "payload" and a "payload_text"`,
		`{"type":"a","payload_text":7}`:                             `its "payload_text" is not a string`,
		`{"type":"a","payload":null,"payload_text":null}`:           "",
		`{"type":"a","payload":1,"headers":{"h":"","i":""}}`:        "",
		`{"type":"a","payload":null,"headers":null}`:                "",
		`{"type":"a","payload":{"a":1,"a":2}}`:                      "", // jsonb's business
	} {
		if _, err := parseEvent([]byte(line)); (err == nil) != (want == "") || !strings.Contains(fmt.Sprint(err), want) && want != "" {
			t.Errorf("parseEvent(%s) = %v, want %q", line, err, want)
		}
	}
}

// A text that is no JSON comes out of "consume --print" beside the payload, and goes in
// as JSON.
func TestParseEventPayloadText(t *testing.T) {
	t.Parallel()
	for _, line := range []string{`{"type":"a","payload":null,"payload_text":"no\n\"JSON\""}`, `{"type":"a","payload_text":"no\n\"JSON\""}`} {
		event, err := parseEvent([]byte(line))
		if err != nil || string(event.Payload) != `"no\n\"JSON\""` {
			t.Errorf("parseEvent(%s) = %s, %v", line, event.Payload, err)
		}
	}
}

// A batch is one transaction, so it is held in memory: what is too much is refused
// before any of it is sent, with a way to send it.
func TestPublishBatchBytes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		committed int
		hint      string
	}{
		{0, "pgque-vendor publish q --ndjson --batch 2 < FILE"},
		{8, "send the rest: tail -n +9 FILE | pgque-vendor publish q --ndjson --batch 2"},
	} {
		p := publisher{options: &publishOptions{maxPayload: events.DefaultMaxPayload, batch: 8}, queue: "q", committed: test.committed, sent: test.committed}
		batch, held := []events.Event{{}, {}, {}, {}}, batchBytes-14
		if err := p.parse([]byte(`{"type":"a","payload":1,"headers":{"h":"3456"}}`), 5, &batch, &held); err != nil {
			t.Fatal(err)
		}
		err := p.parse([]byte(`{"type":"a","payload":23,"headers":{"h":"3456"}}`), 6, &batch, &held)
		err = p.stopped(t.Context(), &environment{}, err, 6)
		var f *fault.Error
		if !errors.As(err, &f) || f.Class != fault.Usage || !strings.Contains(f.Text, "line 6: the batch has more than 256 MiB") || strings.Join(f.Hints, "|") != test.hint {
			t.Errorf("%v, hints %q, want %q", err, f.Hints, test.hint)
		}
		batch, held = nil, 2*batchBytes
		if err := p.parse([]byte(`{"type":"a","payload":1}`), 1, &batch, &held); err != nil {
			t.Errorf("an event alone: %v", err)
		}
	}
}

// What was not written to the server is not unknown.
func TestPublishNothingWritten(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	conn := db.Connect(t)
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := publisher{options: &publishOptions{maxPayload: events.DefaultMaxPayload}, conn: conn, queue: "q"}
	_, err := p.send(t.Context(), []events.Event{{Type: "t", Payload: []byte("1")}})
	if p.unknown || !fault.Is(err, fault.Database) || strings.Contains(fmt.Sprint(err), "unknown") {
		t.Errorf("unknown is %v, error %v", p.unknown, err)
	}
}

// Of stdin nothing is dropped: what goes beyond the limit may look like space for long.
func TestPublishPayloadFromStdin(t *testing.T) {
	t.Parallel()
	spaces := strings.Repeat(" ", stdinSpace)
	for stdin, want := range map[string]string{
		`{"a":1}` + spaces + `,{"b":2}`: "stdin holds more than 4104 bytes: --max-payload is 8",
		`{"a":1}` + spaces + "  \n":     "stdin holds more than 4104 bytes: --max-payload is 8",
		`{"a":1}` + spaces + "\n":       "",
		"\xef\xbb\xbf\r\n{\"a\":1}\n":   "",
	} {
		o := publishOptions{maxPayload: 8}
		payload, err := o.payload(t.Context(), &environment{stdin: strings.NewReader(stdin)}, []string{"-"})
		if want == "" && string(payload) != `{"a":1}` || want != "" && fmt.Sprint(err) != want {
			t.Errorf("%.30q of %d bytes: %q, %v", stdin, len(stdin), payload, err)
		}
	}
}

// A signal ends the wait for a payload on stdin.
func TestPublishPayloadInterrupted(t *testing.T) {
	t.Parallel()
	stdin, never := io.Pipe()
	defer never.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errInterrupted{os.Interrupt})
	o := publishOptions{maxPayload: events.DefaultMaxPayload}
	if _, err := o.payload(ctx, &environment{stdin: stdin}, []string{"-"}); exitCode(ctx, err) != 130 {
		t.Errorf("payload = %v", err)
	}
}

func FuzzParseEvent(f *testing.F) {
	for _, seed := range []string{
		`{"type": "a", "payload": 1}`, `{"type": "a", "payload": null, "headers": {"h": "v"}}`, `{"type": "a"}`,
		`{"TYPE": "a", "payload": "\u0000"}`, `{} {}`, `[1]`, `null`, `{"payload": {"type": 1}, "type": null}`,
		`{"type": "a", "payload_text": "x", "headers": {"a": "1", "a": ["2"]}}`,
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
