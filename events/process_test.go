//go:build unix

package events_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
)

type process struct {
	cmd   *exec.Cmd
	lines chan string
}

func startProcess(t *testing.T, env string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), env)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

func (p *process) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(patience):
		t.Fatalf("the process said nothing within %s", patience)
		return ""
	}
}

// Two processes, one consumer name: the second takes over when the first is
// killed, and when it is stopped; when that one goes on, it settles nothing (B032).
func TestProcesses(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			if signal == syscall.SIGSTOP && testing.Short() {
				t.Skip("waits for the lease to run out")
			}
			t.Parallel()
			db, pool := setUp(t, newest(t))
			publish(t, pool, 3)
			eventstest.Tick(t, pool, queue)
			p := startProcess(t, "EVENTS_TEST_CONSUMER="+db.URL)
			if line := p.next(t); line != "handling 1" {
				t.Fatal(line)
			}
			var got tally
			second := start(t, pool, events.ConsumerConfig{}, func(_ context.Context, e *events.Event) error { got.add(e); return nil })
			until(t, "standing by", func() bool { return second.log.count("standing by") == 1 })
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			until(t, "take-over", func() bool { n, _ := got.count(); return n == 3 })
			t.Logf("taken over after %s", time.Since(at).Round(100*time.Millisecond))
			until(t, "ack", func() bool {
				return value[int](t, pool, "select count(*) from pgque.subscription where sub_batch is not null") == 0
			})
			if signal == syscall.SIGKILL {
				return
			}
			if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if line := p.next(t); line != "cancelled 1" {
				t.Errorf("after it went on, the process said %q", line)
			}
			if err := second.end(); err != nil {
				t.Error(err)
			}
			if n := value[int](t, pool, retries); n != 0 {
				t.Errorf("%d retries", n)
			}
			if strings.Contains(second.log.String(), "stale") {
				t.Error("the second found its batch acked by the first")
			}
		})
	}
}

// Rotation every second under load, with a consumer that is killed again and again:
// every event is handled, none dies of the kills, and the tables do rotate.
func TestKilledUnderRotation(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	runTicker(t, pool)
	var seen tally
	var readers sync.WaitGroup
	var working atomic.Bool
	begin := func() *process {
		p := startProcess(t, "EVENTS_TEST_WORKER="+db.URL)
		working.Store(false)
		readers.Go(func() {
			for line := range p.lines {
				working.Store(true)
				seen.add(&events.Event{Payload: []byte(line)})
			}
		})
		return p
	}
	p, sent := begin(), 0
	tables := map[int]bool{} // that were the current one
	killAt, rotateAt := time.Now().Add(700*time.Millisecond), time.Now()
	// On a slow machine it takes longer until the consumer has got on.
	for began := time.Now(); time.Since(began) < 6*time.Second || len(tables) < 2 && time.Since(began) < 2*time.Minute; time.Sleep(10 * time.Millisecond) {
		es := make([]events.Event, 10)
		for i := range es {
			sent++
			es[i] = events.Event{Type: "t", Payload: fmt.Append(nil, sent)}
		}
		if _, err := events.SendBatch(t.Context(), pool, queue, es); err != nil {
			t.Fatal(err)
		}
		if now := time.Now(); now.After(killAt) && working.Load() {
			_ = p.cmd.Process.Kill()
			p, killAt = begin(), now.Add(time.Duration(300+rand.IntN(600))*time.Millisecond)
		}
		if now := time.Now(); now.After(rotateAt) {
			db.Exec(t, "update pgque.queue set queue_switch_time = now() - interval '1 day'")
			db.Exec(t, "select pgque.maint_rotate_tables_step1('q')")
			db.Exec(t, "select pgque.maint_rotate_tables_step2()")
			tables[value[int](t, pool, "select queue_cur_table from pgque.queue")] = true
			rotateAt = now.Add(time.Second)
		}
	}
	until(t, "all handled", func() bool {
		// A killed process's booking is due in an hour.
		if _, err := pool.Exec(t.Context(), "update pgque.retry_queue set ev_retry_after = now() where ev_retry_after > now() + interval '30 min' and not exists (select from pgque.subscription where sub_batch is not null)"); err != nil {
			t.Fatal(err)
		}
		distinct, _ := seen.count()
		return distinct == sent
	})
	_ = p.cmd.Process.Kill()
	readers.Wait()
	if n := value[int](t, pool, dead); n != 0 {
		t.Errorf("%d dead letters", n)
	}
	if len(tables) < 2 {
		t.Error("the tables did not rotate")
	}
	_, total := seen.count()
	t.Logf("%d events were handled %d times", sent, total)
}
