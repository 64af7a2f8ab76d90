package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// maxAnswer is the longest line that a process may answer with.
const maxAnswer = 64 << 10

// answers are the lines of a process's stdout, each of which answers one event. The
// pipe is our own: exec.Cmd does not tell when what it reads has ended.
type answers struct {
	reader   *os.File
	ended    chan struct{} // closed when nothing more is read
	unwanted chan struct{} // closed when nobody asks any more

	mu    sync.Mutex
	asked chan<- []byte // by whom the next line is awaited; nil when no event is under way
	early bool          // a line came when none was
	rest  []byte        // no line yet
}

// newAnswers gives the process's end of the pipe as well.
func newAnswers() (a *answers, stdout *os.File, err error) {
	a = &answers{ended: make(chan struct{}), unwanted: make(chan struct{})}
	a.reader, stdout, err = os.Pipe()
	return a, stdout, err
}

func (a *answers) read() {
	_, _ = io.Copy(a, a.reader)
	_ = a.reader.Close()
	close(a.ended)
}

// leave waits for what a process that has ended may still have said. A process that
// it left behind may hold the pipe for ever.
func (a *answers) leave() {
	select {
	case <-a.ended:
	case <-time.After(outputDelay):
		_ = a.reader.Close()
	}
}

// expect is called before an event is written. It gives the line that comes from then
// on, nil for one that is too long: what is there by now is no answer to the event.
func (a *answers) expect() (<-chan []byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.early || len(bytes.TrimSpace(a.rest)) > 0 {
		return nil, errors.New("COMMAND wrote to its stdout before it was given the event")
	}
	line := make(chan []byte, 1)
	a.asked = line
	return line, nil
}

// Write takes what the process wrote. Who says more than was asked is held up.
func (a *answers) Write(p []byte) (int, error) {
	if !a.take(p) {
		<-a.unwanted
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

func (a *answers) take(p []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rest = append(a.rest, p...)
	for {
		line, whole := a.cut()
		if !whole {
			return true
		}
		if a.asked == nil {
			a.early = true
			return false
		}
		a.asked <- line
		a.asked = nil
	}
}

// cut takes the first line that is not blank; one that is too long is nil.
func (a *answers) cut() (line []byte, whole bool) {
	for {
		end := bytes.IndexByte(a.rest, '\n')
		if end < 0 && len(a.rest) <= maxAnswer {
			return nil, false
		}
		if end < 0 || end > maxAnswer {
			a.rest = nil
			return nil, true
		}
		line = bytes.Clone(bytes.TrimSpace(a.rest[:end]))
		a.rest = a.rest[end+1:]
		if len(line) > 0 {
			return line, true
		}
	}
}
