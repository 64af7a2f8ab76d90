//go:build unix

package pgserver

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// owner is the user whom the server runs as. PostgreSQL refuses root, so root
// hands the cluster to another user; everybody else keeps it.
type owner struct {
	uid, gid int
	change   bool
}

func findOwner() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil {
			return owner{uid: uid, gid: gid, change: true}, nil
		}
	}
	return owner{}, fmt.Errorf("start PostgreSQL: it refuses root, and there is no user %q or %q to run it as", "postgres", "nobody")
}

// tempDir is where the cluster goes. Root's own TMPDIR may be closed to the
// server's user, and macOS's is long for a socket's name, so both use /tmp.
func (o owner) tempDir() string {
	if info, err := os.Stat("/tmp"); err == nil && info.IsDir() {
		return "/tmp"
	}
	return os.TempDir()
}

func (o owner) give(path string) error {
	if !o.change {
		return nil
	}
	return os.Lchown(path, o.uid, o.gid)
}

// runAs sets the user of a command, and a session of its own: a Ctrl-C at the
// terminal is for the tests, which then end the server in order.
func (o owner) runAs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.change {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
	}
}

// spawn starts the server as our child.
func (c *Cluster) spawn(context.Context) (*os.Process, error) {
	cmd := c.command(context.Background(), "postgres", "-D", c.data(), "-p", strconv.Itoa(c.Port), "-k", c.Dir)
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return cmd.Process, nil
}

// guard is a small shell that outlives us. It reads the server's process id
// from a pipe whose other end only we hold. When the pipe closes, because we
// closed it or because we died in any way, it ends the server and removes the
// folder.
type guard struct {
	pipe *os.File
	cmd  *exec.Cmd
}

// The ids come one to a line; 0 means that no server runs. The server removes
// postmaster.pid as its last act, so the loop waits for that, 5 s at most. An initdb
// that outlives us still makes files while they are removed, so that is repeated.
const guardScript = `trap '' HUP INT TERM
pid=0
while read -r line; do pid=$line; done
if [ "$pid" -gt 0 ]; then
	kill -QUIT "$pid"
	n=0
	while [ -e "$1/data/postmaster.pid" ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done
	kill -KILL "$pid"
fi
n=0
until rm -rf "$1" && [ ! -e "$1" ] || [ $n -ge 100 ]; do sleep 0.1; n=$((n+1)); done
`

func startGuard(dir string) (*guard, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", guardScript, "pgque-pg-guard", dir)
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("start the guard of the PostgreSQL cluster: %w", err)
	}
	return &guard{pipe: w, cmd: cmd}, nil
}

func (g *guard) watch(pid int) {
	_, _ = io.WriteString(g.pipe, strconv.Itoa(pid)+"\n") // a dead guard is noticed by nobody but the folder
}

// release lets the guard do its work and waits for it.
func (g *guard) release() {
	g.pipe.Close()
	_ = g.cmd.Wait()
}
