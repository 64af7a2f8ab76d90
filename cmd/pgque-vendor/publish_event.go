package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/events"
)

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
		Text     once            `json:"payload_text"`
		ID       json.RawMessage `json:"id"`
		Time     json.RawMessage `json:"time"`
		Attempt  json.RawMessage `json:"attempt"`
		Queue    json.RawMessage `json:"queue"`
		Consumer json.RawMessage `json:"consumer"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil || line[0] != '{' { // null is decoded as an object
		var other *json.UnmarshalTypeError
		switch {
		case err == nil:
			err = errors.New("it is null")
		case errors.As(err, &other): // whose text is about Go
			err = fmt.Errorf("it is a JSON %s", other.Value)
		}
		return events.Event{}, fmt.Errorf("no JSON object with \"type\" and \"payload\": %w", err)
	}
	_, more := d.Token()
	switch {
	case more != io.EOF:
		return events.Event{}, errors.New("something follows the JSON object")
	case in.Type.missing():
		return events.Event{}, errors.New(`it has no "type"`)
	case !in.Text.missing() && !in.Payload.missing():
		return events.Event{}, errors.New(`it has a "payload" and a "payload_text"`)
	case !in.Text.missing() && in.Text[0] != '"':
		return events.Event{}, errors.New(`its "payload_text" is not a string`)
	case !in.Text.missing():
		in.Payload = in.Text
	case in.Payload == nil:
		return events.Event{}, errors.New(`it has no "payload" (null is the JSON for nothing)`)
	}
	event := events.Event{Payload: json.RawMessage(in.Payload)}
	if json.Unmarshal(in.Type, &event.Type) != nil {
		return events.Event{}, fmt.Errorf(`its "type" is %.40s, not a string`, in.Type)
	}
	if !in.Headers.missing() {
		var err error
		if event.Headers, err = headersOfLine(in.Headers); err != nil {
			return events.Event{}, err
		}
	}
	if notUnicode(event) && !bytes.Contains(line, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(line), []byte(`\ufffd`)) {
		return events.Event{}, errors.New("its type or a header is not valid Unicode")
	}
	return event, nil
}

// headersOfLine reads an object of strings, each name once: of two, json.Unmarshal
// would drop one without a word. It is valid JSON already.
func headersOfLine(object []byte) (map[string]string, error) {
	errOther := errors.New(`its "headers" are not an object of strings`)
	d := json.NewDecoder(bytes.NewReader(object))
	if start, _ := d.Token(); start != json.Delim('{') {
		return nil, errOther
	}
	headers := map[string]string{}
	for d.More() {
		key, _ := d.Token()
		name, _ := key.(string)
		value, _ := d.Token()
		text, ok := value.(string)
		if !ok {
			return nil, errOther
		}
		if _, twice := headers[name]; twice {
			return nil, fmt.Errorf("its header %.100q is there twice", name)
		}
		headers[name] = text
	}
	return headers, nil
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
