//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// stuckAtTwo does event 1, notes that event 2 has begun and does not end at SIGTERM.
const stuckAtTwo = `test "$(cat)" = 2 || exit 0; trap '' TERM; echo x >> begun; while :; do sleep 0.1; done`

func (b *consumeBench) untilBegun(times int) {
	b.Helper()
	b.until("event 2", func() bool { return strings.Count(b.file("begun"), "\n") == times })
}

// abort gives two signals, apart enough to be two wishes. It was started with
// --verbose, which says that the first was seen.
func (r *running) abort() {
	r.b.Helper()
	r.signal(syscall.SIGTERM)
	r.b.until("the first signal's effect", func() bool { return strings.Contains(r.stderr.String(), "ending cause=") })
	time.Sleep(burst)
	r.signal(syscall.SIGTERM)
	r.wantCode(143)
}

// After a second signal nothing is said to be retried, or acked, that is not.
func TestConsumeAbortIsSaid(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(2)...)
	r := b.consume(stuckAtTwo, "--verbose")
	b.untilBegun(1)
	r.abort()
	for _, want := range []string{
		`msg="event aborted, its batch comes again" event=`,
		"consume ended: 1 done, 0 skipped, 0 to be retried, 0 dead letters; 1 of these not acked, to come again\n",
	} {
		if !strings.Contains(r.stderr.String(), want) {
			t.Errorf("stderr lacks %s", want)
		}
	}
	if strings.Contains(r.stderr.String(), "outcome=") || t.Failed() {
		t.Errorf("stderr: %s", r.stderr)
	}
}

// An event whose attempts are spent is said to be a dead letter.
func TestConsumeLastAttemptIsSaid(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.db.Exec(t, "update pgque.queue set queue_max_retries = 0")
	b.publish(numbered(1)...)
	r := b.consume("exit 1")
	b.untilSQL(deadLetters, "1")
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if !strings.Contains(r.stderr.String(), `attempt=1 outcome=dead reason="exit status 1"`) {
		t.Errorf("stderr: %s", r.stderr)
	}
}

// A second signal while a batch runs that was left open by a crash: COMMAND is dead by
// then, so its event waits for nothing and has lost no attempt. When consume is killed
// it does, and the next start says so.
func TestConsumeAbortUnderTheCrashGuard(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(2)...)
	kill := func(times int) {
		r := b.consume(stuckAtTwo)
		b.untilBegun(times)
		r.signal(syscall.SIGKILL)
		r.code()
	}
	kill(1)
	r := b.consume(stuckAtTwo, "--verbose")
	b.untilBegun(2)
	r.abort()
	if got := b.db.Value(t, "select count(*) from pgque.retry_queue"); got != "0" {
		t.Errorf("%s bookings are left; stderr: %s", got, r.stderr)
	}
	kill(3)
	last := b.consume(stuckAtTwo)
	b.untilSQL(openBatches, "0")
	if !strings.Contains(last.stderr.String(), "an event was running when a process ended") || !strings.Contains(last.stderr.String(), " attempt=1 due=") {
		t.Errorf("nothing says that event 2 waits: %s", last.stderr)
	}
	last.signal(syscall.SIGTERM)
	last.wantCode(0)
}
