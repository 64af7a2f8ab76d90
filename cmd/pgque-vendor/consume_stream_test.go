//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// streamScript answers each event as its type says.
const streamScript = `echo $$ >> started
while IFS= read -r line; do
	id=${line#*:}; id=${id%%,*}
	type=${line#*\"type\":\"}; type=${type%%\"*}
	echo "$type" >> seen
	case $type in
	done) echo '{"id":'$id',"outcome":"done"}' ;;
	dead) echo '{"id":'$id',"outcome":"dead","reason":"no good"}' ;;
	later) echo '{"id":'$id',"outcome":"retry","retry_after":90}' ;;
	skip) echo; echo '{"id":"'$id'","outcome":"skip"}' ;;
	dies) echo 'last words' >&2; exit 7 ;;
	hangs) sleep 60 ;;
	babbles) echo 'hello, I am no JSON' ;;
	early) echo '{"id":'$id',"outcome":"retry","retry_after":0}'; echo '{"id":'$id',"outcome":"done"}' ;;
	mute) exec >&-; sleep 600 ;;
	other-id) echo '{"id":0,"outcome":"done"}' ;;
	endless) head -c 200000 /dev/zero | tr '\0' x ;;
	quits) echo '{"id":'$id',"outcome":"done"}'; exit 0 ;;
	esac
done
echo bye >> bye`

func TestConsumeStream(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	var es []events.Event
	for _, kind := range []string{"done", "dead", "later", "skip", "dies", "done", "hangs", "babbles", "other-id", "endless", "quits", "done"} {
		es = append(es, events.Event{Type: kind, Payload: []byte(`{"type":"inner"}`)})
	}
	b.publish(es...)
	r := b.consume(streamScript, "--stream", "--limit", "1s")
	b.untilSQL("select string_agg(ev_type, ',' order by ev_id) from pgque.retry_queue where ev_retry = 1 and ev_type = 'later'", "later")
	b.until("a second attempt of the failing ones", func() bool {
		return strings.Count(r.stderr.String(), "attempt=2") >= 5
	})
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	for _, want := range []string{
		`type=dies attempt=1 outcome=retried reason="COMMAND ended before it answered: exit status 7: last words"`,
		`type=hangs attempt=1 outcome=retried reason="ended after the limit of 1s`,
		`type=babbles attempt=1 outcome=retried reason="COMMAND wrote a line that is no answer`,
		`type=other-id attempt=1 outcome=retried reason="COMMAND wrote a line that is no answer to its event: \"id\" is not 10`,
		`type=endless attempt=1 outcome=retried reason="COMMAND wrote a line of more than 65536 bytes`,
		`type=dead attempt=1 outcome=dead reason="no good"`,
		"consume ended: 4 done, 1 skipped",
	} {
		if !strings.Contains(r.stderr.String(), want) {
			t.Errorf("stderr lacks %s", want)
		}
	}
	if strings.Contains(r.stderr.String(), "type=done") || strings.Contains(r.stderr.String(), "type=quits") {
		t.Error("a process that ended by itself after its answer failed an event")
	}
	if t.Failed() {
		t.Log(r.stderr)
	}
	if got := b.db.Value(t, "select string_agg(ev_type || ' ' || dl_reason, ', ') from pgque.dead_letter"); got != "dead no good" {
		t.Errorf("dead letters: %s", got)
	}
	if strings.Contains(b.file("seen"), "inner") {
		t.Error("the script mistook the payload's type for the event's")
	}
}

// A line that was there before its event is no answer to it: here the second answer to
// attempt 1 would ack attempt 2 unseen.
func TestConsumeStreamEarlyAnswer(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(events.Event{Type: "early", Payload: []byte("1")})
	r := b.consume(streamScript, "--stream")
	b.until("attempt 2 to fail", func() bool {
		return strings.Contains(r.stderr.String(), `type=early attempt=2 outcome=retried reason="COMMAND wrote to its stdout before it was given the event`)
	})
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if !strings.Contains(r.stderr.String(), "consume ended: 0 done") {
		t.Errorf("stderr: %s", r.stderr)
	}
}

// A COMMAND that closes its stdout can never answer, and is not waited for.
func TestConsumeStreamClosedStdout(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(events.Event{Type: "mute", Payload: []byte("1")}, events.Event{Type: "done", Payload: []byte("2")})
	r := b.consume(streamScript, "--stream", "--limit", "24h")
	b.until("the failure", func() bool {
		return strings.Contains(r.stderr.String(), `type=mute attempt=1 outcome=retried reason="COMMAND closed its stdout before it answered`)
	})
	b.until("the next event", func() bool { return strings.Contains(b.file("seen"), "done") })
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
}

// One process serves many events, and there is one for each worker.
func TestConsumeStreamWorkers(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	es := numbered(300)
	for i := range es {
		es[i].Type = "done"
	}
	b.publish(es...)
	r := b.consume(streamScript, "--stream", "--workers", "3")
	b.until("all events", func() bool { return strings.Count(b.file("seen"), "\n") >= 300 })
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if got := strings.Count(b.file("seen"), "\n"); got != 300 {
		t.Errorf("%d events were seen, want 300", got)
	}
	if got := strings.Count(b.file("started"), "\n"); got < 2 || got > 3 {
		t.Errorf("%d processes were started, want 3 at most", got)
	}
	if b.file("bye") == "" {
		t.Error("no process was let end at the end of its stdin")
	}
}

// The process dies while it is idle: no event has failed, and it is started anew.
func TestConsumeStreamIdleDeath(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(events.Event{Type: "done", Payload: []byte("1")})
	r := b.consume(streamScript, "--stream")
	b.untilFile("seen")
	b.untilSQL(settled, "t")
	pid := b.pid("started")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.untilDead("the process", pid)
	b.publish(events.Event{Type: "done", Payload: []byte("2")})
	b.until("the second event", func() bool { return strings.Count(b.file("seen"), "\n") == 2 })
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if strings.Contains(r.stderr.String(), "event failed") || !strings.Contains(r.stderr.String(), "ended between two events") {
		t.Errorf("stderr: %s", r.stderr)
	}
}

// The example of the documents: a program in Python.
func TestConsumeStreamPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	program := example(t, "python")
	if err := os.WriteFile(filepath.Join(b.dir, "stats.py"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	b.publish(events.Event{Type: "order", Payload: []byte(`{"amount": 5}`)}, events.Event{Type: "order", Payload: []byte(`"broken"`)}, events.Event{Type: "order", Payload: []byte(`{"amount": 7}`)})
	r := b.start("consume", "q", "c", "--stream", "--", python, "stats.py")
	b.untilSQL(deadLetters, "1")
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if !strings.Contains(r.stderr.String(), "2 done, 0 skipped, 0 to be retried, 1 dead") || !strings.Contains(r.stderr.String(), "total 12") {
		t.Errorf("stderr: %s", r.stderr)
	}
}

// example is the first code block of a language in docs/consume.md.
func example(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "consume.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "```"+language+"\n")
	code, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatalf("docs/consume.md has no example in %s", language)
	}
	return code
}

func TestParseAnswer(t *testing.T) {
	t.Parallel()
	const refused = "no answer"
	tests := []struct{ line, want string }{
		{`{"id":7,"outcome":"done"}`, "<nil>"},
		{`{"outcome":"done","id":"7"}`, "<nil>"},
		{`{"id":7,"outcome":"skip"}`, "skip this event"},
		{`{"id":7,"outcome":"retry","reason":"r"}`, "r"},
		{`{"id":7,"outcome":"retry","retry_after":1.5,"reason":"r"}`, "r"},
		{`{"id":7,"outcome":"dead"}`, `COMMAND answered "dead"`},
		{`{"id":7,"outcome":"retry","retry_after":null}`, `COMMAND answered "retry"`},
		{`{"id":7}`, refused},
		{`{"outcome":"done"}`, refused},
		{`{"id":8,"outcome":"done"}`, refused},
		{`{"id":7.0,"outcome":"done"}`, refused},
		{`{"id":7,"outcome":"Done"}`, refused},
		{`{"id":7,"outcome":"done","retryafter":1}`, refused},
		{`{"id":7,"outcome":"done","retry_after":1}`, refused},
		{`{"id":7,"outcome":"retry","retry_after":-1}`, refused},
		{`{"id":7,"outcome":"retry","retry_after":1e30}`, refused},
		{`{"id":7,"outcome":"done"} {"id":8,"outcome":"done"}`, refused},
		{`{"id":7,"outcome":"retry","outcome":"done"}`, refused},
		{`{"id":8,"id":7,"outcome":"done"}`, refused},
		{`{"id":7,"outcome":"dead","reason":"a","reason":"b"}`, refused},
		{`{"id":7,"outcome":"retry","retry_after":9,"retry_after":null}`, refused},
		{`{"id":7,"outcome":"dead","reason":7}`, refused},
		{`{"id":7,"outcome":7}`, refused},
		{`{"id":7,"outcome":"retry","retry_after":"9"}`, refused},
		{`[7]`, refused}, {`"x"`, refused}, {`7`, refused}, {`hello`, refused}, {``, refused}, {`null`, refused},
	}
	for _, tt := range tests {
		outcome, err := parseAnswer([]byte(tt.line), 7)
		got := fmt.Sprint(outcome)
		if err != nil {
			got = refused
			if strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "struct") {
				t.Errorf("%s: the error is about Go: %v", tt.line, err)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %s (%v), want %s", tt.line, got, err, tt.want)
		}
	}
	if outcome, _ := parseAnswer([]byte(`{"id":7,"outcome":"skip"}`), 7); !errors.Is(outcome, events.Skip) {
		t.Error("skip is not events.Skip")
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"id":7,"outcome":"retry","retry_after":1.5,"reason":"r"}`))
	f.Add([]byte(`{"id":"7","outcome":"done"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		outcome, err := parseAnswer(line, 7)
		if err != nil && outcome != nil {
			t.Errorf("both an outcome and an error: %v, %v", outcome, err)
		}
	})
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte("{}\n\nab\n"), 3)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		size = max(size%1000, 1)
		var a answers
		var got []string
		for rest := data; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			a.rest = append(a.rest, rest[:min(size, len(rest))]...)
			for line, whole := a.cut(); whole; line, whole = a.cut() {
				got = append(got, string(line))
			}
		}
		var want []string
		lines := strings.Split(string(data), "\n")
		for _, line := range lines[:len(lines)-1] {
			if line = strings.TrimSpace(line); line != "" {
				want = append(want, line)
			}
		}
		if len(data) <= maxAnswer && fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
