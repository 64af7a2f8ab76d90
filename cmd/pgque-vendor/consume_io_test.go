//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// Nothing that COMMAND does with its streams holds consume up.
func TestConsumeStreams(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	large := events.Event{Type: "unread", Payload: fmt.Appendf(nil, "%q", strings.Repeat("x", 3<<20))}
	b.publish(large,
		events.Event{Type: "huge", Payload: []byte("2")},
		events.Event{Type: "grandchild", Payload: large.Payload},
		events.Event{Type: "last", Payload: []byte("4")})
	began := time.Now()
	r := b.consume(`case $PGQUE_EVENT_TYPE in
		unread) exit 0 ;;
		huge) head -c 3000000 /dev/zero | tr '\0' x; echo; yes 2>/dev/null | head -n 300000 >&2; exit 65 ;;
		grandchild) sleep 300 & echo $! > pid ;;
		last) printf 'the end' ;;
		esac`)
	b.until("the last event", func() bool { return strings.HasSuffix(r.stdout.String(), "the end") })
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("it took %s", took)
	}
	b.untilSQL(deadLetters, "1")
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if got := r.stdout.String(); len(got) != 3000001+len("the end") || !strings.HasSuffix(got, "x\nthe end") {
		t.Errorf("%d bytes of stdout, ending in %q", len(got), got[max(0, len(got)-20):])
	}
	_ = syscall.Kill(b.pid("pid"), syscall.SIGKILL)
}

// Output of several workers mixes by whole lines, and each sees its own event.
func TestConsumeWorkers(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(40)...)
	r := b.consume(`read n; for i in 1 2 3 4 5; do printf "event $n "; printf "$n "; printf $n; test $i = 5 || echo; done; echo >> done; touch running.$$
		until test $(ls running.* | wc -l) -ge 4; do sleep 0.02; done`, "--workers", "4")
	b.until("all forty", func() bool { return strings.Count(b.file("done"), "\n") == 40 })
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	seen := map[string]int{}
	for line := range strings.Lines(r.stdout.String()) {
		seen[line]++
	}
	for n := 1; n <= 40; n++ {
		if line := fmt.Sprintf("event %d %d %d\n", n, n, n); seen[line] != 5 {
			t.Errorf("%q is there %d times, want 5", line, seen[line])
		}
	}
}

func TestLineWriter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine)
	tests := map[string]struct{ writes, want []string }{
		"whole line":           {[]string{"a\n"}, []string{"a\n"}},
		"line in pieces":       {[]string{"a", "b", "c\nd"}, []string{"abc\n", "d"}},
		"lines and a rest":     {[]string{"a\nb\nc", "\n"}, []string{"a\nb\n", "c\n"}},
		"nothing":              {nil, nil},
		"unfinished, and long": {[]string{long, "y"}, []string{long + "y"}},
		"too long a line":      {[]string{long, "y", "z\n"}, []string{long + "y", "z\n"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got recorder
			w := &lineWriter{out: &sharedOutput{w: &got}}
			for _, s := range tt.writes {
				fmt.Fprint(w, s)
			}
			w.end(false)
			if fmt.Sprint(got.writes) != fmt.Sprint(tt.want) {
				t.Errorf("got %.60q, want %.60q", got.writes, tt.want)
			}
		})
	}
}

// The last line is made whole where others write after it.
func TestLineWriterEnd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct{ writes, want []string }{
		{[]string{"a"}, []string{"a\n"}},
		{[]string{"a\nb"}, []string{"a\n", "b\n"}},
		{[]string{"a\n"}, []string{"a\n"}},
		{[]string{long, "y"}, []string{long + "y", "\n"}},
		{[]string{long, "y", "z\n"}, []string{long + "y", "z\n"}},
		{nil, nil},
	} {
		var got recorder
		w := &lineWriter{out: &sharedOutput{w: &got}}
		for _, s := range tt.writes {
			fmt.Fprint(w, s)
		}
		w.end(true)
		if fmt.Sprint(got.writes) != fmt.Sprint(tt.want) {
			t.Errorf("%.20q: got %.60q, want %.60q", tt.writes, got.writes, tt.want)
		}
	}
}

// recorder keeps each write apart.
type recorder struct{ writes []string }

func (r *recorder) Write(p []byte) (int, error) {
	r.writes = append(r.writes, string(p))
	return len(p), nil
}

func TestTail(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ said, want string }{
		"nothing":            {"", ""},
		"a line":             {"no such mailbox\n", "no such mailbox"},
		"last lines":         {strings.Repeat("early\n", 50) + strings.Repeat("late\n", 10), strings.TrimSpace(strings.Repeat("late\n", 10))},
		"controls":           {"\x1b[31mred\x00\x07 \xff\u202e", `\x1b[31mred\x00\x07 ` + "\ufffd" + `\u202e`},
		"Windows lines":      {"a\r\nb\r\n", "a\nb"},
		"cut between runes":  {strings.Repeat("é", 5000), "…" + strings.Repeat("é", tailBytes/2)},
		"blank lines around": {"\n\n a \n\n", "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var kept tail
			for _, b := range []byte(tt.said) {
				_, _ = kept.Write([]byte{b})
			}
			if got := kept.text(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(kept.kept) > 2*tailBytes {
				t.Errorf("it keeps %d bytes", len(kept.kept))
			}
		})
	}
}

func TestEncodeEvent(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]string{"null": "", "text": "no\nJSON", "lines": "{\n \"a\": [1,\r\n 2]}", "html": `"<a>&"`, "big": "12345678901234567890.10"} {
		t.Run(name, func(t *testing.T) {
			e := events.Event{ID: 7, Type: "t\n", Time: time.Unix(1, 0), Attempt: 2, Queue: "q", Consumer: "c"}
			if payload != "" {
				e.Payload = []byte(payload)
			}
			line, err := encodeEvent(&e)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.IndexByte(line, '\n') != len(line)-1 {
				t.Errorf("not one line: %q", line)
			}
			var back eventLine
			if err := json.Unmarshal(line, &back); err != nil {
				t.Fatal(err)
			}
			if back.ID != 7 || back.Type != "t\n" || back.Attempt != 2 || back.Queue != "q" || back.Consumer != "c" {
				t.Errorf("got back %+v", back)
			}
			if _, err := parseEvent(bytes.TrimSpace(line)); err != nil {
				t.Errorf("publish does not read it back: %v", err)
			}
		})
	}
}

func TestWithoutSecrets(t *testing.T) {
	t.Parallel()
	got := withoutSecrets([]string{"PATH=/bin", "PGHOST=h", "PGQUE_VENDOR_TOKEN=s", "PGQUE_EVENT_ID=1", "DATABASE_URL=s", "DATABASE_URL_FILE=s",
		"GH_TOKEN=s", "GITHUB_TOKEN=s", "GITHUB_ACTIONS=true", "APP_DATABASE_URL=mine", "EMPTY="})
	if want := "[PATH=/bin GITHUB_ACTIONS=true APP_DATABASE_URL=mine EMPTY=]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// The idempotency key may hold what an environment cannot.
func TestEventEnvironmentNUL(t *testing.T) {
	t.Parallel()
	env := eventEnvironment(&events.Event{Headers: map[string]string{events.IdempotencyKey: "a\x00b"}})
	for _, entry := range env {
		if strings.ContainsRune(entry, 0) {
			t.Errorf("NUL in %q", entry)
		}
	}
}

// When nobody reads what COMMAND writes, consume ends well, and its exit codes count.
func TestConsumeStdoutClosed(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin())
	b.publish(numbered(2)...)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	r := b.startAs(func(cmd *exec.Cmd) { cmd.Stdout = writer }, "consume", "q", "c", "--", "sh", "-c", "cat >> done; echo out")
	writer.Close()
	b.tick()
	r.wantCode(0)
	if got := b.file("done"); got != "1" {
		t.Errorf("handled %q, want the first alone", got)
	}
	again := b.consume("cat >> done")
	b.until("the second", func() bool { return b.file("done") == "12" })
	again.signal(syscall.SIGTERM)
	again.wantCode(0)
}
