package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// COMMAND dies with consume, on Linux.
func TestConsumeKilled(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)...)
	r := b.consume(`echo $$ > pid; while :; do sleep 0.1; done`)
	pid := b.pid("pid")
	r.signal(syscall.SIGKILL)
	r.code()
	b.untilDead("COMMAND", pid)
}

// B089: as PID 1 it ends at SIGTERM.
func TestConsumePID1(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a namespace of its own")
	}
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(20)...)
	r := b.startAs(func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}, "consume", "q", "c", "--", "sh", "-c", `(sleep 0.05 &) ; test $PPID = 1 && cat >> done; echo >> done`)
	b.until("all twenty", func() bool { return strings.Count(b.file("done"), "\n") == 20 })
	r.signal(syscall.SIGTERM)
	r.wantCode(0)
	if !strings.HasPrefix(b.file("done"), "1\n2\n") {
		t.Errorf("it was not PID 1: %q", b.file("done"))
	}
}
