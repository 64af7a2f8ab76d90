package main

import (
	"bytes"
	"context"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

// child is one of this program's commands, as a process.
type child struct {
	title string
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of Wait, once ended is closed

	asked sync.Once // to end: a second signal would break off its work

	mu   sync.Mutex
	said bytes.Buffer
}

func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.Write(p)
}

// output is all that the child has written so far.
func (c *child) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.String()
}

// launch starts a command; show gets what it writes, both streams in their order.
func (d *demo) launch(ctx context.Context, show io.Writer, args ...string) (*child, error) {
	c := &child{title: "pgque-vendor " + strings.Join(args, " "), ended: make(chan struct{})}
	var output io.Writer = c
	if show != nil {
		output = io.MultiWriter(c, show)
	}
	c.cmd = exec.CommandContext(ctx, d.program, args...)
	c.cmd.Args[0] = "pgque-vendor"
	c.cmd.Dir = d.folder
	c.cmd.Env = d.env
	c.cmd.Stdout, c.cmd.Stderr = output, output
	c.cmd.SysProcAttr = ownGroup() // Ctrl-C is for us, who end the others in order
	c.cmd.Cancel = func() error { c.terminate(); return nil }
	c.cmd.WaitDelay = demoGrace
	if err := c.cmd.Start(); err != nil {
		return nil, fault.New(fault.Usage, "run %q: %s", c.title, err)
	}
	d.started = append(d.started, c)
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// start shows a command and starts it.
func (d *demo) start(ctx context.Context, args ...string) (*child, error) {
	d.prompt(commandLine(args))
	return d.launch(ctx, &lineWriter{out: d.out}, args...)
}

// background shows a command and leaves it running. Its output is marked with its
// name.
func (d *demo) background(ctx context.Context, name string, args ...string) (*child, error) {
	d.prompt(commandLine(args) + " &")
	c, err := d.launch(ctx, &lineWriter{out: &sharedOutput{w: &marked{out: d.out, mark: "[" + name + "] "}}}, args...)
	if err == nil {
		d.inBackground[name] = c
	}
	return c, err
}

// step shows a command and runs it to its end, which must be a good one.
func (d *demo) step(ctx context.Context, args ...string) error {
	limited, cancel := context.WithTimeoutCause(ctx, demoLimit,
		fault.New(fault.Usage, "%q took longer than %s", commandLine(args), demoLimit))
	defer cancel()
	c, err := d.start(limited, args...)
	if err != nil {
		return err
	}
	<-c.ended
	if limited.Err() != nil {
		return context.Cause(limited)
	}
	return c.result()
}

// ask runs a command unseen. The reason is that of an upstream that can't be
// reached, or empty.
func (d *demo) ask(ctx context.Context, args ...string) (reason string, err error) {
	c, err := d.launch(ctx, nil, args...)
	if err != nil {
		return "", err
	}
	<-c.ended
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if c.cmd.ProcessState.ExitCode() != int(fault.Upstream) {
		if err := c.result(); err != nil {
			return "", fault.New(fault.ClassOf(err), "%s:\n%s", err, c.output())
		}
		return "", nil
	}
	for line := range strings.Lines(c.output()) {
		if text, ok := strings.CutPrefix(line, "pgque-vendor: error: "); ok {
			return strings.TrimSpace(text), nil
		}
	}
	return strings.TrimSpace(c.output()), nil
}

// result is what a command that has ended says about it. A failure keeps its class.
func (c *child) result() error {
	if c.err == nil {
		return nil
	}
	class := fault.Class(c.cmd.ProcessState.ExitCode())
	if class < fault.Finding || class > fault.SQL {
		class = fault.Usage
	}
	return fault.New(class, "%q has failed: %s", c.title, c.err)
}

// untilSaid waits until a long-running command has written text.
func (c *child) untilSaid(ctx context.Context, text string) error {
	for !strings.Contains(c.output(), text) {
		select {
		case <-c.ended:
			return fault.New(fault.Usage, "%q has ended: %s", c.title, c.cmd.ProcessState)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (c *child) terminate() { c.asked.Do(func() { terminateGroup(c.cmd.Process) }) }

// end asks a long-running command to end, and waits until it has. It must end well,
// except on Windows, where nothing can ask it.
func (c *child) end() error {
	c.terminate()
	select {
	case <-c.ended:
	case <-time.After(demoGrace):
		killGroup(c.cmd.Process)
		<-c.ended
	}
	if runtime.GOOS == "windows" {
		return nil
	}
	return c.result()
}

// stop ends what still runs; how it ends no longer matters.
func (d *demo) stop() {
	for _, c := range d.started {
		select {
		case <-c.ended:
		default:
			_ = c.end()
		}
	}
}
