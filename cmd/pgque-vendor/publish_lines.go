package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// lines sends the events of stdin, a transaction for each batch.
func (p *publisher) lines(ctx context.Context, env *environment) error {
	in := readLines(ctx, env.stdin, 4*p.options.maxPayload+64<<10)
	var batch []events.Event
	number, held := 0, 0
	for {
		line, err := in.next(ctx)
		if err == nil {
			number++
			err = p.parse(line, number, &batch, &held)
		}
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return p.stopped(ctx, env, err, number)
		}
		if len(batch) > 0 && (last || len(batch) == p.options.batch) {
			if _, err := p.send(ctx, batch); err != nil {
				return p.stopped(ctx, env, err, number)
			}
			clear(batch) // or its payloads would be in memory beside those of the next
			p.committed, batch, held = number, batch[:0], 0
		}
		if last {
			p.committed = number // with blank ones at the end
			return p.report(env)
		}
	}
}

// batchBytes is how much a batch of several events holds in memory.
const batchBytes = 256 << 20

// parse adds the event of a line to the batch, which holds so many bytes; a blank line
// has none. The event is checked here, so that an error names the line.
func (p *publisher) parse(line []byte, number int, batch *[]events.Event, held *int) error {
	if number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return nil
	}
	event, err := parseEvent(line)
	if err == nil {
		err = events.Check(event, events.MaxPayload(p.options.maxPayload))
	}
	if err != nil {
		return fault.New(fault.Usage, "line %d: %w", number, err)
	}
	*held += len(event.Type) + len(event.Payload)
	for name, value := range event.Headers {
		*held += len(name) + len(value)
	}
	if n := len(*batch); n > 0 && *held > batchBytes {
		p.fewer = max(1, n/2)
		return fault.New(fault.Usage, "line %d: the batch has more than %d MiB with it, and is one transaction", number, batchBytes>>20)
	}
	*batch = append(*batch, event)
	return nil
}

// publishLinesDocument is what "publish --ndjson --json" writes.
type publishLinesDocument struct {
	Schema  int    `json:"schema"`
	Queue   string `json:"queue"`
	Sent    int    `json:"sent"`    // events that are committed
	Lines   int    `json:"lines"`   // lines that are, blank ones included
	Unknown int    `json:"unknown"` // lines after these of which nobody knows whether they are
	Error   string `json:"error"`   // why later lines are not, "" when there are none
}

// stopped says with a failure what is committed and what is not.
func (p *publisher) stopped(ctx context.Context, env *environment, err error, number int) error {
	done := p.outcome(number)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w; %s", context.Cause(ctx), done)
	} else {
		var f *fault.Error
		if !errors.As(err, &f) {
			f = fault.New(fault.Usage, "read line %d from stdin: %w", number+1, err)
		}
		f.Text += "; " + done
		p.hintRest(env, f)
		err = f
	}
	if p.options.json {
		doc := publishLinesDocument{Schema: 1, Queue: p.queue, Sent: p.sent, Lines: p.committed, Error: err.Error()}
		if p.unknown {
			doc.Unknown = number - p.committed
		}
		_ = writeJSON(env.stdout, doc) // err is what matters
	}
	return err
}

// hintRest gives the command for what is not committed, with the flags of this one.
func (p *publisher) hintRest(env *environment, f *fault.Error) {
	if p.unknown || p.committed == 0 && p.fewer == 0 {
		return
	}
	command := "pgque-vendor publish " + shellQuote(p.queue) + " --ndjson"
	for _, name := range []string{"database-url-file", "batch", "max-payload"} {
		switch typed := env.typed[name]; {
		case name == "batch" && p.fewer > 0:
			command += fmt.Sprintf(" --batch %d", p.fewer)
		case typed != nil:
			command += typedAgain(typed)
		}
	}
	if p.committed == 0 {
		f.Hints = append(f.Hints, command+" < FILE")
		return
	}
	when := "once it is mended, "
	if p.fewer > 0 {
		when = ""
	}
	f.Hints = append(f.Hints, fmt.Sprintf("%ssend the rest: tail -n +%d FILE | %s", when, p.committed+1, command))
}

// outcome says which of the lines read are committed.
func (p *publisher) outcome(number int) string {
	var parts []string
	switch {
	case p.committed > 0:
		parts = append(parts, fmt.Sprintf("lines 1 to %d were committed (%s)", p.committed, count(p.sent, "event")))
	case !p.unknown:
		return "nothing was committed"
	}
	if p.unknown {
		parts = append(parts, fmt.Sprintf("of lines %d to %d it is unknown", p.committed+1, number))
	}
	return strings.Join(append(parts, "later ones were not"), ", ")
}

func (p *publisher) report(env *environment) error {
	if !p.options.json {
		env.sayf("sent %s to %q", count(p.sent, "event"), p.queue)
		return nil
	}
	err := writeJSON(env.stdout, publishLinesDocument{Schema: 1, Queue: p.queue, Sent: p.sent, Lines: p.committed})
	if err != nil { // who takes it for a failure to send would send them twice
		return fault.New(fault.Usage, "all lines were sent to %q (%s), but that could not be written: %w", p.queue, count(p.sent, "event"), err)
	}
	return nil
}

// lineReader hands over lines, and stops waiting when a context ends: a read from
// a terminal or a pipe cannot be interrupted.
type lineReader struct{ lines chan lineOrError }

type lineOrError struct {
	line []byte
	err  error
}

func readLines(ctx context.Context, r io.Reader, limit int) lineReader {
	lines := make(chan lineOrError)
	go func() {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, 64<<10), limit)
		for scanner.Scan() {
			select {
			case lines <- lineOrError{line: bytes.Clone(scanner.Bytes())}:
			case <-ctx.Done():
				return
			}
		}
		err := scanner.Err()
		switch {
		case err == nil:
			err = io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			err = fmt.Errorf("the line has more than %d bytes", limit)
		}
		select {
		case lines <- lineOrError{err: err}:
		case <-ctx.Done():
		}
	}()
	return lineReader{lines}
}

func (r lineReader) next(ctx context.Context) ([]byte, error) {
	select {
	case l := <-r.lines:
		return l.line, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
