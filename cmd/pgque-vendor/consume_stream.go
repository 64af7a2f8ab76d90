package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// The pause before a process that failed is started anew.
const (
	restartFirst = 250 * time.Millisecond
	restartMost  = 10 * time.Second // less than the usual grace, since a signal does not cut it short
)

// streams keeps one COMMAND for each worker and hands each event to one of them.
type streams struct {
	free chan *stream
	all  []*stream
}

func newStreams(cmd *program, o *consumeOptions, log *slog.Logger) *streams {
	s := &streams{free: make(chan *stream, o.workers)}
	for range o.workers {
		one := &stream{command: cmd, options: o, log: log}
		s.all = append(s.all, one)
		s.free <- one
	}
	return s
}

func (s *streams) handle(ctx context.Context, e *events.Event) error {
	select {
	case one := <-s.free:
		defer func() { s.free <- one }()
		return one.handle(ctx, e)
	case <-ctx.Done(): // another handler has outlasted its time and is ending its process
		return context.Cause(ctx)
	}
}

func (s *streams) idle() bool { return len(s.free) == cap(s.free) }

// close has every process end by closing its stdin, and ends those that do not.
func (s *streams) close() {
	for range s.all {
		select {
		case one := <-s.free:
			if one.process != nil {
				go one.process.finish()
			}
		default: // at work on an event that was given up; its handler ends it
		}
	}
	s.all[0].command.wait()
}

// stream is the place of one process that is started anew when it fails.
type stream struct {
	command *program
	options *consumeOptions
	log     *slog.Logger

	process   *streamProcess // nil when none runs
	failures  int            // in a row, without an answer in between
	notBefore time.Time      // the end of the pause after the last one
}

// handle asks the process what becomes of the event.
func (s *stream) handle(ctx context.Context, e *events.Event) error {
	if err := s.ensure(ctx); err != nil {
		return err
	}
	line, err := encodeEvent(e)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.options.limit)
	defer cancel()
	s.process.tail.forget()
	answer, err := s.process.ask(limited, line)
	if errors.Is(err, errEnded) && s.process.hadEnough() {
		// It ended at about the time that the event was on its way.
		if err := s.ensure(limited); err != nil {
			return err
		}
		answer, err = s.process.ask(limited, line)
	}
	var outcome error
	if err == nil {
		outcome, err = parseAnswer(answer, e.ID)
	}
	if err == nil {
		s.failures = 0
		return outcome
	}
	if limited.Err() != nil {
		err = errors.New(ended(ctx, s.options.limit))
	}
	return s.fail(err)
}

// ensure starts a process unless one runs. One that ended between two events has
// failed none of them.
func (s *stream) ensure(ctx context.Context) error {
	if s.process != nil && s.process.silent() {
		how := "it closed its stdout"
		if s.process.hasExited() {
			how = s.process.state().String()
		}
		if !s.process.hadEnough() {
			s.log.Warn("a COMMAND ended between two events", "how", s.process.why(how))
			s.pause()
		}
		s.process.discard()
		s.process = nil
	}
	if s.process != nil {
		return nil
	}
	select {
	case <-time.After(time.Until(s.notBefore)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	p, err := s.command.startStream()
	if err != nil {
		return s.command.notStarted(ctx, err)
	}
	s.process = p
	return nil
}

// fail gives the event's failure, and ends the process: what it would answer next
// may belong to this event.
func (s *stream) fail(err error) error {
	p := s.process
	s.process = nil
	p.discard()
	if errors.Is(err, errEnded) {
		err = fmt.Errorf("COMMAND ended before it answered: %s", p.state())
	}
	s.pause()
	return errors.New(p.why(err.Error()))
}

func (s *stream) pause() {
	pause := min(restartFirst<<min(s.failures, 10), restartMost)
	s.failures++
	s.notBefore = time.Now().Add(pause)
}

// streamProcess is a COMMAND that takes events on its stdin and answers on its
// stdout.
type streamProcess struct {
	*process
	stdin    io.WriteCloser
	answered int
}

func (c *program) startStream() (*streamProcess, error) {
	answers, stdout, err := newAnswers()
	if err != nil {
		return nil, err
	}
	defer func() { _ = stdout.Close() }() // the process has its own
	p := c.prepare(stdout, nil)
	p.answers = answers
	stdin, err := p.cmd.StdinPipe()
	if err == nil {
		err = c.launch(p)
	}
	if err != nil {
		_ = answers.reader.Close()
		return nil, err
	}
	go answers.read()
	return &streamProcess{process: p, stdin: stdin}, nil
}

// errEnded says that the process ended while it was asked.
var errEnded = errors.New("ended")

// ask writes the event and reads the answer, which may come before the event was
// read to its end.
func (p *streamProcess) ask(ctx context.Context, event []byte) ([]byte, error) {
	answer, err := p.answers.expect()
	if err != nil {
		return nil, err
	}
	go func() { _, _ = p.stdin.Write(event) }() // a pipe that breaks shows as the process's end
	select {
	case line := <-answer:
		return p.taken(line)
	case <-p.answers.ended:
	case <-p.exited:
	case <-ctx.Done():
	}
	silent := p.silent()
	select {
	case line := <-answer: // the last that it said
		return p.taken(line)
	default:
	}
	switch {
	case !silent:
		return nil, ctx.Err()
	case p.hasExited():
		return nil, errEnded
	}
	return nil, errors.New("COMMAND closed its stdout before it answered")
}

func (p *streamProcess) taken(line []byte) ([]byte, error) {
	p.answered++
	if line == nil {
		return nil, fmt.Errorf("COMMAND wrote a line of more than %d bytes to its stdout", maxAnswer)
	}
	return line, nil
}

// silent says that it has ended, or closed its stdout. That is how most end, so the
// end is given a moment to be seen.
func (p *streamProcess) silent() bool {
	select {
	case <-p.exited:
		return true
	case <-p.answers.ended:
	default:
		return false
	}
	select {
	case <-p.exited:
	case <-time.After(killAfter):
	}
	return true
}

func (p *streamProcess) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// hadEnough says of a process that has ended that it did so on its own account, as
// some do after a number of events to start afresh.
func (p *streamProcess) hadEnough() bool {
	return p.answered > 0 && p.hasExited() && p.state().ExitCode() == 0
}

// discard ends the process at once.
func (p *streamProcess) discard() {
	close(p.answers.unwanted)
	_ = p.stdin.Close()
	if !p.hasExited() {
		p.end()
	}
	p.release()
}

// finish lets the process end by itself, and then ends it.
func (p *streamProcess) finish() {
	_ = p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(killAfter):
	}
	p.discard()
}
