//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// consumeBench is a database with a queue "q" and a ticker on it, and a folder for
// what COMMANDs leave behind.
type consumeBench struct {
	*testing.T
	db   *pgtest.DB
	pool *pgxpool.Pool
	dir  string
}

func newConsumeBench(t *testing.T, v pgtest.Variant) *consumeBench {
	t.Helper()
	b := &consumeBench{T: t, db: pgtest.Database(t), dir: t.TempDir()}
	b.db.Install(t, v)
	b.pool = b.db.Pool(t)
	if _, err := events.EnsureQueue(t.Context(), b.pool, "q", events.Settings{"ticker_max_lag": "10 ms"}); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Subscribe(t.Context(), b.pool, "q", "c"); err != nil {
		t.Fatal(err)
	}
	return b
}

// tick keeps a ticker going until the test ends.
func (b *consumeBench) tick() *consumeBench {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = events.NewTicker(b.pool, events.TickerConfig{Every: 20 * time.Millisecond}).Run(ctx)
	}()
	b.Cleanup(func() { stop(); <-done })
	return b
}

func (b *consumeBench) publish(es ...events.Event) []int64 {
	b.Helper()
	ids, err := events.SendBatch(b.Context(), b.pool, "q", es, events.MaxPayload(1<<24))
	if err != nil {
		b.Fatal(err)
	}
	return ids
}

func numbered(n int) []events.Event {
	es := make([]events.Event, n)
	for i := range es {
		es[i] = events.Event{Type: "t", Payload: fmt.Appendf(nil, "%d", i+1)}
	}
	return es
}

// running is our program as a process.
type running struct {
	b              *consumeBench
	cmd            *exec.Cmd
	stdout, stderr *sharedBuffer
	ended          chan struct{}
}

type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start runs pgque-vendor: this test's own program under that name.
func (b *consumeBench) start(args ...string) *running {
	b.Helper()
	return b.startAs(func(*exec.Cmd) {}, args...)
}

func (b *consumeBench) startAs(change func(*exec.Cmd), args ...string) *running {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	r := &running{b: b, stdout: &sharedBuffer{}, stderr: &sharedBuffer{}, ended: make(chan struct{})}
	r.cmd = &exec.Cmd{Path: self, Args: append([]string{"pgque-vendor"}, args...), Dir: b.dir, Stdout: r.stdout, Stderr: r.stderr}
	r.cmd.Env = append(os.Environ(), "PGQUE_VENDOR_DATABASE_URL="+b.db.URL)
	change(r.cmd)
	if err := r.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.ended) }()
	b.Cleanup(func() { _ = r.cmd.Process.Kill(); <-r.ended })
	return r
}

// consume runs "consume q c" with a shell script as COMMAND.
func (b *consumeBench) consume(script string, flags ...string) *running {
	b.Helper()
	args := append([]string{"consume", "q", "c"}, flags...)
	return b.start(append(args, "--", "sh", "-c", script)...)
}

func (r *running) signal(s os.Signal) {
	r.b.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.b.Fatal(err)
	}
}

// code waits for the end.
func (r *running) code() int {
	r.b.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		r.b.Fatalf("still running after %s; stderr:\n%s", patience, r.stderr)
		return -1
	}
}

func (r *running) wantCode(want int) {
	r.b.Helper()
	if got := r.code(); got != want {
		r.b.Fatalf("exit code %d, want %d; stderr:\n%s", got, want, r.stderr)
	}
}

func (b *consumeBench) until(what string, is func() bool) {
	b.Helper()
	b.untilOr(what, is, func() {})
}

// untilOr waits, and says more when that was in vain.
func (b *consumeBench) untilOr(what string, is func() bool, more func()) {
	b.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			more()
			b.Fatalf("%s has not come about", what)
		}
	}
}

func (b *consumeBench) file(name string) string {
	data, _ := os.ReadFile(filepath.Join(b.dir, name))
	return string(data)
}

func (b *consumeBench) untilFile(name string) {
	b.Helper()
	b.until("file "+name, func() bool { return b.file(name) != "" })
}

func (b *consumeBench) untilSQL(sql, want string) {
	b.Helper()
	var got string
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if got = b.db.Value(b.T, sql); got == want {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s is %q, want %q", sql, got, want)
		}
	}
}

// pid reads a file that a script wrote a process number into.
func (b *consumeBench) pid(name string) int {
	b.Helper()
	b.untilFile(name)
	var pid int
	if _, err := fmt.Sscan(b.file(name), &pid); err != nil {
		b.Fatal(err)
	}
	return pid
}

// alive says whether a process is there and no zombie, which whoever inherited it
// may take its time to bury.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}

func (b *consumeBench) untilDead(what string, pid int) {
	b.Helper()
	b.until("the death of "+what, func() bool { return !alive(pid) })
}

const (
	openBatches = "select count(sub_batch) from pgque.subscription"
	deadLetters = "select count(*) from pgque.dead_letter"
	// settled is true when the consumer is at the last tick and nothing waits.
	settled = `select sub_batch is null and sub_last_tick = (select max(tick_id) from pgque.tick) and not exists (select from pgque.retry_queue)
		from pgque.subscription`
)
