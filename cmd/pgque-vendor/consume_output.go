package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxLine is how much of a line is held back to be written as a whole. A longer one
// is passed on in pieces.
const maxLine = 64 << 10

// sharedOutput is a stream that several processes write to.
type sharedOutput struct {
	mu     sync.Mutex
	w      io.Writer
	broken bool
	failed func(error) // told once
}

// write writes lines of one process. Once the stream is broken they are dropped: the
// process runs to its end, and its exit code counts.
func (o *sharedOutput) write(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken || len(p) == 0 {
		return
	}
	if _, err := o.w.Write(p); err != nil {
		o.broken = true
		if o.failed != nil {
			o.failed(err)
		}
	}
}

// lineWriter passes the output of one process on in whole lines.
type lineWriter struct {
	out   *sharedOutput
	rest  []byte // a line that is not complete
	begun bool   // a piece of a long line was written, but not its end
}

func (l *lineWriter) Write(p []byte) (int, error) {
	whole := bytes.LastIndexByte(p, '\n') + 1
	switch {
	case whole > 0 && len(l.rest) == 0:
		l.out.write(p[:whole])
		l.begun = false
		l.rest = append(l.rest, p[whole:]...)
	case whole > 0:
		l.rest = append(l.rest, p[:whole]...)
		l.flush()
		l.rest = append(l.rest, p[whole:]...)
	default:
		l.rest = append(l.rest, p...)
	}
	if len(l.rest) > maxLine {
		l.flush()
	}
	return len(p), nil
}

func (l *lineWriter) flush() {
	if n := len(l.rest); n > 0 {
		l.begun = l.rest[n-1] != '\n'
	}
	l.out.write(l.rest)
	l.rest = l.rest[:0]
}

// end writes the rest, as a whole line if that matters to what others write after it.
func (l *lineWriter) end(whole bool) {
	if whole && (len(l.rest) > 0 || l.begun) {
		l.rest = append(l.rest, '\n')
	}
	l.flush()
}

// What of a process's stderr becomes a reason.
const (
	tailBytes = 1500
	tailLines = 10
)

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	p = p[max(0, n-2*tailBytes):]
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - 2*tailBytes; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return n, nil
}

// text is the last lines, fit for a terminal and for PostgreSQL.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := bytes.TrimSpace(t.kept)
	lines := strings.Split(strings.ReplaceAll(string(kept), "\r\n", "\n"), "\n")
	text := printable(strings.Join(lines[max(0, len(lines)-tailLines):], "\n"))
	if len(text) <= tailBytes {
		return text
	}
	cut := len(text) - tailBytes
	for !utf8.RuneStart(text[cut]) {
		cut++
	}
	return "…" + text[cut:]
}

// forget empties it, for the next event of a process that stays.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = t.kept[:0]
}
