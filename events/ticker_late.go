package events

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// An event takes its number when it is sent, and is committed later. The tick that
// the number brings about covers what was committed by then. An event that was
// not is in none of its batches, and, as its number is no longer new, ticker(queue)
// makes the next tick for somebody else's event or for idleness, a minute later
// perhaps. So the ticker goes on watching a queue after its tick, and when a
// transaction that was in flight has ended and left events there, it takes a
// number of the queue, which makes ticker(queue) tick by its own rules.

// lateWatch is a queue without new events, some of which may be committed late.
type lateWatch struct {
	queue lookedAt
	seen  snapshot // of the queue's last tick
	// due says that one of open has ended since the queue was asked for late events.
	due  bool
	open []uint64 // the transactions that were in flight then
	// asked is the xmax of the snapshot that it was asked at, 0 when it is to be asked
	// at once.
	asked uint64
	// again is when it is asked whatever was in flight, and every how long after that:
	// a transaction gets its id after it took a number, at once or after a wait for a
	// lock, and while nothing later has ended a snapshot does not list it.
	again time.Time
	every time.Duration
}

const (
	// askAgain is how long after the first time a queue is asked whatever was in
	// flight. The next time it is twice as long.
	askAgain = time.Second
	// askAtMost is how many queues are asked in one look and one transaction, which
	// holds a few locks for each.
	askAtMost = 100
	// The limits keep the ticks from having to wait: for a table that somebody has
	// locked, for one queue, for all of them, and for asking them one by one.
	askLimits  = "select set_config('lock_timeout', '20ms', true), set_config('statement_timeout', '250ms', true)"
	askTimeout = 2 * time.Second
	askBudget  = 500 * time.Millisecond
)

// lateWatches are the queues without new events. They are here also when there is
// nothing to wait for, to tell when a queue was ticked since.
type lateWatches struct {
	queues  map[int32]*lateWatch
	at      snapshot // when it was looked last for those that are due
	failing troubles // queues that could not be asked; "" for all
}

// remember begins to watch the queues that have no new events, but had some when
// they were seen last, or are seen for the first time. Queues that are neither
// among those looked at nor quiet are gone.
func (l *lateWatches) remember(queues []lookedAt, quiet map[int32]quiet, now time.Time) error {
	here := make(map[int32]bool, len(queues))
	for _, q := range queues {
		here[q.ID] = true
	}
	for id, w := range l.queues {
		if _, quiet := quiet[id]; !quiet && !here[id] {
			delete(l.queues, id)
			l.failing.over(w.queue.Name)
		}
	}
	for _, q := range queues {
		if q.Sequence == 0 { // it has new events
			continue
		}
		seen, err := parseSnapshot(q.Snapshot)
		if err != nil {
			return err
		}
		if w := l.queues[q.ID]; w != nil && w.queue.At == q.At {
			w.seen = seen // an idle tick's
		} else {
			l.queues[q.ID] = &lateWatch{queue: q, seen: seen, again: now.Add(askAgain), every: askAgain}
		}
	}
	return nil
}

// due are the queues to ask for late events.
func (l *lateWatches) due(at snapshot, now time.Time) (due []*lateWatch) {
	var ended []uint64
	for _, transaction := range l.at.open {
		if at.ended(transaction) {
			ended = append(ended, transaction)
		}
	}
	l.at = at
	for _, w := range l.queues {
		w.due = w.due || slices.ContainsFunc(ended, w.waitsFor)
		if len(due) < askAtMost && (w.due || w.asked == 0 || w.isAgain(at, now)) && !l.failing.resting(w.queue.Name, now) {
			due = append(due, w)
		}
	}
	if l.failing.resting("", now) {
		return nil
	}
	return due
}

func (w *lateWatch) waitsFor(transaction uint64) bool {
	_, found := slices.BinarySearch(w.open, transaction)
	return found
}

func (w *lateWatch) isAgain(at snapshot, now time.Time) bool {
	return !now.Before(w.again) && at.xmax > w.asked
}

// wasAsked books that the queue was asked when the snapshot was taken, or after.
func (w *lateWatch) wasAsked(at snapshot, now time.Time) {
	again := w.isAgain(at, now)
	if again || w.asked == 0 {
		w.open = at.open
	}
	if again {
		w.every *= 2
		w.again = now.Add(w.every)
	}
	w.due, w.asked = false, at.xmax
}

// sql takes a number of the queue when events were committed that its last tick
// does not cover, and nothing is new. It gives a row then. Transactions are looked
// for in the order of the index on ev_txid, by ranges that nobody writes to any
// more: otherwise it would read the table, where the statistics are old, or all
// that somebody has not committed yet.
func (w *lateWatch) sql(at snapshot) string {
	table := pgx.Identifier(strings.SplitN(w.queue.Table, ".", 2)).Sanitize()
	late := fmt.Sprintf(`(select ev_txid from %s where ev_txid >= '%d' and ev_txid < pg_snapshot_xmax(pg_current_snapshot())
		order by ev_txid desc limit 1) is not null`, table, w.seen.xmax)
	var ended []string
	for _, transaction := range w.seen.open {
		if at.ended(transaction) {
			ended = append(ended, strconv.FormatUint(transaction, 10))
		}
	}
	if len(ended) > 0 {
		late += fmt.Sprintf(` or exists (select from unnest('%s'::xid8[]) ended
		where (select ev_txid from %s where ev_txid >= ended and ev_txid <= ended order by ev_txid limit 1) is not null)`, arrayText(ended), table)
	}
	return fmt.Sprintf("select nextval(%[1]d::oid::regclass) where coalesce(pg_sequence_last_value(%[1]d::oid::regclass), 1) = %[2]d and (%[3]s)",
		w.queue.Sequence, w.queue.At, late)
}

// askForLate asks the queues that are due, and says whether one of them has late
// events, and so something new now. What goes wrong keeps nobody from ticking: it
// is booked as action "late".
func (t *Ticker) askForLate(ctx context.Context, at snapshot, due []*lateWatch, now time.Time) (found bool) {
	if len(due) == 0 {
		return false
	}
	found, err := t.ask(ctx, at, due...)
	if err == nil || concernsAll(err) {
		t.askedAll(ctx, err, now)
	}
	if err == nil {
		for _, w := range due {
			t.asked(w, at, now, nil)
		}
	}
	if err == nil || concernsAll(err) {
		return found
	}
	began := time.Now()
	for _, w := range due { // one of them fails: each on its own
		late, err := t.ask(ctx, at, w)
		if concernsAll(err) {
			t.askedAll(ctx, err, now)
			return found
		}
		found = found || late
		t.asked(w, at, now, err)
		if time.Since(began) > askBudget { // the others next time
			return found
		}
	}
	return found
}

// asked books the outcome for one queue. One that failed rests for a while.
func (t *Ticker) asked(w *lateWatch, at snapshot, now time.Time, err error) {
	w.wasAsked(at, now)
	failing := t.last.late.failing
	switch {
	case err != nil && sqlState(err) != undefinedTable: // that one was dropped
		t.queueFailed("late", failing, w.queue.Name, err)
		w.asked = 0
	case failing.over(w.queue.Name):
		t.log.Info("ticker: late events are looked for again", "queue", w.queue.Name)
	}
}

// askedAll books the outcome of asking as such.
func (t *Ticker) askedAll(ctx context.Context, err error, now time.Time) {
	t.done(ctx, "late", err)
	if err != nil {
		t.last.late.failing.add("", now)
	} else {
		t.last.late.failing.over("")
	}
}

// concernsAll says of an error that it is not one queue's.
func concernsAll(err error) bool { return err != nil && (sqlState(err) == "" || connectionLost(err)) }

// ask asks queues in one round trip.
func (t *Ticker) ask(ctx context.Context, at snapshot, queues ...*lateWatch) (found bool, err error) {
	statements := []statement{{sql: askLimits}}
	for _, w := range queues {
		statements = append(statements, statement{sql: w.sql(at), row: func([][]byte) error {
			found = true
			return nil
		}})
	}
	ctx, cancel := withTimeout(ctx, askTimeout)
	defer cancel()
	err = t.standbyLeft(oneTrip(ctx, t.pool, statements...))
	return found, wrap(err, "look for events that were committed late")
}

// snapshot is what was visible at a moment.
type snapshot struct {
	text string
	xmax uint64   // all that ended before had a lower number
	open []uint64 // those with a lower number that had not ended, in order
}

// ended says that a transaction which was once listed as open had ended.
func (s snapshot) ended(transaction uint64) bool {
	_, open := slices.BinarySearch(s.open, transaction)
	return !open
}

// parseSnapshot reads a pg_snapshot's text, xmin:xmax:xip,xip…
func parseSnapshot(text string) (s snapshot, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, fmt.Errorf("snapshot %q is not xmin:xmax:xip", text)
	}
	s.text = text
	if s.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return s, err
	}
	for part := range strings.SplitSeq(parts[2], ",") {
		if part == "" {
			continue
		}
		transaction, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return s, err
		}
		s.open = append(s.open, transaction)
	}
	return s, nil
}
