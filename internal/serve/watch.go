package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/events"
)

// Look is what was seen of the database. It is shared: nobody changes it.
type Look struct {
	At time.Time // when it was tried
	// Trouble is why it failed, in words that hold no secret; "" when it succeeded.
	// What was seen is then that of an earlier look.
	Trouble string
	Took    time.Duration

	Seen      time.Time // when what follows was seen; zero when nothing ever was
	Queues    []events.QueueInfo
	Consumers []events.ConsumerInfo
	Findings  []events.Finding
}

// How often to look. All together it takes less than ten seconds until a page
// shows what is wrong. A database that takes long to answer is asked less often, so
// that looking is at most a tenth of the work of one connection.
const (
	lookEvery    = 2 * time.Second
	healthEvery  = 4 * time.Second
	lookLimit    = 5 * time.Second
	slowestLooks = 30 * time.Second
)

// unticked is how long events may wait for a tick, beyond their queue's own
// ticker_max_lag, while they are watched: short of lookEvery, so that on a queue with
// a short one the second look tells.
const unticked = 1800 * time.Millisecond

// Watch looks at the database until ctx ends, and shows each look; findings are
// those of config. It uses one connection of db at a time.
func Watch(ctx context.Context, db events.DB, config events.HealthConfig, log *slog.Logger, show func(Look)) {
	w := watcher{db: db, config: config, log: log, waiting: map[string]waiting{}}
	for ctx.Err() == nil {
		w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		show(w.last)
		select {
		case <-ctx.Done():
		case <-time.After(w.last.pause()):
		}
	}
}

// pause is the time until the next look.
func (l *Look) pause() time.Duration {
	if l.Trouble != "" {
		return lookEvery
	}
	return min(max(lookEvery, 10*l.Took), slowestLooks)
}

type watcher struct {
	db         events.DB
	config     events.HealthConfig
	log        *slog.Logger
	last       Look
	healthy    []events.Finding // what Health has said last
	nextHealth time.Time
	waiting    map[string]waiting
}

// waiting is a queue that has events no tick has covered.
type waiting struct {
	tick  time.Time // the last one
	since time.Time // by our clock
}

func (w *watcher) look(ctx context.Context) {
	w.last.At = time.Now()
	err := w.see(ctx)
	w.last.Took = time.Since(w.last.At)
	before := w.last.Trouble
	w.last.Trouble = ""
	if err != nil {
		w.last.Trouble = Reason(err)
	}
	switch now := w.last.Trouble; {
	case now == before || ctx.Err() != nil:
	case now == "":
		w.log.Info("the status page sees the database again")
	default:
		w.log.Warn("the status page cannot see the database", "err", err)
	}
}

func (w *watcher) see(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	next := w.last
	if err := w.state(ctx, &next); err != nil {
		return err
	}
	if began := time.Now(); !began.Before(w.nextHealth) {
		found, err := events.Health(ctx, w.db, w.config)
		if err != nil {
			return err
		}
		w.healthy = found
		w.nextHealth = time.Now().Add(min(max(healthEvery-lookEvery/2, 10*time.Since(began)), slowestLooks))
	}
	next.Seen = time.Now()
	next.Findings = slices.Concat(w.untickedQueues(next.Queues), w.healthy)
	w.last = next
	return nil
}

// state reads all numbers from one snapshot, so that differences between them, and
// between looks, mean something.
func (w *watcher) state(ctx context.Context, look *Look) error {
	tx, err := w.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { // it only reads
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	if _, err = tx.Exec(ctx, "set transaction isolation level repeatable read, read only", pgx.QueryExecModeExec); err != nil {
		return err
	}
	if look.Queues, err = events.Queues(ctx, tx); err != nil {
		return err
	}
	look.Consumers, err = events.Consumers(ctx, tx, "")
	return err
}

// untickedQueues finds sooner than Health that no ticker runs. From one look nobody
// can tell for how long events have waited for their tick, so Health has to wait
// until an idle tick is overdue, which is a minute; who goes on looking can tell.
func (w *watcher) untickedQueues(queues []events.QueueInfo) []events.Finding {
	now, still := time.Now(), map[string]waiting{}
	var found []events.Finding
	for _, q := range queues {
		if q.NewEvents == 0 || q.Paused || q.External {
			continue
		}
		wait, known := w.waiting[q.Name]
		if !known || !wait.tick.Equal(q.LastTick) {
			wait = waiting{tick: q.LastTick, since: now}
		}
		still[q.Name] = wait
		said := slices.ContainsFunc(w.healthy, func(f events.Finding) bool {
			return (f.Code == events.CodeNoTick || f.Code == events.CodeRestored) && (f.Queue == "" || f.Queue == q.Name)
		})
		if waited := now.Sub(wait.since); waited > q.MaxLag+unticked && !said {
			found = append(found, events.Finding{Code: events.CodeNoTick, Severity: events.Critical, Queue: q.Name, Age: waited,
				Text: fmt.Sprintf("%d events of queue %q have waited %s for a tick and none comes: no ticker runs", q.NewEvents, q.Name, waited.Round(time.Second)),
				Fix:  "pgque-vendor ticker"})
		}
	}
	w.waiting = still
	return found
}

// Reason says why the database could not be asked, to people who may know nothing
// of where it is: errors of connections name the host and the login.
func Reason(err error) string {
	var server *pgconn.PgError
	errors.As(err, &server)
	for _, known := range []error{events.ErrNotInstalled, events.ErrPermission, events.ErrReadOnly, events.ErrQueueNotFound} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the database does not answer in time"
	case server != nil:
		return fmt.Sprintf("the database refuses (SQLSTATE %s); the log says more", server.Code)
	}
	return "the database cannot be reached; the log says more"
}
