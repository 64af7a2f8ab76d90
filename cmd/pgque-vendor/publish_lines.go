package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// lines sends the events of stdin, a transaction for each batch.
func (p *publisher) lines(ctx context.Context, env *environment) error {
	in := readLines(ctx, env.stdin, 4*p.options.maxPayload+64<<10)
	var batch []events.Event
	number := 0
	for {
		line, err := in.next(ctx)
		if err == nil {
			number++
			err = p.parse(line, number, &batch)
		}
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return p.stopped(ctx, err, number)
		}
		if len(batch) > 0 && (last || len(batch) == p.options.batch) {
			if _, err := p.send(ctx, batch); err != nil {
				return p.stopped(ctx, err, number)
			}
			p.committed, batch = number, batch[:0]
		}
		if last {
			return p.report(env)
		}
	}
}

// parse adds the event of a line to the batch; a blank line has none. The event
// is checked here, so that an error names the line.
func (p *publisher) parse(line []byte, number int, batch *[]events.Event) error {
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
	*batch = append(*batch, event)
	return nil
}

// once is a value of a JSON object whose key may be there once: of two, the decoder
// would drop one without a word.
type once json.RawMessage

func (o *once) UnmarshalJSON(value []byte) error {
	if *o != nil {
		return errors.New("a key is there twice")
	}
	*o = bytes.Clone(value)
	return nil
}

func (o once) missing() bool { return o == nil || string(o) == "null" }

func parseEvent(line []byte) (events.Event, error) {
	var in struct {
		Type    once `json:"type"`
		Payload once `json:"payload"`
		Headers once `json:"headers"`

		// What "consume --print" writes as well.
		ID       json.RawMessage `json:"id"`
		Time     json.RawMessage `json:"time"`
		Attempt  json.RawMessage `json:"attempt"`
		Queue    json.RawMessage `json:"queue"`
		Consumer json.RawMessage `json:"consumer"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return events.Event{}, fmt.Errorf("no JSON object with \"type\" and \"payload\": %w", err)
	}
	_, more := d.Token()
	switch {
	case more != io.EOF:
		return events.Event{}, errors.New("something follows the JSON object")
	case in.Type.missing():
		return events.Event{}, errors.New(`it has no "type"`)
	case in.Payload == nil:
		return events.Event{}, errors.New(`it has no "payload" (null is the JSON for nothing)`)
	}
	event := events.Event{Payload: json.RawMessage(in.Payload)}
	if json.Unmarshal(in.Type, &event.Type) != nil {
		return events.Event{}, fmt.Errorf(`its "type" is %.40s, not a string`, in.Type)
	}
	if !in.Headers.missing() && json.Unmarshal(in.Headers, &event.Headers) != nil {
		return events.Event{}, errors.New(`its "headers" are not an object of strings`)
	}
	if notUnicode(event) && !bytes.Contains(line, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(line), []byte(`\ufffd`)) {
		return events.Event{}, errors.New("its type or a header is not valid Unicode")
	}
	return event, nil
}

// notUnicode reports a replacement character in the texts that JSON was decoded for,
// which is what its decoder makes of anything that is not Unicode.
func notUnicode(e events.Event) bool {
	found := strings.ContainsRune(e.Type, utf8.RuneError)
	for name, value := range e.Headers {
		found = found || strings.ContainsRune(name+value, utf8.RuneError)
	}
	return found
}

// stopped says with a failure what is committed and what is not.
func (p *publisher) stopped(ctx context.Context, err error, number int) error {
	done := p.outcome(number)
	if ctx.Err() != nil {
		return fmt.Errorf("%w; %s", context.Cause(ctx), done)
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Usage, "read line %d from stdin: %w", number+1, err)
	}
	f.Text += "; " + done
	if p.committed > 0 && !p.unknown {
		f.Hints = append(f.Hints, fmt.Sprintf("once it is mended, send the rest: tail -n +%d FILE | pgque-vendor publish %s --ndjson", p.committed+1, shellQuote(p.queue)))
	}
	return f
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
	if p.options.json {
		return writeJSON(env.stdout, publishDocument{Schema: 1, Queue: p.queue, Sent: p.sent})
	}
	env.sayf("sent %s to %q", count(p.sent, "event"), p.queue)
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
