package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// readyPoll is how often a starting server is asked whether it is up.
const readyPoll = 20 * time.Millisecond

// launchOnFreePort starts the server, on another port when somebody else took
// the one we found free a moment ago.
func (c *Cluster) launchOnFreePort(ctx context.Context) error {
	for try := 1; ; try++ {
		if c.cfg.Port == 0 {
			port, err := FreePort(ctx)
			if err != nil {
				return err
			}
			c.Port = port
		}
		err := c.Launch(ctx)
		if err == nil || c.cfg.Port != 0 || try == 5 || !strings.Contains(c.Log(), "Address already in use") {
			return err
		}
	}
}

// Launch starts the server of a cluster that was stopped or killed, on the
// same port, and returns when it takes connections.
func (c *Cluster) Launch(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		return errors.New("start PostgreSQL: it is running already")
	}
	for {
		from := len(c.Log())
		err := c.launchOnce(ctx)
		if err == nil {
			return nil
		}
		log := c.Log()
		log = log[min(from, len(log)):]
		// Children of a killed server take a moment to notice and to go.
		if strings.Contains(log, "pre-existing shared memory block") && ctx.Err() == nil {
			time.Sleep(readyPoll)
			continue
		}
		return fmt.Errorf("start PostgreSQL: %w; its log says: %s", err, lastLines(log, 12))
	}
}

func (c *Cluster) launchOnce(ctx context.Context) error {
	process, err := c.spawn(ctx)
	if err != nil {
		return err
	}
	c.guard.watch(process.Pid)
	ended := make(chan struct{})
	go func() {
		_, _ = process.Wait() // how it ended is in the log
		close(ended)
	}()
	c.process, c.ended = process, ended
	if err := c.waitReady(ctx); err != nil {
		c.killLocked()
		return err
	}
	return nil
}

func (c *Cluster) waitReady(ctx context.Context) error {
	for {
		conn, err := c.connect(ctx)
		if err == nil {
			return conn.Close(ctx)
		}
		// A wrong password or a missing role is an answer: the server is up.
		if strings.Contains(err.Error(), "SQLSTATE 28") {
			return nil
		}
		select {
		case <-c.ended:
			return errors.New("the server ended")
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case <-time.After(readyPoll):
		}
	}
}

// Stop ends the server as pg_ctl does: mode is smart, fast or immediate. The
// data stays; Launch starts it again.
func (c *Cluster) Stop(ctx context.Context, mode string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return nil
	}
	if err := c.run(ctx, "pg_ctl", "stop", "-W", "-m", mode, "-D", c.data()); err != nil {
		return err
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return fmt.Errorf("stop PostgreSQL: %w", context.Cause(ctx))
	}
	c.process = nil
	c.guard.watch(0)
	return nil
}

// Kill ends the server's main process with SIGKILL, as a crash or the kernel's
// out-of-memory killer would. The data stays; Launch recovers it.
func (c *Cluster) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killLocked()
}

func (c *Cluster) killLocked() {
	if c.process == nil {
		return
	}
	_ = c.process.Kill() // it may have ended by itself
	<-c.ended
	c.process = nil
	c.guard.watch(0)
}

// Running reports whether the server process lives.
func (c *Cluster) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return false
	}
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// Close ends the server at once and removes everything of it.
func (c *Cluster) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Stop(ctx, "immediate"); err != nil {
		c.Kill()
	}
	if c.log != nil {
		c.log.Close()
	}
	c.guard.release()
	os.RemoveAll(c.Dir) // the guard has done it where there is one
}

// run calls one of PostgreSQL's programs as the server's user.
func (c *Cluster) run(ctx context.Context, name string, args ...string) error {
	cmd := c.command(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, lastLines(string(out), 8))
	}
	return nil
}

// command prepares one of PostgreSQL's programs: as the server's user, in a
// folder that this user may enter, without the PG* variables of whoever runs
// us, speaking English.
func (c *Cluster) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir, program(name)), args...)
	cmd.Dir = c.Dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	c.owner.runAs(cmd)
	return cmd
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Companion runs another server program that refuses root, as pgbouncer does,
// under the same guard as a cluster. prepare fills the temporary folder and
// returns the command; stop kills the program and removes the folder.
func Companion(prepare func(dir string) (*exec.Cmd, error)) (stop func(), err error) {
	owner, err := findOwner()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(owner.tempDir(), "pgque-pg-")
	if err != nil {
		return nil, err
	}
	guard, err := startGuard(dir)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	remove := func() {
		guard.release()
		os.RemoveAll(dir)
	}
	if err := owner.give(dir); err != nil {
		remove()
		return nil, err
	}
	cmd, err := prepare(dir)
	if err != nil {
		remove()
		return nil, err
	}
	cmd.Dir = dir
	owner.runAs(cmd)
	if err := cmd.Start(); err != nil {
		remove()
		return nil, err
	}
	guard.watch(cmd.Process.Pid)
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		guard.watch(0)
		remove()
	}, nil
}
