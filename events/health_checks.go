package events

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// queues looks at each queue by itself: its ticks, its rotation, its settings.
func (h *health) queues(ctx context.Context) error {
	for _, table := range []string{"queue", "tick", "subscription", "retry_queue"} {
		if !h.sees(table, "how queues are doing") {
			return nil
		}
	}
	queues, err := Queues(ctx, h.db)
	if err != nil {
		return err
	}
	var late []Finding
	ticked := 0
	for _, q := range queues {
		switch {
		case q.Paused:
			h.add(Finding{Code: CodePaused, Severity: Note, Queue: q.Name, Fix: settingSQL(q.Name, "ticker_paused", "false"),
				Text: fmt.Sprintf("ticks of queue %q are paused, so nothing is delivered", q.Name)})
		case q.External:
		default:
			ticked++
			if f, ok := h.tickLate(q); ok {
				late = append(late, f)
			}
			h.maxLag(q)
		}
		if q.HalfRotated && q.RotationAge > h.Step2Late {
			h.add(Finding{Code: CodeStep2, Severity: Critical, Queue: q.Name, Age: q.RotationAge, Fix: "select pgque.maint_rotate_tables_step2()",
				Text: fmt.Sprintf("the rotation of queue %q has waited %s for its second step; until then its tables only grow", q.Name, words(q.RotationAge))})
		}
	}
	if len(late) > 1 && len(late) == ticked {
		oldest := late[0]
		for _, f := range late {
			oldest.Age = max(oldest.Age, f.Age)
		}
		oldest.Queue, oldest.Text = "", fmt.Sprintf("none of %d queues was ticked lately, so nothing is delivered: no ticker runs", ticked)
		late = []Finding{oldest}
	}
	h.found = append(h.found, late...)
	return nil
}

// tickLate goes by the idle period, since nobody can tell when the new events
// were sent: the last tick of an idle queue may be that old. A rotation can take
// all the ticks of a queue without consumers; the next one comes right after it.
func (h *health) tickLate(q QueueInfo) (Finding, bool) {
	late := q.TickAge > q.IdlePeriod+h.TickLate
	if q.LastTick.IsZero() {
		late = q.RotationAge > h.TickLate
	}
	if h.standby || !late {
		return Finding{}, false
	}
	f := Finding{Code: CodeNoTick, Severity: Critical, Queue: q.Name, Age: q.TickAge, Fix: "pgque-vendor ticker",
		Text: fmt.Sprintf("queue %q was ticked %s ago, so nothing is delivered", q.Name, words(q.TickAge))}
	if q.LastTick.IsZero() {
		f.Text = fmt.Sprintf("queue %q has no tick, so nothing is delivered", q.Name)
	}
	return f, true
}

func (h *health) maxLag(q QueueInfo) {
	f := Finding{Code: CodeMaxLag, Queue: q.Name,
		Fix:  settingSQL(q.Name, "ticker_max_lag", fmt.Sprintf("%d ms", max(h.TickEvery.Milliseconds()/2, 1))),
		Text: fmt.Sprintf("events of queue %q may wait %s for a tick, although the ticker looks every %s", q.Name, q.MaxLag, h.TickEvery)}
	switch {
	case h.MaxLatency > 0 && q.MaxLag+h.TickEvery > h.MaxLatency:
		f.Severity = Warning
		h.add(f)
	case q.MaxLag > h.TickEvery/2:
		h.add(f)
	}
}

// has says whether there is a finding for the queue, or for all.
func (h *health) has(code, queue string) bool {
	return slices.ContainsFunc(h.found, func(f Finding) bool { return f.Code == code && (f.Queue == queue || f.Queue == "") })
}

// forget takes back a finding that another one explains.
func (h *health) forget(code, queue string) {
	h.found = slices.DeleteFunc(h.found, func(f Finding) bool { return f.Code == code && f.Queue == queue })
}

// consumers looks for those that do not go on, the more so where that keeps the
// tables of their queue from rotating.
func (h *health) consumers(ctx context.Context) error {
	if !h.visible["queue"] || !h.visible["subscription"] || !h.visible["tick"] || !h.sees("consumer", "how consumers are doing") {
		return nil
	}
	pinned, err := h.rotations(ctx)
	if err != nil {
		return err
	}
	consumers, err := Consumers(ctx, h.db, "")
	if err != nil {
		return err
	}
	for _, c := range consumers {
		f := Finding{Queue: c.Queue, Consumer: c.Name, Severity: Warning, Age: c.Active,
			Fix: fmt.Sprintf("start the consumer; or, if it is gone for good: select pgque.unsubscribe(%s, %s)", quoteText(c.Queue), quoteText(c.Name))}
		who := fmt.Sprintf("consumer %q of queue %q", c.Name, c.Queue)
		if c.Batch != 0 {
			who += fmt.Sprintf(" has had a batch open for %s", words(c.BatchAge))
		} else {
			who += fmt.Sprintf(" has taken nothing for %s", words(c.Active))
		}
		switch {
		case h.has(CodeNoTick, c.Queue): // it has no way to go on
			continue
		case pinned[[2]string{c.Queue, c.Name}]:
			f.Code, f.Severity = CodePinned, Critical
			f.Text = who + ", so the queue's tables cannot rotate and only grow"
		case c.Batch != 0 && c.BatchAge > h.Stalled:
			f.Code, f.Text = CodeBatchOpen, who+": its handler hangs, or its process is gone"
		case c.Batch == 0 && c.Pending > 0 && min(c.Active, c.Lag) > h.Stalled:
			f.Code, f.Text = CodeNotReceiving, fmt.Sprintf("%s while %d events wait", who, c.Pending)
		default:
			continue
		}
		h.add(f)
	}
	return nil
}

// rotations finds the rotations that are overdue. It returns the consumers that
// keep them, and reports those that nobody keeps.
func (h *health) rotations(ctx context.Context) (pinned map[[2]string]bool, err error) {
	rows, err := h.db.Query(ctx, `
		select q.queue_name, coalesce(c.co_name, ''), extract(epoch from now() - q.queue_switch_time - q.queue_rotation_period)::numeric
		  from pgque.queue q
		  left join (pgque.subscription s
		             join pgque.consumer c on c.co_id = s.sub_consumer
		             join pgque.tick t on t.tick_queue = s.sub_queue and t.tick_id = s.sub_last_tick)
		    on s.sub_queue = q.queue_id and pg_snapshot_xmin(t.tick_snapshot)::text::bigint <= q.queue_switch_step2
		 where q.queue_switch_step2 is not null
		   and q.queue_switch_time + q.queue_rotation_period + make_interval(secs => $1::float8) < now()
		 order by 1, 2`, exec, h.RotationLate.Seconds())
	if err != nil {
		return nil, err
	}
	pinned = map[[2]string]bool{}
	var queue, consumer string
	var late float64
	_, err = pgx.ForEachRow(rows, []any{&queue, &consumer, &late}, func() error {
		if consumer != "" {
			pinned[[2]string{queue, consumer}] = true
			return nil
		}
		if h.has(CodeNoTick, queue) { // the same ticker
			return nil
		}
		h.add(Finding{Code: CodeRotation, Severity: Warning, Queue: queue, Age: seconds(late), Fix: "pgque-vendor ticker",
			Text: fmt.Sprintf("the tables of queue %q should have been rotated %s ago: no ticker does the maintenance, or something holds a lock on them", queue, words(seconds(late)))})
		return nil
	})
	return pinned, err
}

func (h *health) retries(ctx context.Context) error {
	if !h.visible["queue"] || !h.visible["retry_queue"] {
		return nil
	}
	rows, err := h.db.Query(ctx, `
		select q.queue_name, count(*), extract(epoch from now() - min(r.ev_retry_after))::numeric
		  from pgque.retry_queue r join pgque.queue q on q.queue_id = r.ev_queue
		 where r.ev_retry_after < now() - make_interval(secs => $1::float8)
		 group by q.queue_name order by q.queue_name`, exec, h.RetryLate.Seconds())
	if err != nil {
		return err
	}
	var queue string
	var count int
	var late float64
	_, err = pgx.ForEachRow(rows, []any{&queue, &count, &late}, func() error {
		h.add(Finding{Code: CodeRetries, Severity: Critical, Queue: queue, Age: seconds(late), Fix: "pgque-vendor ticker",
			Text: fmt.Sprintf("%d retries of queue %q are overdue, the oldest for %s: no ticker moves them back, or not fast enough", count, queue, words(seconds(late)))})
		return nil
	})
	return err
}

func (h *health) deadLetters(ctx context.Context) error {
	if !h.visible["queue"] || !h.visible["consumer"] || !h.sees("dead_letter", "whether there are dead letters") {
		return nil
	}
	rows, err := h.db.Query(ctx, `
		select q.queue_name, c.co_name, count(*) filter (where d.dl_time > now() - make_interval(secs => $1::float8)), count(*),
		       extract(epoch from now() - max(d.dl_time))::numeric
		  from `+deadLetterTables+` group by q.queue_name, c.co_name
		having max(d.dl_time) > now() - make_interval(secs => $1::float8)
		 order by q.queue_name, c.co_name`, exec, h.DeadLetters.Seconds())
	if err != nil {
		return err
	}
	var queue, consumer string
	var fresh, all int
	var ago float64
	_, err = pgx.ForEachRow(rows, []any{&queue, &consumer, &fresh, &all, &ago}, func() error {
		h.add(Finding{Code: CodeDeadLetters, Severity: Warning, Queue: queue, Consumer: consumer, Age: seconds(ago),
			Text: fmt.Sprintf("consumer %q of queue %q gave up on %d events within %s, %d in all", consumer, queue, fresh, words(h.DeadLetters), all),
			Fix:  fmt.Sprintf("select * from pgque.dlq_inspect(%s)", quoteText(queue))})
		return nil
	})
	return err
}

func settingSQL(queue, name, value string) string {
	return fmt.Sprintf("select pgque.set_queue_config(%s, %s, %s)", quoteText(queue), quoteText(name), quoteText(value))
}

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// quoteText writes a string as SQL does.
func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// words is a duration as a person says it: two units at most.
func words(d time.Duration) string {
	day := 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d >= time.Second:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
