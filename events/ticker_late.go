package events

import (
	"context"
	"fmt"
	"maps"
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
	// The transactions that were in flight when it was asked for late events:
	// it is asked again when one of them has ended.
	open []uint64
	// asked is the xmax of the snapshot that it was asked at, 0 before.
	asked uint64
	// again is when it is asked once more whatever was in flight, zero after that:
	// a transaction may get its id after it took a number, and while nothing later
	// has ended a snapshot does not list it.
	again time.Time
}

const (
	// askAgain is long after a transaction that has taken a number got its id.
	askAgain = time.Second
	// askAtMost is how many queues are asked in one look: at a start none was yet.
	askAtMost = 500
)

// lateWatches are the watches by the queues' numbers. They outlast what there is
// to wait for, to tell a queue that was ticked since.
type lateWatches map[int32]*lateWatch

// remember begins to watch the queues that have no new events, but had some when
// they were seen last, or are seen for the first time. Queues that are neither
// among those looked at nor quiet are gone.
func (w lateWatches) remember(queues []lookedAt, quiet map[int32]quiet, now time.Time) error {
	here := make(map[int32]bool, len(queues))
	for _, q := range queues {
		here[q.ID] = true
	}
	maps.DeleteFunc(w, func(id int32, _ *lateWatch) bool {
		_, quiet := quiet[id]
		return !quiet && !here[id]
	})
	for _, q := range queues {
		if q.Sequence == 0 { // it has new events
			continue
		}
		seen, err := parseSnapshot(q.Snapshot)
		if err != nil {
			return err
		}
		if was := w[q.ID]; was != nil && was.queue.At == q.At {
			was.seen = seen // an idle tick's
		} else {
			w[q.ID] = &lateWatch{queue: q, seen: seen, again: now.Add(askAgain)}
		}
	}
	return nil
}

// due are the queues to ask for late events.
func (w lateWatches) due(at snapshot, now time.Time) (due []*lateWatch) {
	for _, q := range w {
		if len(due) == askAtMost {
			break
		}
		if q.asked == 0 || slices.ContainsFunc(q.open, at.ended) || q.isAgain(at, now) {
			due = append(due, q)
		}
	}
	return due
}

func (w *lateWatch) isAgain(at snapshot, now time.Time) bool {
	return !w.again.IsZero() && !now.Before(w.again) && at.xmax > w.asked
}

// wasAsked books that the queue was asked when the snapshot was taken, or after.
func (w *lateWatch) wasAsked(at snapshot, now time.Time) {
	if again := w.isAgain(at, now); again || w.asked == 0 {
		w.open = at.open
		if again {
			w.again = time.Time{}
		}
	} else {
		w.open = slices.DeleteFunc(slices.Clone(w.open), at.ended)
	}
	w.asked = at.xmax
}

// sql takes a number of the queue when events were committed that its last tick
// does not cover, and nothing is new. It gives a row then. Transactions are looked
// for in the order of the index on ev_txid: by their range or their number alone
// the table itself may be read, where the statistics are old.
func (w *lateWatch) sql(at snapshot) string {
	table := pgx.Identifier(strings.SplitN(w.queue.Table, ".", 2)).Sanitize()
	late := fmt.Sprintf("(select ev_txid from %s order by ev_txid desc limit 1) >= '%d'", table, w.seen.xmax)
	var ended []string
	for _, transaction := range w.seen.open {
		if at.ended(transaction) {
			ended = append(ended, strconv.FormatUint(transaction, 10))
		}
	}
	if len(ended) > 0 {
		late += fmt.Sprintf(` or exists (select from unnest('%s'::xid8[]) ended
			where (select ev_txid from %s where ev_txid >= ended order by ev_txid limit 1) = ended)`, arrayText(ended), table)
	}
	return fmt.Sprintf("select nextval(%[1]d::oid::regclass) where coalesce(pg_sequence_last_value(%[1]d::oid::regclass), 1) = %[2]d and (%[3]s)",
		w.queue.Sequence, w.queue.At, late)
}

// askForLate asks the queues that are due, and says whether one of them has late
// events, and so something new now.
func (t *Ticker) askForLate(ctx context.Context, at snapshot, now time.Time) (found bool, err error) {
	due := t.last.late.due(at, now)
	if len(due) == 0 {
		return false, nil
	}
	found, err = t.ask(ctx, at, due...)
	if ends(err) {
		return false, err
	}
	all := err == nil
	for _, w := range due {
		if !all { // one of them fails: each on its own
			var late bool
			late, err = t.ask(ctx, at, w)
			if ends(err) {
				return found, err
			}
			found = found || late
		}
		w.wasAsked(at, now)
		if err != nil && sqlState(err) != undefinedTable { // the queue was not dropped
			t.queueFailed("late", t.unasked, w.queue.Name, err)
			w.again = t.unasked[w.queue.Name].until
		} else {
			t.unasked.over(w.queue.Name)
		}
	}
	return found, nil
}

// ends says of an error that it concerns all queues.
func ends(err error) bool { return err != nil && (sqlState(err) == "" || connectionLost(err)) }

// ask asks queues in one round trip.
func (t *Ticker) ask(ctx context.Context, at snapshot, queues ...*lateWatch) (found bool, err error) {
	// Somebody who has locked a queue's table must not keep the others waiting.
	statements := []statement{{sql: "set local lock_timeout = '100ms'"}}
	for _, w := range queues {
		statements = append(statements, statement{sql: w.sql(at), row: func([][]byte) error {
			found = true
			return nil
		}})
	}
	ctx, cancel := withTimeout(ctx, callTimeout)
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
