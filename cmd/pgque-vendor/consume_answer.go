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

// parseAnswer reads a line of a --stream COMMAND about the event with this id. outcome
// is what the handler returns; err says that the line is no answer. It is strict: an
// answer that was misspelt must not end as an event that is acked or waits in vain.
func parseAnswer(line []byte, id int64) (outcome, err error) {
	var answer struct {
		ID         json.RawMessage `json:"id"`
		Outcome    string          `json:"outcome"`
		Reason     string          `json:"reason"`
		RetryAfter *float64        `json:"retry_after"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&answer); err != nil {
		return nil, notAnAnswer(line, err)
	}
	if _, more := d.Token(); more != io.EOF {
		return nil, notAnAnswer(line, errors.New("something follows the JSON object"))
	}
	if got := strings.Trim(string(answer.ID), `"`); got != strconv.FormatInt(id, 10) {
		return nil, notAnAnswer(line, fmt.Errorf(`"id" is not %d`, id))
	}
	if answer.RetryAfter != nil && answer.Outcome != "retry" {
		return nil, notAnAnswer(line, errors.New(`"retry_after" goes with the outcome "retry"`))
	}
	reason := answer.Reason
	if reason == "" {
		reason = "COMMAND answered " + strconv.Quote(answer.Outcome)
	}
	switch answer.Outcome {
	case "done":
		return nil, nil
	case "skip":
		return events.Skip, nil
	case "dead":
		return events.Dead(errors.New(reason)), nil
	case "retry":
		if answer.RetryAfter == nil {
			return errors.New(reason), nil
		}
		if *answer.RetryAfter < 0 || *answer.RetryAfter > maxRetryAfter {
			return nil, notAnAnswer(line, errors.New(`"retry_after" is no number of seconds to wait`))
		}
		return events.RetryAfter(time.Duration(*answer.RetryAfter*float64(time.Second)), errors.New(reason)), nil
	}
	return nil, notAnAnswer(line, errors.New(`"outcome" is none of done, retry, dead, skip`))
}

func notAnAnswer(line []byte, why error) error {
	shown := line[:min(len(line), 200)]
	return fmt.Errorf("COMMAND wrote a line that is no answer to its event: %w: %s", why, printable(string(shown)))
}
