package composetest

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// first is a program that runs as PID 1, as in a container: the kernel gives such
// a process no signal that it does not handle, and nobody reaps for it.
type first struct {
	cmd    *exec.Cmd
	stderr *bufio.Scanner
	said   strings.Builder
}

func startFirst(t *testing.T, db *pgtest.DB, args ...string) *first {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a PID namespace takes root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	p := &first{cmd: exec.CommandContext(ctx, program(t), args...)}
	p.cmd.Env = []string{"DATABASE_URL=" + db.URL} // as bare as a container's
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	pipe, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stderr = bufio.NewScanner(pipe)
	if err := p.cmd.Start(); err != nil {
		t.Skipf("no PID namespace here: %v", err)
	}
	return p
}

// until reads on until a line holds the text.
func (p *first) until(t *testing.T, text string) {
	t.Helper()
	for p.stderr.Scan() {
		p.said.WriteString(p.stderr.Text() + "\n")
		if strings.Contains(p.stderr.Text(), text) {
			return
		}
	}
	t.Fatalf("it ended without saying %q:\n%s", text, &p.said)
}

func (p *first) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// signalTwice leaves time between the two: nothing tells when the first was taken,
// and two of a kind that wait together are one.
func (p *first) signalTwice(t *testing.T, s syscall.Signal) {
	t.Helper()
	p.signal(t, s)
	time.Sleep(2 * time.Second)
	p.signal(t, s)
}

// wantExit waits for the end, which must come soon.
func (p *first) wantExit(t *testing.T, code int) {
	t.Helper()
	begin := time.Now()
	for p.stderr.Scan() {
		p.said.WriteString(p.stderr.Text() + "\n")
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d (%v), want %d\n%s", got, p.cmd.ProcessState, code, &p.said)
	}
	if d := time.Since(begin); d > 10*time.Second { // half of the default grace
		t.Errorf("the end took %s", d)
	}
}

// B089: as PID 1 the long-running roles end cleanly at the first signal, and at
// once at the second.
func TestFirstProcess(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Install(t, pgtest.Standin())
	db.Exec(t, "select pgque.create_queue('q')")

	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if signal.Ignored(s) { // these tests run under nohup, and so would the program
			t.Logf("%s is ignored here", s)
			continue
		}
		t.Run("ticker "+s.String(), func(t *testing.T) {
			p := startFirst(t, db, "ticker")
			p.until(t, "ticking")
			p.signal(t, s)
			p.wantExit(t, 0)
		})
		t.Run("consume "+s.String(), func(t *testing.T) {
			p := startFirst(t, db, "consume", "q", "idle", "--print")
			p.until(t, "msg=consuming")
			p.signal(t, s)
			p.wantExit(t, 0)
		})
	}
	for s, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		t.Run("second "+s.String(), func(t *testing.T) {
			name := strings.ReplaceAll(s.String(), " ", "-")
			db.Exec(t, "select pgque.subscribe('q', '"+name+"')")
			db.Exec(t, "select pgque.send('q', 't', '{}'::jsonb)")
			db.Exec(t, "select pgque.force_next_tick('q')")
			db.Exec(t, "select pgque.ticker()")
			p := startFirst(t, db, "consume", "q", name, "--", "/bin/sh", "-c", "echo handling >&2; sleep 100")
			p.until(t, "handling")
			p.signalTwice(t, s)
			p.wantExit(t, code)
		})
	}
}
