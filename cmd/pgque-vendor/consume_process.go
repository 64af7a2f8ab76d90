package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

const (
	// killAfter is how long a process group has between SIGTERM and SIGKILL. It is
	// less than what the library waits for a handler whose context has ended.
	killAfter = 2 * time.Second
	// outputDelay is how long a COMMAND that has ended may leave its output open in
	// the hands of processes that it started.
	outputDelay = time.Second
)

// program is COMMAND, found, with what every process of it shares.
type program struct {
	path string
	args []string
	env  []string // without the event's
	out  *sharedOutput
	err  *sharedOutput

	workers int // that share the output

	starts chan func()
	giveUp func(context.Context, error) error

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

func (c *consumption) newProgram(env *environment) *program {
	cmd := &program{
		path: c.options.path, args: c.options.command, env: withoutSecrets(os.Environ()),
		err: &sharedOutput{w: env.stderr}, workers: c.options.workers, starts: make(chan func()), giveUp: c.giveUp,
	}
	cmd.out = &sharedOutput{w: env.stream(), failed: func(err error) {
		c.stop(fault.New(fault.Usage, "pass on what COMMAND writes to stdout: %w", err))
	}}
	go cmd.starter()
	return cmd
}

// starter starts every process from one thread, which lives as long as we do: Linux
// kills a child (Pdeathsig) when the thread that started it ends, and Go may end
// any thread that it has not locked to a goroutine.
func (c *program) starter() {
	runtime.LockOSThread()
	for start := range c.starts {
		start()
	}
}

// errClosed is the answer to a start after the end.
var errClosed = errors.New("consume is ending")

// start starts a process that reads the payload.
func (c *program) start(payload []byte, eventEnv []string) (*process, error) {
	p := c.prepare(nil, eventEnv)
	stdin, feed, err := payloadPipe(payload)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stdin.Close() }() // the process has its own
	p.cmd.Stdin = stdin
	if err := c.launch(p); err != nil {
		_ = feed.Close()
		return nil, err
	}
	go func() {
		<-p.exited // a process that it left behind may hold the pipe and read nothing
		_ = feed.Close()
	}()
	go func() {
		_, _ = feed.Write(payload[min(len(payload), pipeHolds):]) // it need not read all
		_ = feed.Close()
	}()
	return p, nil
}

// prepare leaves stdin empty. What it writes to stdout is passed on when stdout is nil.
func (c *program) prepare(stdout io.Writer, eventEnv []string) *process {
	p := &process{command: c, exited: make(chan struct{}), tail: &tail{}}
	p.stderr = &lineWriter{out: c.err}
	if stdout == nil {
		p.stdout = &lineWriter{out: c.out}
		stdout = p.stdout
	}
	p.cmd = &exec.Cmd{
		Path: c.path, Args: c.args, Env: append(c.env[:len(c.env):len(c.env)], eventEnv...),
		Stdout: stdout, Stderr: io.MultiWriter(p.tail, p.stderr),
		WaitDelay: outputDelay, SysProcAttr: ownGroup(),
	}
	return p
}

func (c *program) launch(p *process) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosed
	}
	c.running.Add(1)
	c.mu.Unlock()
	result := make(chan error)
	c.starts <- func() { result <- p.cmd.Start() }
	if err := <-result; err != nil {
		c.running.Done()
		return err
	}
	go p.await()
	return nil
}

// notStarted tells a failure of the event from one that would meet every event: that
// ends consume and leaves the event alone.
func (c *program) notStarted(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errClosed):
		return err
	case tooLarge(err):
		return errors.New("the event's type, headers or key are too large to start COMMAND with: " + err.Error())
	}
	return c.giveUp(ctx, fault.New(fault.Usage, "start COMMAND: %w", err))
}

// wait waits, for a while, until every process is gone, and lets none start any more.
func (c *program) wait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	gone := make(chan struct{})
	go func() { c.running.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(2*killAfter + outputDelay):
	}
}

// process is one COMMAND that runs, in a process group of its own.
type process struct {
	command *program
	cmd     *exec.Cmd
	stdout  *lineWriter // nil for --stream
	answers *answers    // nil without --stream
	stderr  *lineWriter
	tail    *tail
	exited  chan struct{} // closed when it has ended and its output was read
}

func (p *process) await() {
	_ = p.cmd.Wait() // its state says it all; the rest is about pipes, which may break
	if p.stdout != nil {
		p.stdout.end(p.command.workers > 1)
	}
	if p.answers != nil {
		p.answers.leave()
	}
	p.stderr.end(true) // our own log goes there as well
	close(p.exited)
}

func (p *process) state() *os.ProcessState { return p.cmd.ProcessState }

// release tells the command that nobody is concerned with the process any more.
func (p *process) release() { p.command.running.Done() }

// wait waits for the process, and ends its group when ctx ends first, which it
// reports. A process that then exits with 0 has not done its work: that is how many
// end at a SIGTERM.
func (p *process) wait(ctx context.Context) (hadToEnd bool) {
	select {
	case <-p.exited:
		return false
	case <-ctx.Done():
	}
	select {
	case <-p.exited:
		return false
	default:
	}
	p.end()
	return true
}

// end gives the group SIGTERM, and SIGKILL when something of it is left.
func (p *process) end() {
	group := p.cmd.Process
	terminateGroup(group)
	kill := time.NewTimer(killAfter)
	defer kill.Stop()
	look := time.NewTicker(10 * time.Millisecond) // the system does not tell when a group is empty
	defer look.Stop()
	for groupAlive(group, p.exited) {
		select {
		case <-look.C:
			continue
		case <-kill.C:
		}
		killGroup(group)
		break
	}
	<-p.exited
}

// why is a reason: how it ended, and the last that it said.
func (p *process) why(how string) string {
	if said := p.tail.text(); said != "" {
		return how + ": " + said
	}
	return how
}
