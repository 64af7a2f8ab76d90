package notifications_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// build builds the programs of the example, and pgque-vendor for its ticker.
func build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, args := range [][]string{
		{"build", "-o", dir + string(filepath.Separator), "./cmd/..."},
		{"build", "-C", "../..", "-o", filepath.Join(dir, "pgque-vendor"), "./cmd/pgque-vendor"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// service is a process that is started again whenever it ends, as Compose does
// with "restart: always".
type service struct {
	name string
	args []string
	env  []string

	mu      sync.Mutex
	process *os.Process // nil between two lives
	lives   int
	closed  bool
	log     bytes.Buffer
	ended   chan struct{}
}

func serve(t *testing.T, env []string, name string, args ...string) *service {
	t.Helper()
	s := &service{name: filepath.Base(name), args: append([]string{name}, args...), env: append(os.Environ(), env...), ended: make(chan struct{})}
	go s.keepRunning()
	t.Cleanup(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.signal(syscall.SIGKILL)
		<-s.ended
		if t.Failed() {
			log := s.log.Bytes()
			t.Logf("the end of the log of %s, which lived %d times:\n%s", s.name, s.lives, log[max(0, len(log)-4000):])
		}
	})
	return s
}

func (s *service) keepRunning() {
	defer close(s.ended)
	for {
		cmd := exec.Command(s.args[0], s.args[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = s.env, &s.log, &s.log
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		err := cmd.Start()
		if err == nil {
			s.process = cmd.Process
			s.lives++
		}
		s.mu.Unlock()
		if err == nil {
			_ = cmd.Wait()
		}
		s.mu.Lock()
		s.process = nil
		s.mu.Unlock()
		time.Sleep(100 * time.Millisecond)
	}
}

func (s *service) signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = s.process.Signal(sig)
	}
}
