// Package publish is the way from the application's database to the events
// database: a River job, so that an answer to a user never depends on the second.
//
// A job is inserted in the transaction that inserts what the event tells of, so
// there is no event without its cause and no cause without its event. River runs
// the job at least once; its id travels as the event's idempotency key, so that a
// job that ran twice (it published, and its process died before River noted it)
// is still one notification.
package publish

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/notify"
)

// Args is one event to publish.
type Args struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// Kind is the job's name in River.
func (Args) Kind() string { return "publish_notification" }

// Job makes the job that publishes an event. What PgQue would refuse is refused
// here, where the caller can still answer for it, and not in a job that can only
// fail over and over.
func Job[T any](t events.Type[T], payload T) (Args, error) {
	e := t.New(payload)
	if err := events.Check(e); err != nil {
		return Args{}, fmt.Errorf("event %q: %w", t.Name(), err)
	}
	return Args{Type: e.Type, Payload: e.Payload}, nil
}

// Worker works the jobs.
type Worker struct {
	river.WorkerDefaults[Args]
	Events *pgxpool.Pool // the events database
}

// Work publishes the event. An error makes River try again later, for about three
// weeks with its default policy: as long as the events database may be away.
func (w *Worker) Work(ctx context.Context, job *river.Job[Args]) error {
	event := events.Event{Type: job.Args.Type, Payload: job.Args.Payload}.
		WithHeader(events.IdempotencyKey, fmt.Sprintf("river-%d", job.ID))
	_, err := events.Send(ctx, w.Events, notify.Queue, event)
	return err
}
