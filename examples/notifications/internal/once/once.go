// Package once keeps a ledger of effects outside of any database, such as an
// e-mail or a call of a webhook, so that an event that is delivered again does
// not have its effect again.
//
// No ledger makes such an effect happen exactly once: between the moment when the
// mail server has taken the message and the moment when that is noted there is a
// gap, and a process can die in it. What a ledger can do is to make the gap small
// and visible. Two short transactions go around each effect: "started", committed
// before it, and "done" or "failed" after it. What is done is never done again,
// what has failed is tried again, and of what was started and never noted nobody
// knows. Such an effect is done again after a while, and is told so, because for
// these notifications twice is better than never; it can then be recognised.
//
// For effects in a database all this is not needed: events.HandleTx commits the
// effect and the note of it together.
package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
)

// DDL creates the ledger. It belongs to the application's migrations.
const DDL = `
create table if not exists effects (
	key      text primary key,
	state    text not null check (state in ('started', 'failed', 'done')),
	doubtful boolean not null default false, -- an earlier attempt may have had its effect
	attempts int not null default 1,
	noted_at timestamptz not null default now()
);
create index if not exists effects_noted_at on effects (noted_at) where state = 'done';
`

// Ledger is the table of effects in a database.
type Ledger struct{ DB *pgxpool.Pool }

// How long the parts of an attempt may take. An attempt that was started longer
// than busyFor ago is over, whatever became of its process; until then another
// one waits, since after a lost lease two processes may have the same event.
const (
	effectFor = 12 * time.Second
	noteFor   = 12 * time.Second
	busyFor   = 30 * time.Second
)

// Do has effect do what event e asks for, unless the ledger says it is done. With
// again true an earlier attempt may have had the effect already. The effect wraps
// in NotDone the errors that prove that nothing happened.
//
// Once begun, an effect is not broken off when ctx ends (a stop, a lost lease):
// broken off half way it would be in doubt.
func (l Ledger) Do(ctx context.Context, e *events.Event, effect func(ctx context.Context, again bool) error) error {
	key := Key(e)
	again, done, err := l.begin(ctx, key)
	if err != nil || done {
		return err
	}
	effectCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), effectFor)
	defer cancel()
	err = effect(effectCtx, again)
	state := "done"
	var notDone *notDoneError
	switch {
	case errors.As(err, &notDone):
		state = "failed"
	case err != nil:
		return err // it stays "started": nobody knows
	}
	if noteErr := l.note(ctx, key, state); noteErr != nil {
		return errors.Join(err, fmt.Errorf("note effect %q as %s: %w", key, state, noteErr))
	}
	return err
}

// Key is the name of an event's effect: its type and cause where the publisher gave
// one, so that one cause that was published twice has one effect. An id alone would
// not do: a queue that is dropped and made anew gives it to another event.
func Key(e *events.Event) string {
	if cause := e.Headers[events.IdempotencyKey]; cause != "" {
		return fmt.Sprintf("%s/%s/%s", e.Consumer, e.Type, cause)
	}
	return fmt.Sprintf("%s/%s/%d/%d", e.Consumer, e.Queue, e.ID, e.Time.UnixMicro())
}

// begin notes that an attempt starts.
func (l Ledger) begin(ctx context.Context, key string) (again, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err = l.DB.QueryRow(ctx, `insert into effects (key, state) values ($1, 'started')
		on conflict (key) do update set state = 'started', attempts = effects.attempts + 1, noted_at = now(),
			doubtful = effects.doubtful or effects.state = 'started'
		where effects.state = 'failed'
			or effects.state = 'started' and effects.noted_at < now() - $2::float8 * interval '1 second'
		returning doubtful`, key, busyFor.Seconds()).Scan(&again)
	if !errors.Is(err, pgx.ErrNoRows) {
		return again, false, err
	}
	if err := l.DB.QueryRow(ctx, "select state = 'done' from effects where key = $1", key).Scan(&done); err != nil {
		return false, false, err
	}
	if !done {
		return false, false, events.RetryAfter(busyFor, fmt.Errorf("effect %q was started a moment ago and its end is not known", key))
	}
	return false, true, nil
}

// note writes down how an attempt ended. It does not end with ctx: whether the
// process is to stop or has lost its lease, what happened has happened.
func (l Ledger) note(ctx context.Context, key, state string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteFor)
	defer cancel()
	for {
		err := l.try(ctx, key, state)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func (l Ledger) try(ctx context.Context, key, state string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	// A slower attempt of a process that lost its lease must not undo "done".
	_, err := l.DB.Exec(ctx, `update effects set state = $2, noted_at = now() where key = $1 and state <> 'done'`, key, state)
	return err
}

// Purge forgets effects that were done longer than age ago. Keep them for longer
// than an event can come again: its retries, and replays of dead letters.
func (l Ledger) Purge(ctx context.Context, age time.Duration) (int64, error) {
	tag, err := l.DB.Exec(ctx, `delete from effects where state = 'done' and noted_at < now() - $1::float8 * interval '1 second'`, age.Seconds())
	return tag.RowsAffected(), err
}

type notDoneError struct{ err error }

func (e *notDoneError) Error() string { return e.err.Error() }
func (e *notDoneError) Unwrap() error { return e.err }

// NotDone marks an error that proves that the effect did not happen: no
// connection was made, or the other side refused.
func NotDone(err error) error { return &notDoneError{err} }
