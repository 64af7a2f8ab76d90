//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// B019: SIGTERM in the middle of a COMMAND. It finishes, its event is settled, the
// rest goes back, and after a restart nothing comes twice.
func TestConsumeSIGTERMFinishes(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(5)...)
	script := `read n; echo $n >> begun; until test -e go; do sleep 0.02; done; echo $n >> done`
	first := b.consume(script)
	b.untilFile("begun")
	first.signal(syscall.SIGTERM)
	if err := os.WriteFile(filepath.Join(b.dir, "go"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	first.wantCode(0)
	second := b.consume(script)
	b.until("the other four", func() bool { return strings.Count(b.file("done"), "\n") >= 5 })
	second.signal(syscall.SIGINT)
	second.wantCode(0)
	for _, n := range []string{"1", "2", "3", "4", "5"} {
		if got := strings.Count("\n"+b.file("done"), "\n"+n+"\n"); got != 1 {
			t.Errorf("event %s was handled %d times", n, got)
		}
	}
	if !strings.Contains(first.stderr.String(), "handed back") && strings.Count(b.file("begun"), "\n") != 5 {
		t.Errorf("stderr: %s", first.stderr)
	}
}

// B093: one that waits for a tick stops at once, not when its wait or its grace is over.
func TestConsumeIdleStop(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin())
	r := b.start("consume", "q", "c", "--print", "--grace", "10m")
	b.untilSQL("select count(*) > 0 from pg_stat_activity where datname = current_database() and query ~* '^(un)?listen|pg_notify' and state = 'idle' and pid <> pg_backend_pid()", "t")
	start := time.Now()
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("it took %s", took)
	}
}

// B089: a second signal ends at once, with what COMMAND started, though that ignores
// SIGTERM. Nothing is settled.
func TestConsumeSecondSignal(t *testing.T) {
	t.Parallel()
	for second, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 143} {
		t.Run(second.String(), func(t *testing.T) {
			if signal.Ignored(second) { // as under nohup, which what we start would inherit
				caught := make(chan os.Signal, 1)
				signal.Notify(caught, second)
				t.Cleanup(func() { signal.Reset(second); signal.Ignore(second) })
			}
			t.Parallel()
			b := newConsumeBench(t, pgtest.Standin()).tick()
			b.publish(numbered(1)...)
			r := b.consume(`trap '' TERM; sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 1; done' & echo $$ > parent; wait; sleep 60`, "--verbose")
			parent, child := b.pid("parent"), b.pid("child")
			r.signal(syscall.SIGTERM)
			b.until("the first signal's effect", func() bool { return strings.Contains(r.stderr.String(), `ending cause="interrupted by SIGTERM"`) })
			time.Sleep(burst) // what comes earlier counts as the same
			if !alive(parent) {
				t.Fatal("COMMAND was ended by the first signal")
			}
			r.signal(second)
			r.wantCode(code)
			if !strings.Contains(r.stderr.String(), "pgque-vendor: error: interrupted by SIG") {
				t.Errorf("it says nothing: %s", r.stderr)
			}
			b.untilDead("COMMAND", parent)
			b.untilDead("what COMMAND started", child)
			if got := b.db.Value(t, openBatches); got != "1" {
				t.Errorf("%s open batches, want 1", got)
			}
		})
	}
}

// Closing a terminal sends SIGHUP twice, and wrappers pass on what was sent to all:
// signals in quick succession are one first signal, and COMMAND finishes.
func TestConsumeSignalsAtOnce(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)...)
	r := b.consume(`echo x > begun; until test -e go; do sleep 0.02; done; echo x > done`, "--verbose")
	b.untilFile("begun")
	// While it is stopped the signals wait, so that it gets them together.
	r.signal(syscall.SIGSTOP)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT} {
		r.signal(s)
	}
	r.signal(syscall.SIGCONT)
	b.until("the signals' effect", func() bool { return strings.Contains(r.stderr.String(), "ending cause=") })
	if err := os.WriteFile(filepath.Join(b.dir, "go"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantCode(0)
	if b.file("done") == "" || strings.Contains(r.stderr.String(), "error:") {
		t.Errorf("COMMAND has not finished; stderr: %s", r.stderr)
	}
}

// A COMMAND that outlasts the grace is ended, exit 143, and its event comes again
// with its attempts unchanged.
func TestConsumeGraceExceeded(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)...)
	r := b.consume(`echo $$ > pid; exec sleep 60`, "--grace", "200ms")
	pid := b.pid("pid")
	r.signal(syscall.SIGTERM)
	r.wantCode(143)
	if !strings.Contains(r.stderr.String(), "0 dead letters, 1 handed back\n") {
		t.Errorf("stderr: %s", r.stderr)
	}
	b.untilDead("COMMAND", pid)
	again := b.consume(`echo $PGQUE_EVENT_ATTEMPT > attempt`)
	b.untilFile("attempt")
	if got := b.file("attempt"); got != "1\n" {
		t.Errorf("attempt %s, want 1", got)
	}
	again.signal(syscall.SIGTERM)
	again.wantCode(0)
}

// B032: the connection that holds the lease is terminated. COMMAND is ended and
// nothing of it is settled, whatever it exits with; then the event comes again.
func TestConsumeLostLease(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)...)
	r := b.consume(`if test -e pid; then echo $PGQUE_EVENT_ATTEMPT > again; exit 0; fi; trap 'echo x > ended; exit 65' TERM; echo $$ > pid; while :; do sleep 0.1; done`)
	b.pid("pid")
	b.db.Exec(t, `select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'
		and database = (select oid from pg_database where datname = current_database())
		and pid in (select pid from pg_stat_activity where application_name like '%consume%' and state = 'idle in transaction')`)
	b.untilFile("ended")
	b.untilFile("again")
	if got := b.db.Value(t, deadLetters); got != "0" {
		t.Errorf("%s dead letters: the exit code of a COMMAND was settled after the lease was lost", got)
	}
	if got := b.file("again"); got != "1\n" {
		t.Errorf("attempt %s, want 1", got)
	}
	b.untilSQL(openBatches, "0")
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
}

// COMMAND is removed while consume runs: consume ends with 2, and no event is blamed.
func TestConsumeCommandGone(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"removed":        os.Remove,
		"not executable": func(path string) error { return os.Chmod(path, 0o600) },
		"no interpreter": func(path string) error { return os.WriteFile(path, []byte("#!/no/such/thing\n"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newConsumeBench(t, pgtest.Standin()).tick()
			path := filepath.Join(b.dir, "handler")
			if err := os.WriteFile(path, []byte("#!/bin/sh\ncat >> done\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			b.publish(numbered(1)...)
			r := b.start("consume", "q", "c", "--grace", "1s", "--", "./handler")
			b.untilFile("done")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			b.publish(numbered(3)...)
			r.wantCode(2)
			if !strings.Contains(r.stderr.String(), "error: start COMMAND: ") {
				t.Errorf("stderr: %s", r.stderr)
			}
			again := b.consume(`echo $PGQUE_EVENT_ATTEMPT >> attempts`)
			b.until("all three", func() bool { return strings.Count(b.file("attempts"), "\n") == 3 })
			if got := b.file("attempts"); got != "1\n1\n1\n" {
				t.Errorf("attempts %q, want 1 each", got)
			}
			again.signal(syscall.SIGTERM)
			again.wantCode(0)
		})
	}
}

// An event whose header is too large for an environment fails by itself.
func TestConsumeEventTooLargeToStart(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the size is Linux's")
	}
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)[0], events.Event{Type: "t", Payload: []byte("2"), Headers: map[string]string{"h": strings.Repeat("x", 200_000)}}, numbered(3)[2])
	r := b.consume(`cat >> done`)
	b.until("the good ones", func() bool { return b.file("done") == "13" })
	b.untilSQL("select min(ev_retry) from pgque.retry_queue", "1")
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if !strings.Contains(r.stderr.String(), "too large to start COMMAND with") {
		t.Errorf("stderr: %s", r.stderr)
	}
}

// A reader of --print that goes away: what was not written is not acked, and its
// attempts are unchanged.
func TestConsumePrintToClosedPipe(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin())
	b.publish(numbered(3)...)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	r := b.startAs(func(cmd *exec.Cmd) { cmd.Stdout = writer }, "consume", "q", "c", "--print")
	writer.Close()
	b.tick()
	r.wantCode(0)
	if strings.Contains(r.stderr.String(), "error:") || strings.Contains(r.stderr.String(), "1 done") {
		t.Errorf("stderr: %s", r.stderr)
	}
	again := b.start("consume", "q", "c", "--print")
	b.until("three lines", func() bool { return strings.Count(again.stdout.String(), `"attempt":1,`) == 3 })
	again.signal(syscall.SIGTERM)
	again.wantCode(0)
}

// A full disk under --print is an error, and nothing is acked.
func TestConsumePrintToFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer full.Close()
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)...)
	r := b.startAs(func(cmd *exec.Cmd) { cmd.Stdout = full }, "consume", "q", "c", "--print")
	r.wantCode(2)
	if !strings.Contains(r.stderr.String(), "error: write event") {
		t.Errorf("stderr: %s", r.stderr)
	}
}
