package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// maxRetryAfter is a century in seconds: what is more is a mistake, and would not fit
// a time.Duration at some point.
const maxRetryAfter = 100 * 366 * 24 * 3600

// answer is what a --stream COMMAND says of an event.
type answer struct {
	outcome string
	reason  string
	after   *float64 // seconds to wait
}

// parseAnswer reads a line of a --stream COMMAND about the event with this id. outcome
// is what the handler returns; err says that the line is no answer. It is strict: an
// answer that was misspelt must not end as an event that is acked or waits in vain.
func parseAnswer(line []byte, id int64) (outcome, err error) {
	a, err := decodeAnswer(line, id)
	if err != nil {
		return nil, notAnAnswer(line, err)
	}
	reason := a.reason
	if reason == "" {
		reason = "COMMAND answered " + strconv.Quote(a.outcome)
	}
	switch {
	case a.after != nil && a.outcome != "retry":
		return nil, notAnAnswer(line, errors.New(`"retry_after" goes with the outcome "retry"`))
	case a.after != nil && (*a.after < 0 || *a.after > maxRetryAfter):
		return nil, notAnAnswer(line, errors.New(`"retry_after" is no number of seconds to wait`))
	case a.after != nil:
		return events.RetryAfter(time.Duration(*a.after*float64(time.Second)), errors.New(reason)), nil
	case a.outcome == "retry":
		return errors.New(reason), nil
	case a.outcome == "dead":
		return events.Dead(errors.New(reason)), nil
	case a.outcome == "skip":
		return events.Skip, nil
	case a.outcome == "done":
		return nil, nil
	}
	return nil, notAnAnswer(line, errors.New(`"outcome" is none of done, retry, dead, skip`))
}

func decodeAnswer(line []byte, id int64) (a answer, err error) {
	var in struct {
		ID      once `json:"id"`
		Outcome once `json:"outcome"`
		Reason  once `json:"reason"`
		After   once `json:"retry_after"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil || line[0] != '{' { // null is decoded as an object
		var other *json.UnmarshalTypeError // whose text is about Go
		if err == nil || errors.As(err, &other) {
			err = errors.New("it is no JSON object")
		}
		return a, err
	}
	_, more := d.Token()
	switch {
	case more != io.EOF:
		return a, errors.New("something follows the JSON object")
	case strings.Trim(string(in.ID), `"`) != strconv.FormatInt(id, 10):
		return a, fmt.Errorf(`"id" is not %d`, id)
	case in.Outcome == nil || json.Unmarshal(in.Outcome, &a.outcome) != nil:
		return a, errors.New(`"outcome" is none of done, retry, dead, skip`)
	case in.Reason != nil && json.Unmarshal(in.Reason, &a.reason) != nil:
		return a, errors.New(`"reason" is no text`)
	case in.After != nil && json.Unmarshal(in.After, &a.after) != nil:
		return a, errors.New(`"retry_after" is no number of seconds to wait`)
	}
	return a, nil
}

func notAnAnswer(line []byte, why error) error {
	shown := line[:min(len(line), 200)]
	return fmt.Errorf("COMMAND wrote a line that is no answer to its event: %w: %s", why, printable(string(shown)))
}
