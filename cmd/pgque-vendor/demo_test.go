//go:build unix

package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/pgserver"
)

// programFolder returns a folder with the program: this test binary, which is it when
// it is called by that name (see TestMain).
func programFolder(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "pgque-vendor")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// demoRun is a running demo.
type demoRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	ended  chan struct{}
	stderr bytes.Buffer

	mu  sync.Mutex
	out bytes.Buffer
}

func (r *demoRun) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *demoRun) stdout() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

func startDemo(t *testing.T, env []string, args ...string) *demoRun {
	t.Helper()
	r := &demoRun{t: t, ended: make(chan struct{})}
	r.cmd = exec.Command(filepath.Join(programFolder(t), "pgque-vendor"), append([]string{"demo"}, args...)...)
	r.cmd.Dir = t.TempDir()
	r.cmd.Env = append(os.Environ(), "GH_TOKEN=", "GITHUB_TOKEN=", "GITHUB_ACTIONS=true", "PGPORT=1", "PGQUE_VENDOR_DIR=elsewhere")
	r.cmd.Env = append(r.cmd.Env, env...)
	r.cmd.Stdout, r.cmd.Stderr = r, &r.stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.cmd.Wait()
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
	})
	return r
}

// noGitHub is where no GitHub answers.
const noGitHub = "GITHUB_API_URL=http://127.0.0.1:1"

// until waits until the demo has shown something.
func (r *demoRun) until(text string) {
	r.t.Helper()
	deadline := time.After(2 * time.Minute)
	for !strings.Contains(r.stdout(), text) {
		select {
		case <-r.ended:
			if !strings.Contains(r.stdout(), text) {
				r.t.Fatalf("the demo ended without %q:\n%s\n%s", text, r.stdout(), r.stderr.String())
			}
		case <-deadline:
			r.t.Fatalf("the demo does not show %q:\n%s", text, r.stdout())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (r *demoRun) wantCode(code int) {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("the demo does not end:\n%s", r.stdout())
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("exit code %d, want %d:\n%s\n%s", got, code, r.stdout(), r.stderr.String())
	}
}

var (
	demoFolder = regexp.MustCompile(`temporary folder \((.*)/demo\)`)
	demoPort   = regexp.MustCompile(`PGPORT=(\d+)`)
)

// wantNothingLeft fails unless the folder and all processes are gone; both may take
// the guard of a killed demo a moment.
func (r *demoRun) wantNothingLeft() {
	r.t.Helper()
	match := demoFolder.FindStringSubmatch(r.stdout())
	if match == nil {
		r.t.Fatalf("no folder is named:\n%s", r.stdout())
	}
	left := ""
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = leftOf(match[1], demoPort.FindStringSubmatch(r.stdout()))
		if left == "" {
			return
		}
	}
	r.t.Errorf("left behind: %s", left)
}

func leftOf(folder string, port []string) string {
	if _, err := os.Lstat(folder); err == nil {
		return folder
	}
	if port != nil {
		if conn, err := net.DialTimeout("tcp", "127.0.0.1:"+port[1], time.Second); err == nil {
			conn.Close()
			return "a server at port " + port[1]
		}
	}
	// Where the system shows them: a process that works in the folder.
	processes, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, p := range processes {
		if at, err := os.Readlink(p); err == nil && strings.HasPrefix(at, folder) {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline"))
			return fmt.Sprintf("process %s: %q", p, name)
		}
	}
	return ""
}

// wantSteps fails unless each command was shown, with what it has to say, in order.
func (r *demoRun) wantSteps(tag, from string) {
	r.t.Helper()
	rest := r.stdout()
	for _, want := range []string{
		"$ pgque-vendor list" + from + "\n", "newest stable",
		"$ pgque-vendor update --latest" + from + "\n", "pgque.sql  added",
		"$ pgque-vendor status\n", "match " + tag,
		"$ export PGHOST=127.0.0.1", "$ pgque-vendor bootstrap --grant-admin app --queue tickets --subscribe tickets/notifications\n", "installed PgQue " + tag,
		"$ pgque-vendor ticker", "[ticker] ticking all queues",
		"$ pgque-vendor publish tickets ticket.welcome", "$ pgque-vendor publish tickets ticket.sla_breached", "$ pgque-vendor publish tickets report.weekly_ready",
		"$ pgque-vendor consume tickets notifications -- sh notify.sh\n",
		"\nsent: ticket.welcome, attempt 1: {\"email\"", "\nfailed: ticket.sla_breached, attempt 1", "\nsent: report.weekly_ready, attempt 1: {\"week\"",
		"\nsent: ticket.sla_breached, attempt 2: {\"ticket\"", "consume ended: 3 done",
		"$ pgque-vendor queues\n", "notifications",
		"$ pgque-vendor doctor\n", "healthy: ",
		"All steps did what they should",
	} {
		_, after, ok := strings.Cut(rest, want)
		if !ok {
			r.t.Fatalf("after what came before, %q is missing:\n%s", want, r.stdout())
		}
		rest = after
	}
}

// Without network: the stand-in, and the demo says so. Nothing around it matters.
func TestDemo(t *testing.T) {
	t.Parallel()
	r := startDemo(t, []string{noGitHub})
	r.wantCode(0)
	r.wantSteps("v0.2.0", " --from stand-in.git")
	if !strings.Contains(r.stdout(), "GitHub can't be reached (") || !strings.Contains(r.stdout(), "is not PgQue") {
		t.Errorf("the stand-in is not named:\n%s", r.stdout())
	}
	if r.stderr.Len() > 0 {
		t.Errorf("stderr: %s", r.stderr.String())
	}
	if files, err := os.ReadDir(r.cmd.Dir); err != nil || len(files) > 0 {
		t.Errorf("the demo wrote into the working directory: %v %v", files, err)
	}
	r.wantNothingLeft()
}

// With the real PgQue, from a clone and through GitHub's API.
func TestDemoUpstream(t *testing.T) {
	t.Parallel()
	clone := upstreamClone(t)
	r := startDemo(t, []string{noGitHub}, "--from", clone)
	r.wantCode(0)
	r.wantSteps("v0.2.0", " --from "+shellQuote(clone))
	r.wantNothingLeft()

	server := ghtest.New(ghtest.Options{GitDir: clone, Repository: defaultRepository})
	defer server.Close()
	r = startDemo(t, []string{"GITHUB_API_URL=" + server.URL})
	r.wantCode(0)
	r.wantSteps("v0.2.0", "")
	if !strings.Contains(r.stdout(), "PgQue comes from GitHub.") {
		t.Errorf("GitHub is not named:\n%s", r.stdout())
	}
	r.wantNothingLeft()
}

// A step that fails fails the demo, with its exit code: bootstrap takes no stand-in
// from elsewhere than the demo's own.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	repository := filepath.Join(t.TempDir(), "standin.git")
	if err := makeStandinRepository(t.Context(), repository); err != nil {
		t.Fatal(err)
	}
	r := startDemo(t, nil, "--from", repository)
	r.wantCode(6)
	if !strings.Contains(r.stderr.String(), "bootstrap") || strings.Contains(r.stdout(), "All steps") {
		t.Errorf("stderr: %s\n%s", r.stderr.String(), r.stdout())
	}
	r.wantNothingLeft()
}

func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		at     string
		signal syscall.Signal
		code   int
	}{
		{"temporary folder (", syscall.SIGTERM, 143},
		{"$ pgque-vendor bootstrap", syscall.SIGINT, 130},
		{"failed: ticket.sla_breached", syscall.SIGTERM, 143},
		{"sent: ticket.welcome", syscall.SIGKILL, -1},
	} {
		t.Run(tt.at, func(t *testing.T) {
			t.Parallel()
			r := startDemo(t, []string{noGitHub})
			r.until(tt.at)
			if err := r.cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			r.wantCode(tt.code)
			r.wantNothingLeft()
		})
	}
}

func TestDemoKeep(t *testing.T) {
	t.Parallel()
	r := startDemo(t, []string{noGitHub}, "--keep")
	r.until("publish tickets ticket.welcome '{\"email\": \"you@example.org\"}'")
	page := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(r.stdout())
	response, err := http.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("the status page %s answered %s", page, response.Status)
	}
	// What it tells to type works as printed.
	_, typed, _ := strings.Cut(r.stdout(), "In another terminal:\n")
	shell := exec.Command("sh", "-e", "-c", typedCommands(typed))
	shell.Env = append(os.Environ(), "PATH="+programFolder(t)+":"+os.Getenv("PATH"))
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	r.until("[consume] sent: ticket.welcome, attempt 1: {\"email\": \"you@example.org\"}")
	if err := r.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r.wantCode(0)
	if strings.Contains(r.stdout(), "error:") {
		t.Errorf("it did not end well:\n%s", r.stdout())
	}
	r.wantNothingLeft()
}

// typedCommands are the commands that the demo prints at its end, without the alias:
// only a terminal's shell expands one.
func typedCommands(text string) string {
	var typed []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "  alias ") {
			typed = append(typed, line)
		}
	}
	return strings.Join(typed, "")
}

func TestDemoWithoutGit(t *testing.T) {
	t.Parallel()
	programs, err := pgserver.Find(os.LookupEnv)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("there is no PostgreSQL on this machine: ", err)
	}
	if err != nil {
		t.Skip("this test needs PostgreSQL on the machine: ", err)
	}
	r := startDemo(t, []string{noGitHub, "PGQUE_TEST_PG_BIN=" + programs, "PATH=" + t.TempDir()})
	r.wantCode(2)
	for _, want := range []string{"error: the stand-in needs the git program", "hint: install git"} {
		if !strings.Contains(r.stderr.String(), want) {
			t.Errorf("stderr does not say %q: %s", want, r.stderr.String())
		}
	}
	r.wantNothingLeft()
}
