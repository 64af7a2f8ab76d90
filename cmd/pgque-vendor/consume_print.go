package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync/atomic"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// eventLine is an event as --print and --stream write it. "publish --ndjson" reads
// it back.
type eventLine struct {
	ID       int64             `json:"id"`
	Type     string            `json:"type"`
	Payload  json.RawMessage   `json:"payload"`                // null also when it is no JSON
	Text     string            `json:"payload_text,omitempty"` // a payload that is no JSON
	Headers  map[string]string `json:"headers,omitempty"`
	Time     time.Time         `json:"time"`
	Attempt  int               `json:"attempt"`
	Queue    string            `json:"queue"`
	Consumer string            `json:"consumer"`
}

// encodeEvent gives the event as one line, with its newline.
func encodeEvent(e *events.Event) ([]byte, error) {
	line := eventLine{ID: e.ID, Type: e.Type, Headers: e.Headers, Time: e.Time.UTC(), Attempt: e.Attempt, Queue: e.Queue, Consumer: e.Consumer}
	if json.Valid(e.Payload) {
		line.Payload = e.Payload
	} else {
		line.Text = string(e.Payload)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(line) // the encoder puts a payload of several lines into one
	return b.Bytes(), err
}

// printer writes events to stdout.
type printer struct {
	out     io.Writer
	giveUp  func(context.Context, error) error
	writing atomic.Bool
}

// handle returns nil, which acks the event, only when the whole line was taken.
func (p *printer) handle(ctx context.Context, e *events.Event) error {
	line, err := encodeEvent(e)
	if err != nil {
		return err
	}
	p.writing.Store(true)
	_, err = p.out.Write(line)
	p.writing.Store(false)
	if err != nil { // a reader that is gone among them, which the root command takes for a clean end
		return p.giveUp(ctx, fault.New(fault.Usage, "write event %d to stdout: %w", e.ID, err))
	}
	return nil
}

func (p *printer) idle() bool { return !p.writing.Load() }
func (p *printer) close()     {}
