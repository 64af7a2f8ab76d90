package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// The exit codes of COMMAND that mean something, after sysexits.h: EX_DATAERR and
// EX_TEMPFAIL.
const (
	exitDead  = 65
	exitRetry = 75
)

// commandHandler runs COMMAND once for each event.
type commandHandler struct {
	command *program
	options *consumeOptions
}

func (h *commandHandler) handle(ctx context.Context, e *events.Event) error {
	p, err := h.command.start(e.Payload, eventEnvironment(e))
	if err != nil {
		return h.command.notStarted(ctx, err)
	}
	defer p.release()
	limited, cancel := context.WithTimeout(ctx, h.options.limit)
	defer cancel()
	if p.wait(limited) {
		return errors.New(p.why(ended(ctx, h.options.limit)))
	}
	return outcomeOf(p.state().ExitCode(), errors.New(p.why(p.state().String())), h.options.retryAfter)
}

func (h *commandHandler) close()     { h.command.wait() }
func (h *commandHandler) idle() bool { return true }

// outcomeOf says what an exit code means. A process that a signal ended has -1.
func outcomeOf(code int, reason error, retryAfter time.Duration) error {
	switch code {
	case 0:
		return nil
	case exitDead:
		return events.Dead(reason)
	case exitRetry:
		return events.RetryAfter(retryAfter, reason)
	}
	return reason
}

// ended says why a handler was ended: its context, or else the limit that is over
// within it.
func ended(ctx context.Context, limit time.Duration) string {
	if cause := context.Cause(ctx); cause != nil {
		return "ended: " + cause.Error()
	}
	return fmt.Sprintf("ended after the limit of %s", limit)
}

// eventEnvironment tells COMMAND about the event. PostgreSQL's text holds no NUL, but
// a JSON string in the headers can.
func eventEnvironment(e *events.Event) []string {
	headers := e.Headers
	if headers == nil {
		headers = map[string]string{}
	}
	encoded, _ := json.Marshal(headers) // strings alone cannot fail
	env := []string{
		"PGQUE_EVENT_ID=" + strconv.FormatInt(e.ID, 10),
		"PGQUE_EVENT_TYPE=" + e.Type,
		"PGQUE_EVENT_ATTEMPT=" + strconv.Itoa(e.Attempt),
		"PGQUE_EVENT_TIME=" + e.Time.UTC().Format(time.RFC3339Nano),
		"PGQUE_EVENT_QUEUE=" + e.Queue,
		"PGQUE_EVENT_CONSUMER=" + e.Consumer,
		"PGQUE_EVENT_HEADERS=" + string(encoded),
	}
	if key, ok := headers[events.IdempotencyKey]; ok && !strings.ContainsRune(key, 0) {
		env = append(env, "PGQUE_EVENT_IDEMPOTENCY_KEY="+key)
	}
	return env
}

// withoutSecrets is the environment that COMMAND gets of ours: without what leads to
// the events database or to GitHub.
func withoutSecrets(environ []string) []string {
	var kept []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name) // names have no case there
		}
		switch {
		case strings.HasPrefix(name, "PG"), strings.HasPrefix(name, "DATABASE_URL"): // PGQUE_VENDOR_… among them
		case name == "GH_TOKEN", name == "GITHUB_TOKEN":
		default:
			kept = append(kept, entry)
		}
	}
	return kept
}
