package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
)

func TestAgesInWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                   "now",
		999 * time.Millisecond:         "now",
		1999 * time.Millisecond:        "1 s ago",
		3*time.Minute + 59*time.Second: "3 min ago",
		time.Hour:                      "1 h ago",
		10*time.Hour + 10*time.Minute:  "10 h 10 min ago",
		24 * time.Hour:                 "1 day ago",
		47 * time.Hour:                 "1 day 23 h ago",
		500 * time.Hour:                "20 days ago",
	} {
		if got := ago(d); got != want {
			t.Errorf("ago(%s) = %q, want %q", d, got, want)
		}
	}
	if got := inWords(250 * time.Millisecond); got != "250 ms" {
		t.Errorf("inWords(250ms) = %q", got)
	}
}

// On a terminal --watch draws in place: each line is cleared to its end, what is
// below is cleared, and nothing scrolls.
func TestQueuesRedraw(t *testing.T) {
	t.Parallel()
	state := queuesState{database: "d", time: time.Now(), queues: []events.QueueInfo{{Name: "q", LastTick: time.Now()}}}
	var screen bytes.Buffer
	if err := state.redraw(&screen, 2*time.Second, "server\nis gone \x1b[2J"); err != nil {
		t.Fatal(err)
	}
	got := screen.String()
	if !strings.HasPrefix(got, "\x1b[Hdatabase \"d\" at ") || !strings.HasSuffix(got, "\x1b[K\n\x1b[J") {
		t.Errorf("not drawn in place: %q", got)
	}
	if !strings.Contains(got, "NO ANSWER since then: server; is gone \\x1b[2J\x1b[K\n") {
		t.Errorf("trouble is not said in one harmless line: %q", got)
	}
	if lines, cleared := strings.Count(got, "\n"), strings.Count(got, "\x1b[K\n"); lines != cleared {
		t.Errorf("%d lines, %d of them cleared to the end", lines, cleared)
	}
}
