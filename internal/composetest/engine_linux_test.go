package composetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// engine is podman behind the API that docker-compose speaks. It and all its
// containers live in process, mount and network namespaces of their own: nothing
// of them is seen on the machine, and all of it goes with the engine's process,
// however this test ends.
type engine struct {
	t      *testing.T
	tools  string // the folder that .ci/containers prepared
	dir    string // storage, socket and configuration
	init   *exec.Cmd
	client *http.Client // of the API, for what docker-compose does not tell
}

// startEngine skips the test where .ci/containers was not run, or fails it where
// PGQUE_CONTAINERS=required.
func startEngine(t *testing.T) *engine {
	t.Helper()
	tools := os.Getenv("PGQUE_CONTAINERS_DIR")
	if tools == "" {
		const why = "compose.yml was not run: run .ci/containers FOLDER as root, and set PGQUE_CONTAINERS_DIR to the folder"
		if os.Getenv("PGQUE_CONTAINERS") == "required" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	dir, err := os.MkdirTemp("", "pgque-compose-") // short: a socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, tools: tools, dir: dir}
	t.Cleanup(e.stop)
	// The driver vfs works everywhere, and copies 300 MB for each container.
	for _, driver := range []string{"overlay", "vfs"} {
		e.configure(driver)
		if err = e.start(); err == nil {
			t.Logf("podman runs with the storage driver %s", driver)
			break
		}
		e.kill()
	}
	if err != nil {
		t.Fatal(err)
	}
	go e.runHealthChecks(t.Context())
	return e
}

func (e *engine) configure(driver string) {
	e.t.Helper()
	// The limits are those of the smallest sandbox that this must run in.
	e.write("containers.conf", fmt.Sprintf(`[containers]
default_ulimits = ["nofile=1024:1024", "nproc=500:500"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "%[1]s/tmp"
[network]
network_backend = "netavark"
network_config_dir = "%[1]s/networks"
`, e.dir))
	e.write("resolv.conf", "nameserver 192.0.2.53\n")
	e.write("storage.conf", fmt.Sprintf(`[storage]
driver = %[2]q
graphroot = "%[1]s/%[2]s"
runroot = "%[1]s/run"
`, e.dir, driver))
}

func (e *engine) write(name, content string) {
	e.t.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(content), 0o644); err != nil {
		e.t.Fatal(err)
	}
}

func (e *engine) socket() string { return filepath.Join(e.dir, "podman.sock") }

// environment is all that the engine's programs get: nothing of a developer's own
// Docker or compose settings.
func (e *engine) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + e.dir, "TMPDIR=" + e.dir,
		"CONTAINERS_CONF=" + filepath.Join(e.dir, "containers.conf"),
		"CONTAINERS_STORAGE_CONF=" + filepath.Join(e.dir, "storage.conf"),
		"DISABLE_HC_SYSTEMD=true", // see runHealthChecks
		"DOCKER_HOST=unix://" + e.socket(),
		"COMPOSE_PROJECT_NAME=pgque",
	}
}

// start starts the engine's first process, a shell that reaps what others leave,
// and waits for the API.
func (e *engine) start() error {
	// The name server is one that refuses at once: names that podman's own does not
	// know, it asks there, and without an answer a look-up takes half a minute.
	const script = `set -e
mount --make-rprivate /
mount -t proc proc /proc
resolv=$(readlink -f /etc/resolv.conf)
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
ip address add 192.0.2.53/32 dev lo
mkdir -p "$(dirname "$resolv")"
[ -e "$resolv" ] || : >"$resolv"
mount --bind "$2" "$resolv"
podman system service --time=0 "unix://$1" &
wait`
	log, err := os.Create(filepath.Join(e.dir, "engine.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	e.init = exec.Command("/bin/sh", "-c", script, "sh", e.socket(), filepath.Join(e.dir, "resolv.conf"))
	e.init.Env = e.environment()
	e.init.Stdout, e.init.Stderr = log, log
	e.init.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := e.init.Start(); err != nil {
		return fmt.Errorf("start podman in namespaces of its own: %w", err)
	}
	e.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", e.socket())
		},
	}}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := e.get("info", nil)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("podman's API does not answer: %w\n%s", err, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// get asks podman's own API.
func (e *engine) get(path string, into any) error {
	response, err := e.client.Get("http://podman/v4.0.0/libpod/" + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return &apiError{path: path, status: response.Status, body: string(body)}
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// apiError is an answer of podman's API that is not 200.
type apiError struct{ path, status, body string }

func (e *apiError) Error() string { return e.path + ": " + e.status + ": " + e.body }

// ofDeadProcess tells that podman took a container for running whose process had
// ended, and then did not find it in /proc: an inspection has no other way to fail
// with such a path. It knows better as soon as the container's monitor has told it.
func (e *apiError) ofDeadProcess() bool { return strings.Contains(e.body, "/proc/") }

// runHealthChecks runs the containers' health checks, which podman leaves to
// timers of systemd. What they are and what comes of them is podman's.
func (e *engine) runHealthChecks(ctx context.Context) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		var running []struct{ ID string }
		if e.get("containers/json?filters="+url.QueryEscape(`{"status":["running"]}`), &running) != nil {
			continue
		}
		for _, c := range running {
			_ = e.get("containers/"+c.ID+"/healthcheck", nil) // some have none
		}
	}
}

func (e *engine) kill() {
	if e.init != nil && e.init.Process != nil {
		_ = e.init.Process.Kill() // it is PID 1 of its namespace: all others go with it
		_ = e.init.Wait()
	}
}

func (e *engine) stop() {
	if e.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(e.dir, "engine.log"))
		e.t.Logf("podman's log:\n%s", lastLines(string(log), 40))
	}
	e.kill()
	// The mounts went with the namespace, but a last process may still be ending.
	var err error
	for range 20 {
		if err = os.RemoveAll(e.dir); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	e.t.Errorf("clean up: %v", err)
}

// command is a program inside the engine's namespaces.
func (e *engine) command(name string, args ...string) *exec.Cmd {
	inside := []string{"--target", strconv.Itoa(e.init.Process.Pid), "--pid", "--mount", "--net", "--", name}
	cmd := exec.Command("nsenter", append(inside, args...)...)
	cmd.Env = e.environment()
	return cmd
}

// podman runs podman's own command line, which takes what the API does not.
func (e *engine) podman(args ...string) string {
	e.t.Helper()
	return e.output(e.command("podman", args...))
}

func (e *engine) output(cmd *exec.Cmd) string {
	e.t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		e.t.Fatalf("%s: %v\n%s%s", cmd, err, out, lastLines(stderr.String(), 40))
	}
	return strings.TrimSpace(string(out))
}

// container is what podman knows of one.
type container struct {
	ID    string
	State struct {
		Status    string
		Pid       int
		ExitCode  int
		StartedAt time.Time
		Health    struct{ Status string }
	}
	RestartCount int
}

// service returns the container of a service, running or not.
func (e *engine) service(name string) container {
	e.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var c container
		err := e.get("containers/pgque-"+name+"-1/json", &c)
		if err == nil {
			return c
		}
		if dead, ok := errors.AsType[*apiError](err); !ok || !dead.ofDeadProcess() || time.Now().After(deadline) {
			e.t.Fatal(err)
		}
	}
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
