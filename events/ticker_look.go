package events

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// lookSQL finds the queues that pgque.ticker(queue) would tick, by the rules that
// it goes by, and when it would tick the others. Asking ticker() itself costs a
// transaction id each time and, with many queues, ten times as long. The rules,
// with "age" the last tick's and "new" the events since:
//
//   - no tick, or one tick and new = 0: tick
//   - new > 0: when age >= max_lag or new >= max_count
//   - new = 0 (an idle tick, so that a consumer's position and the tables go on):
//     when age >= max_lag / 2 and age reaches twice the distance of the last two
//     ticks, or the idle period
//
// A sequence that was never used counts as 1, as PgQue reads it.
//
// Queues in $2, with their sequences in $3, are left out while the sequence stands
// at what $4 says: to read it is all that an idle queue costs.
const lookSQL = `
select q.queue_id, q.queue_name,
       case when l.tick_id is null or s.new >= q.queue_ticker_max_count then 0
            when s.new > 0 then greatest(extract(epoch from q.queue_ticker_max_lag - s.age), 0)
            when p.tick_time is null then 0
            else greatest(extract(epoch from greatest(q.queue_ticker_max_lag / 2 - s.age,
                     least(q.queue_ticker_idle_period, 2 * (l.tick_time - p.tick_time)) - s.age)), 0)
            end::numeric,
       coalesce(s.new > 0, false),
       case when s.new = 0 then coalesce(s.seq::bigint, 0) else 0 end,
       coalesce(l.tick_event_seq, 0),
       case when s.new = 0 then l.tick_snapshot::text else '' end,
       case when q.queue_switch_step2 < pg_snapshot_xmin(l.tick_snapshot)::text::bigint
            then q.queue_data_pfx || '_' || q.queue_cur_table else q.queue_data_pfx end
  from pgque.queue q
  left join unnest($2::text::int[], $3::text::oid[], $4::text::bigint[]) k (id, seq, at) on k.id = q.queue_id
  left join lateral (
        select tick_id, tick_time, tick_event_seq, tick_snapshot from pgque.tick
         where tick_queue = q.queue_id
         order by tick_queue desc, tick_id desc limit 1) l on true
 cross join lateral (
        select r.seq, coalesce(pg_sequence_last_value(r.seq), 1) - l.tick_event_seq as new, now() - l.tick_time as age
          from (select to_regclass(q.queue_event_seq) as seq offset 0) r
        offset 0) s
  left join lateral (
        select tick_time from pgque.tick
         where s.new <= 0 and tick_queue = q.queue_id and tick_id < l.tick_id
         order by tick_queue desc, tick_id desc limit 1) p on true
 where not q.queue_external_ticker and not q.queue_ticker_paused
   and ($1::text[] is null or q.queue_name = any ($1))
   and (k.id is null or coalesce(pg_sequence_last_value(k.seq), 1) <> k.at)
 order by q.queue_name`

// quiet is a queue that had no new events when it was looked at.
type quiet struct {
	sequence uint32
	at       int64
	until    time.Time // when to look at it anew although nothing has come
}

const (
	// idleEvery is how often idle queues are looked at that may be due for an idle
	// tick. Those are in no hurry, and cost less together.
	idleEvery = time.Second
	// quietAtMost is how long a queue may go without being looked at, since somebody
	// may have changed its settings.
	quietAtMost = 30 * time.Second
)

// lastLook is what a look leaves behind, so that the next can do less.
type lastLook struct {
	quiet    map[int32]quiet
	snapshot string    // what was visible; "" when that is not known
	due      time.Time // when time alone makes a tick due; zero when nothing waits
	idle     time.Time // when the idle queues were looked at that may be due
	late     lateWatches
}

// look looks at the queues in which something may have changed since the last
// look: something came, or an idle tick may be due, or they are new. When nothing
// at all was committed in the meantime, which is cheap to ask, it looks at none.
// Then, too, wait is how long until a queue with new events is due.
func (t *Ticker) look(ctx context.Context) (queues []lookedAt, wait time.Duration, err error) {
	now, l := time.Now(), &t.last
	at, err := t.snapshot(ctx)
	if err != nil {
		l.forget()
		return nil, nothing, err
	}
	idle := now.Sub(l.idle) >= idleEvery
	waits := l.due.IsZero() || now.Add(time.Millisecond).Before(l.due)
	if at.text == l.snapshot && !idle && waits && len(l.late.due(at, now)) == 0 {
		return nil, l.wait(now), nil
	}
	if idle {
		l.idle = now
		maps.DeleteFunc(l.quiet, func(_ int32, q quiet) bool { return !q.until.After(now) })
	}
	queues, err = t.lookAtQueues(ctx, at, now)
	if err != nil {
		return nil, nothing, err
	}
	if t.askForLate(ctx, at, l.late.due(at, now), now) {
		if queues, err = t.lookAtQueues(ctx, at, now); err != nil {
			return nil, nothing, err
		}
	}
	return queues, l.wait(now), nil
}

func (t *Ticker) snapshot(ctx context.Context) (snapshot, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	var text string
	if err := t.pool.QueryRow(ctx, "select pg_catalog.pg_current_snapshot()::text", exec).Scan(&text); err != nil {
		return snapshot{}, err
	}
	return parseSnapshot(text)
}

// lookAtQueues looks at all queues but the quiet ones, and remembers what it found.
func (t *Ticker) lookAtQueues(ctx context.Context, at snapshot, now time.Time) ([]lookedAt, error) {
	l := &t.last
	queues, err := lookForTicks(ctx, t.pool, t.queues(), l.quiet)
	if err != nil && len(l.quiet) > 0 && sqlState(err) != "" { // a queue was dropped at this moment, and its sequence with it
		l.forget()
		queues, err = lookForTicks(ctx, t.pool, t.queues(), nil)
	}
	if err != nil {
		l.forget()
		return nil, err
	}
	l.remember(at, queues, t.troubled, now)
	return queues, l.late.remember(queues, l.quiet, now)
}

// nothing, as a time to wait, says that no queue has new events.
const nothing = -1

func (l *lastLook) wait(now time.Time) time.Duration {
	if l.due.IsZero() {
		return nothing
	}
	return max(l.due.Sub(now), 0)
}

func (l *lastLook) forget() {
	clear(l.quiet)
	l.snapshot = ""
}

func (l *lastLook) remember(at snapshot, queues []lookedAt, troubled troubles, now time.Time) {
	l.snapshot, l.due = at.text, time.Time{}
	for _, q := range queues {
		delete(l.quiet, q.ID)
		until := now.Add(q.Wait)
		if rest := troubled[q.Name].until; rest.After(until) {
			until = rest
		}
		switch {
		case q.Sequence != 0 && q.Wait > 0:
			l.quiet[q.ID] = quiet{q.Sequence, q.At, now.Add(min(q.Wait, quietAtMost))}
		case l.due.IsZero() || until.Before(l.due):
			l.due = until
		}
	}
}

// lookForTicks looks at the queues of these names, or at all when names is nil,
// but for idle ones to which nothing has come.
func lookForTicks(ctx context.Context, db DB, names []string, known map[int32]quiet) ([]lookedAt, error) {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	ids, sequences, ats := make([]string, 0, len(known)), make([]string, 0, len(known)), make([]string, 0, len(known))
	for id, q := range known {
		ids = append(ids, strconv.Itoa(int(id)))
		sequences = append(sequences, strconv.FormatUint(uint64(q.sequence), 10))
		ats = append(ats, strconv.FormatInt(q.at, 10))
	}
	rows, err := db.Query(ctx, lookSQL, exec, names, arrayText(ids), arrayText(sequences), arrayText(ats))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (q lookedAt, err error) {
		var wait float64
		var sequence int64
		err = row.Scan(&q.ID, &q.Name, &wait, &q.News, &sequence, &q.At, &q.Snapshot, &q.Table)
		q.Wait, q.Sequence = seconds(wait), uint32(sequence)
		return q, err
	})
}

// arrayText writes numbers as PostgreSQL writes an array.
func arrayText(numbers []string) string { return "{" + strings.Join(numbers, ",") + "}" }
