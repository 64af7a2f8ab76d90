package composetest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/standin"
)

const (
	superuserPassword = "S3cret of the superuser"
	appPassword       = "S3cret of the app"
	graceOfCompose    = 40 * time.Second // stop_grace_period of ticker and worker
)

// stack is a user's folder with the repository's own compose.yml in it.
type stack struct {
	*engine
	folder string
}

// compose is docker-compose in the user's folder.
func (s *stack) compose(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.tools, "docker-compose"), args...)
	cmd.Dir, cmd.Env = s.folder, s.environment()
	return cmd
}

// must runs docker-compose, which has to succeed.
func (s *stack) must(args ...string) string {
	s.t.Helper()
	out, err := s.compose(s.t.Context(), args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("docker-compose %s: %v\n%s\n%s", strings.Join(args, " "), err, out, s.logs())
	}
	return string(out)
}

func (s *stack) logs() string {
	out, _ := s.compose(context.Background(), "logs", "--no-color", "--tail", "30").CombinedOutput()
	return string(out)
}

func (s *stack) secret(name, value string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, "compose", "secrets", name), []byte(value+"\n"), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// newStack makes the folder as docs/compose.md says: compose.yml and compose/,
// the two secrets, and vendored SQL. The SQL is the stand-in, which bootstrap
// takes only when told so.
func newStack(t *testing.T, e *engine) *stack {
	t.Helper()
	s := &stack{engine: e, folder: filepath.Join(e.dir, "project")}
	copyFile(t, filepath.Join(repository(t), "compose.yml"), filepath.Join(s.folder, "compose.yml"))
	if err := os.CopyFS(filepath.Join(s.folder, "compose", "init"), os.DirFS(filepath.Join(repository(t), "compose", "init"))); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.folder, "compose", "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.secret("events_superuser_password", superuserPassword)
	s.secret("events_app_password", appPassword)
	const override = "services:\n  bootstrap:\n    environment:\n      PGQUE_VENDOR_ALLOW_STANDIN: \"1\"\n"
	if err := os.WriteFile(filepath.Join(s.folder, "compose.override.yml"), []byte(override), 0o644); err != nil {
		t.Fatal(err)
	}
	upstream := ghtest.NewRepo(t)
	upstream.Tag(standin.Newer, upstream.Commit(map[string]string{
		"sql/pgque.sql": string(standin.SQL()), "LICENSE": "a licence\n", "NOTICE": "a notice\n",
	}))
	update := exec.Command(program(t), "update", standin.Newer, "--from", upstream.Dir, "--repo", "a/stand-in")
	update.Dir = s.folder
	if out, err := update.CombinedOutput(); err != nil {
		t.Fatalf("vendor the stand-in: %v\n%s", err, out)
	}
	return s
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// deliver publishes an event and waits until the worker has printed it.
func (s *stack) deliver(ticket int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	payload := fmt.Sprintf(`{"ticket":%d}`, ticket)
	publish := s.compose(ctx, "run", "--rm", "--no-deps", "--no-TTY", "ticker", "publish", "tickets", "ticket.welcome", payload)
	if out, err := publish.CombinedOutput(); err != nil {
		s.t.Fatalf("publish: %v\n%s", err, out)
	}
	follow := s.compose(ctx, "logs", "--follow", "--no-color", "--no-log-prefix", "worker")
	lines, err := follow.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		s.t.Fatal(err)
	}
	defer func() { cancel(); _ = follow.Wait() }()
	for scan := bufio.NewScanner(lines); scan.Scan(); {
		if strings.Contains(scan.Text(), `"payload":`+payload) {
			return
		}
	}
	s.t.Fatalf("the worker did not print the event %s\n%s", payload, s.logs())
}

// eventually waits for what an engine does by itself and tells nobody of.
func (s *stack) eventually(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("after two minutes: not %s\n%s", what, s.logs())
		}
	}
}

// The repository's compose.yml on a real engine (B051, B052, B089). The steps
// stand on each other: it is one life of a stack.
func TestComposeRuns(t *testing.T) {
	e := startEngine(t)
	took := stopwatch(t)
	e.makeImages()
	took("make the images")
	s := newStack(t, e)
	took("vendor into a new folder")
	e.checkImage()

	s.must("up", "--wait", "--no-build", "--quiet-pull")
	took("up")
	if c := s.service("bootstrap"); c.State.Status != "exited" || c.State.ExitCode != 0 {
		t.Fatalf("bootstrap is %s with code %d, want exited with 0\n%s", c.State.Status, c.State.ExitCode, s.logs())
	}
	for _, name := range []string{"postgres-events", "ticker", "worker"} {
		if c := s.service(name); c.State.Health.Status != "healthy" {
			t.Errorf("%s is %q, want healthy\n%s", name, c.State.Health.Status, s.logs())
		}
	}
	s.deliver(1)
	took("publish, tick and handle an event")

	before := [3]container{s.service("postgres-events"), s.service("ticker"), s.service("worker")}
	s.must("up", "--wait", "--no-build", "--quiet-pull")
	after := [3]container{s.service("postgres-events"), s.service("ticker"), s.service("worker")}
	for i, b := range before {
		if b.ID != after[i].ID || !b.State.StartedAt.Equal(after[i].State.StartedAt) {
			t.Errorf("the second up replaced or restarted a container: %+v, then %+v", b, after[i])
		}
	}
	if c := s.service("bootstrap"); c.State.ExitCode != 0 {
		t.Errorf("bootstrap's second run ended with %d", c.State.ExitCode)
	}
	took("up again")

	killed := s.service("ticker")
	e.output(e.command("kill", "-KILL", fmt.Sprint(killed.State.Pid)))
	s.eventually("a new ticker after the old one was killed", func() bool {
		c := s.service("ticker")
		return c.State.Status == "running" && c.State.Pid != killed.State.Pid
	})
	s.deliver(2)
	took("heal a killed ticker")

	s.must("restart", "postgres-events") // podman's way of it: the server is killed, and gets another address
	took("restart the database")
	s.deliver(3)
	if now := s.service("worker"); !now.State.StartedAt.Equal(before[2].State.StartedAt) {
		t.Errorf("the worker was restarted with the database: %+v", now)
	}
	took("heal a restarted database")

	begin := time.Now()
	s.must("stop")
	if d := time.Since(begin); d > graceOfCompose {
		t.Errorf("stop took %s", d)
	}
	for _, name := range []string{"postgres-events", "ticker", "worker"} {
		if c := s.service(name); c.State.Status != "exited" || c.State.ExitCode != 0 {
			t.Errorf("%s is %s with code %d after stop, want exited with 0", name, c.State.Status, c.State.ExitCode)
		}
	}
	s.must("up", "--wait", "--no-build", "--quiet-pull")
	s.must("down")
	took("stop, up, down")
	var left []container
	if err := e.get("containers/json?all=true", &left); err != nil || len(left) > 0 {
		t.Errorf("down left %d containers: %v", len(left), err)
	}

	s.wrongPassword()
	took("refuse a wrong password")
	s.tightSecret()
	took("refuse a secret that cannot be read")
}

// wrongPassword: the one-shot fails where everybody sees it, and what depends on
// it does not start.
func (s *stack) wrongPassword() {
	t := s.t
	t.Helper()
	const wrong = "n0t the passw0rd"
	s.secret("events_superuser_password", wrong)
	out, err := s.compose(t.Context(), "up", "--detach", "--no-build", "--quiet-pull").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "bootstrap") {
		t.Errorf("up with a wrong password: %v\n%s", err, out)
	}
	if c := s.service("bootstrap"); c.State.Status != "exited" || c.State.ExitCode != 4 {
		t.Errorf("bootstrap is %s with code %d, want exited with 4", c.State.Status, c.State.ExitCode)
	}
	for _, name := range []string{"ticker", "worker"} {
		if c := s.service(name); !c.State.StartedAt.IsZero() && c.State.StartedAt.Year() > 1 {
			t.Errorf("%s was started: %+v", name, c.State)
		}
	}
	logs := s.logs()
	if !strings.Contains(logs, "pgque-vendor: error: ") {
		t.Errorf("bootstrap's log has no error:\n%s", logs)
	}
	if strings.Contains(logs+string(out), wrong) {
		t.Errorf("the password is shown:\n%s%s", logs, out)
	}
	s.must("down", "--volumes")
}

// tightSecret: a secret has the mode that it has on the host, and the image's user
// is not the host's.
func (s *stack) tightSecret() {
	s.t.Helper()
	if err := os.Chmod(filepath.Join(s.folder, "compose", "secrets", "events_superuser_password"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	out, err := s.compose(s.t.Context(), "run", "--rm", "--no-deps", "--no-TTY", "bootstrap").CombinedOutput()
	if !strings.Contains(string(out), "permission denied") {
		s.t.Errorf("bootstrap with a secret that it may not read: %v\n%s", err, out)
	}
	s.must("down", "--volumes")
}

// stopwatch logs how long each step took.
func stopwatch(t *testing.T) func(step string) {
	last := time.Now()
	return func(step string) {
		t.Helper()
		t.Logf("%s: %s", step, time.Since(last).Round(100*time.Millisecond))
		last = time.Now()
	}
}
