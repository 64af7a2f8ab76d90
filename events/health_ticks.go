package events

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ticksSeen is how many ticks of a queue are looked at: a quarter of an hour's where
// one comes each 250 ms. Looking takes about three milliseconds.
const ticksSeen = 4000

// ticks looks at the ticks as they are stored. A tick that is ahead of the
// server's own transactions came from another cluster, with a restore.
func (h *health) ticks(ctx context.Context) error {
	if !h.visible["queue"] || !h.visible["tick"] {
		return nil
	}
	rows, err := h.db.Query(ctx, `
		select q.queue_name,
		       bool_or(pg_snapshot_xmin(t.tick_snapshot) > pg_snapshot_xmax(pg_current_snapshot())
		               or q.queue_switch_step1 > pg_snapshot_xmax(pg_current_snapshot())::text::bigint),
		       array_agg(extract(epoch from now() - t.tick_time)::numeric order by t.tick_id desc)
		                filter (where t.backwards and not q.queue_external_ticker and t.tick_time > now() - interval '1 hour')
		  from pgque.queue q
		 cross join lateral (
		       select tick_id, tick_time, tick_snapshot,
		              tick_event_seq < lead(tick_event_seq) over w
		              or pg_snapshot_xmax(tick_snapshot) < pg_snapshot_xmax(lead(tick_snapshot) over w) as backwards
		         from (select * from pgque.tick where tick_queue = q.queue_id
		                order by tick_queue desc, tick_id desc limit $1::int) l
		       window w as (order by tick_id desc)) t
		 group by q.queue_name
		 order by q.queue_name`, exec, ticksSeen)
	if err != nil {
		return err
	}
	var queue string
	var restored bool
	var ages []float64
	_, err = pgx.ForEachRow(rows, []any{&queue, &restored, &ages}, func() error {
		switch {
		case restored:
			h.forget(CodeNoTick, queue)
			h.add(Finding{Code: CodeRestored, Severity: Critical, Queue: queue,
				Text: fmt.Sprintf("queue %q has state from another cluster, as after restoring a dump: it cannot be ticked, and a ticker that ticks all queues in one call stops", queue),
				Fix:  fmt.Sprintf("select pgque.drop_queue(%s, true); then make it and its subscriptions again (its undelivered events are lost)", quoteText(queue))})
		case len(ages) > 0:
			h.add(tickOrder(queue, ages))
		}
		return nil
	})
	return err
}

// tickOrder is the finding for a queue whose last hour has ticks out of order, of
// these ages in seconds, the newest first. It is critical while it goes on, which
// nobody can see: what can be seen is for how long all has been well.
func tickOrder(queue string, ages []float64) Finding {
	newest := max(seconds(ages[0]), 0)
	f := Finding{Code: CodeTickOrder, Severity: Critical, Queue: queue, Age: newest, Clears: calm(ages) - newest}
	if f.Clears <= 0 {
		f.Severity, f.Clears = Note, 0
		f.Text = fmt.Sprintf("ticks of queue %q came out of order, %d within the last hour, the newest %s ago and none since: tickers ran without a common lock, and events came twice", queue, len(ages), words(newest))
		f.Fix = "none, unless one comes again; then stop every ticker that is not pgque-vendor's"
		return f
	}
	f.Text = fmt.Sprintf("ticks of queue %q come out of order, %d within the last hour, the newest %s ago: tickers run without a common lock, and events come twice", queue, len(ages), words(newest))
	f.Fix = fmt.Sprintf("stop every ticker that is not pgque-vendor's, as with: select pgque.stop(); unless another comes, this is over in %s", words(f.Clears))
	return f
}

// calm is how long no tick may come out of order until it is over: a minute. Loops
// that meet only now and then, as two of almost the same period do, have longer
// pauses; then it is twice the longest one seen. Pauses of more than five minutes
// are taken for the time between two mishaps.
func calm(ages []float64) time.Duration {
	longest := time.Duration(0)
	for i := 1; i < len(ages); i++ {
		if pause := seconds(ages[i] - ages[i-1]); pause <= 5*time.Minute {
			longest = max(longest, pause)
		}
	}
	return max(time.Minute, 2*longest)
}
