package events

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// Settled is observed when a batch was finished, or could not be because it was
// no longer ours (Stale).
type Settled struct {
	Queue, Consumer string
	Batch           int64
	Events          int // that were read
	Retried         int // nacked, to be retried
	Dead            int // dead letters, also of events whose attempts were spent
	HandedBack      int // not started, or ended with the grace; they come again
	Stale           bool
	Duration        time.Duration // from the opening of the batch
}

func (Settled) observation() {}

// ending is everything that becomes of a batch.
type ending struct {
	results []result // only those that were not done or skipped
	// restAfter is the last id of which something was read: later events of the
	// batch were never seen and go back. noRest when all were seen.
	restAfter int64
	// unbook are events whose booking by the crash guard is to go: they ran.
	unbook []int64
}

// settle writes all outcomes and the ack in one transaction.
func (r *run) settle(ctx context.Context, b *batch, end *ending, report *Settled) error {
	ctx, cancel := withTimeout(ctx, r.batchTimeout(b, len(end.results)))
	defer cancel()
	if len(end.results) == 0 && end.restAfter == noRest && len(end.unbook) == 0 {
		return r.ack(ctx, b)
	}
	err := inTx(ctx, r.pool, func(tx pgx.Tx) error {
		if err := r.lease.held(ctx, tx); err != nil {
			return err
		}
		if err := r.unbook(ctx, tx, b.id, end.unbook); err != nil {
			return err
		}
		if len(end.results) > 0 || end.restAfter != noRest {
			nack := r.nackSet
			if !r.can.settleAtOnce {
				nack = r.nackEach
			}
			if err := nack(ctx, tx, b, end, report); err != nil {
				return err
			}
		}
		var acked int
		if err := tx.QueryRow(ctx, "select pgque.ack($1::bigint)", exec, b.id).Scan(&acked); err != nil {
			return err
		}
		if acked == 0 {
			return ErrStaleBatch
		}
		return crash.At(ctx, crash.Settled)
	})
	if err == nil {
		err = crash.At(ctx, crash.Acked)
	}
	return err
}

// ackSQL finishes a batch while the lease is held. It tells openAfterSQL whether it
// has, and those who read a batch that nothing is open so far.
const ackSQL = `select pg_catalog.set_config('pgque_events.acked',
		coalesce((case when ` + heldSQL + ` then pgque.ack($2::text::bigint) end)::text, ''), true),
	pg_catalog.set_config('pgque_events.batch', '', false)`

// ack is settle for the common case that every event was done. When it is known
// that another batch is waiting that one is opened in the same transaction, which
// saves a commit, and read after it.
func (r *run) ack(ctx context.Context, b *batch) error {
	if err := crash.At(ctx, crash.Settled); err != nil {
		return err // before the commit, as there is no time between the two here
	}
	acked := ""
	statements := []statement{{sql: ackSQL, args: []string{r.lease.heldArg(), strconv.FormatInt(b.id, 10)},
		row: func(row [][]byte) error { acked = string(row[0]); return nil }}}
	var next *opening
	if b.moreTicks && r.can.settleAtOnce && !r.single && r.stop.Err() == nil {
		next = r.opening(openAfterSQL, b.waiting())
	}
	var committed bool
	var err error
	if next != nil {
		committed, err = oneTripAnd(ctx, r.pool, append(statements, next.open), next.read...)
	}
	if next == nil || !committed && sqlState(err) != "" { // the ack is not to fail because of the next batch
		next = nil
		committed, err = oneTripAnd(ctx, r.pool, statements)
	}
	switch {
	case !committed:
		return err
	case acked == "":
		r.lease.end(ErrLeaseLost)
		return ErrLeaseLost
	case acked == "0":
		return ErrStaleBatch
	}
	if next != nil {
		if r.next = next.end(err); r.next != nil {
			r.ownBatch, r.shared = r.next.id, false
		}
	}
	return crash.At(ctx, crash.Acked)
}

// nackSet goes over the batch once, whatever the number of failures: a nack by
// itself takes 2.4 s in a batch of 50,000. Rows that are there already (of an
// earlier try) count as done.
const nackSetSQL = `
with ended as (
	select * from unnest($2::bigint[], $3::text[], $4::float8[], $5::text[]) as f(id, outcome, delay, reason)
), sub as (
	select s.sub_id, s.sub_queue, s.sub_consumer, coalesce(q.queue_max_retries, 5) as max_retries
	from pgque.subscription s join pgque.queue q on q.queue_id = s.sub_queue
	where s.sub_batch = $1::bigint
), ev as materialized (
	select distinct on (e.ev_id) e.*, coalesce(f.outcome, 'handed-back') as outcome, coalesce(f.delay, 0) as delay, f.reason,
		coalesce(e.ev_retry, 0) >= sub.max_retries as spent,
		sub.sub_id, sub.sub_queue, sub.sub_consumer
	from pgque.get_batch_events($1::bigint) e
	cross join sub
	left join ended f on f.id = e.ev_id
	where f.id is not null or e.ev_id > $6::bigint
), retried as materialized (
	select ev.outcome, pgque.event_retry_raw($7::text, $8::text, now() + ev.delay * interval '1 second', ev.ev_id, ev.ev_time,
		case ev.outcome when 'handed-back' then ev.ev_retry else coalesce(ev.ev_retry, 0) + 1 end,
		ev.ev_type, ev.ev_data, ev.ev_extra1, ev.ev_extra2, ev.ev_extra3, ev.ev_extra4) as id
	from ev
	where (ev.outcome = 'handed-back' or ev.outcome = 'retried' and not ev.spent)
	and not exists (select from pgque.retry_queue r where r.ev_owner = ev.sub_id and r.ev_id = ev.ev_id)
	and not (ev.outcome = 'handed-back' and exists (select from pgque.dead_letter d
		where d.dl_queue_id = ev.sub_queue and d.dl_consumer_id = ev.sub_consumer and d.ev_id = ev.ev_id))
), dead as materialized (
	select pgque.event_dead($1::bigint, ev.ev_id, coalesce(ev.reason, 'max retries exceeded'), ev.ev_time, ev.ev_txid::text::xid8,
		ev.ev_retry, ev.ev_type, ev.ev_data, ev.ev_extra1, ev.ev_extra2, ev.ev_extra3, ev.ev_extra4) as n
	from ev
	where ev.outcome = 'dead' or ev.outcome = 'retried' and ev.spent
)
select (select count(distinct ev.ev_id) from ev join ended on ended.id = ev.ev_id),
	(select count(id) from retried where outcome = 'retried'),
	(select count(id) from retried where outcome = 'handed-back'),
	(select count(n) from dead)`

func (r *run) nackSet(ctx context.Context, tx pgx.Tx, b *batch, end *ending, report *Settled) error {
	n := len(end.results)
	ids, outcomes, delays, reasons := make([]int64, n), make([]string, n), make([]float64, n), make([]string, n)
	distinct := make(map[int64]struct{}, n)
	for i, res := range end.results {
		ids[i], outcomes[i], delays[i], reasons[i] = res.id, string(res.outcome), res.delay.Seconds(), res.reason
		distinct[res.id] = struct{}{}
	}
	var found int
	err := tx.QueryRow(ctx, nackSetSQL, exec, b.id, ids, outcomes, delays, reasons, end.restAfter, r.queue, r.name).
		Scan(&found, &report.Retried, &report.HandedBack, &report.Dead)
	if err != nil || found == len(distinct) {
		return err
	}
	var open bool
	err = tx.QueryRow(ctx, "select exists (select from pgque.subscription where sub_batch = $1::bigint)", exec, b.id).Scan(&open)
	if err == nil && !open {
		return ErrStaleBatch
	}
	if err == nil {
		err = fmt.Errorf("batch %d holds %d of the %d events to settle", b.id, found, len(distinct))
	}
	return err
}

// nackEach is all that pgque_reader may do. There is no handing back without an
// attempt, so the caller never asks for it here beyond what attempts allow.
func (r *run) nackEach(ctx context.Context, tx pgx.Tx, b *batch, end *ending, report *Settled) error {
	for _, res := range end.results {
		_, err := tx.Exec(ctx, `select pgque.nack($1::bigint,
			row($2::bigint, $1::bigint, null, null, null, null, null, null, null, null)::pgque.message,
			$3::float8 * interval '1 second', $4::text)`, exec, b.id, res.id, res.delay.Seconds(), res.reason)
		if err != nil {
			return err
		}
		if res.outcome == OutcomeHandedBack {
			report.HandedBack++
		} else {
			report.Retried++
		}
	}
	return nil
}
