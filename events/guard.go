package events

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events/internal/crash"
)

// The crash guard. A batch that is open at the start was left by a process that
// died, perhaps because of one of its events; run as usual it would kill this
// process as well, for ever. So its events run one at a time, and before each a
// committed row books it for a retry far ahead, one attempt spent: if the process
// dies, that event alone has paid. When the handler returns, the booking goes.

// bookedFor is how long after the handler's limit a booking falls due. No handler
// of a living process may still run then.
const bookedFor = time.Hour

// isWreck says that the batch may have been left by a process that died: it was
// open, and this run has not opened it. When this run has, but lost the lease in
// between, another process may have died of it since; the booking tells.
func (r *run) isWreck(ctx context.Context, b *batch, open *int64) (bool, error) {
	switch {
	case open == nil:
		return false, nil
	case *open != r.ownBatch || *open == r.guarded:
		return true, nil
	case !r.shared || !r.can.settleAtOnce:
		return false, nil
	}
	ctx, cancel := withTimeout(ctx, r.batchTimeout(b, 0))
	defer cancel()
	var booked bool
	err := r.pool.QueryRow(ctx, `select exists (select from pgque.get_batch_events($1::bigint) e
		where exists (select from pgque.retry_queue r where r.ev_owner = $2::int and r.ev_id = e.ev_id)
			or exists (select from pgque.dead_letter d join pgque.subscription s on s.sub_queue = d.dl_queue_id and s.sub_consumer = d.dl_consumer_id
				where s.sub_id = $2::int and d.ev_id = e.ev_id))`, exec, b.id, b.subID).Scan(&booked)
	return booked, err
}

// book deletes the bookings of events that have run and books rec. It reports
// false when rec has a booking (or is a dead letter) already: it was running when
// an earlier process died, and is not run again in this batch.
func (r *run) book(ctx context.Context, b *batch, ran []int64, rec *record) (bool, error) {
	callCtx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	booked := false
	var due *int64 // in microseconds
	err := inTx(callCtx, r.pool, func(tx pgx.Tx) error {
		if err := r.lease.held(callCtx, tx); err != nil {
			return err
		}
		if err := r.unbook(callCtx, tx, b.id, ran); err != nil {
			return err
		}
		var exists bool
		err := tx.QueryRow(callCtx, `select exists (select from pgque.retry_queue where ev_owner = $1::int and ev_id = $2::bigint)
			or exists (select from pgque.dead_letter d join pgque.subscription s on s.sub_queue = d.dl_queue_id and s.sub_consumer = d.dl_consumer_id
				where s.sub_batch = $3::bigint and d.ev_id = $2::bigint),
			(select `+inMicroseconds("max(ev_retry_after)")+` from pgque.retry_queue where ev_owner = $1::int and ev_id = $2::bigint)`, exec, b.subID, rec.ID, b.id).Scan(&exists, &due)
		if err != nil || exists {
			return err
		}
		// Ours from here on, also when the answer to the commit is lost. Not before:
		// a booking that is there is a dead process's, and must stay.
		r.booked = append(slices.Clone(ran), rec.ID)
		booked = true
		if rec.attemptsSpent(b.maxRetries) {
			_, err = tx.Exec(callCtx, `select pgque.event_dead($1::bigint, $2::bigint, 'the process died while it handled this event', $3::timestamptz,
				$4::text::xid8, $5::int, $6::text, $7::text, $8::text, $9::text, $10::text, $11::text)`,
				exec, b.id, rec.ID, rec.Time, strconv.FormatUint(rec.txid, 10), rec.retry, rec.typ, text(rec.Payload), rec.extra1, rec.extra2, rec.extra3, rec.extra4)
			return err
		}
		_, err = tx.Exec(callCtx, `select pgque.event_retry_raw($1::text, $2::text, now() + $3::float8 * interval '1 second', $4::bigint, $5::timestamptz,
			$6::int, $7::text, $8::text, $9::text, $10::text, $11::text, $12::text)`,
			exec, r.queue, r.name, (r.cfg.HandlerTimeout + bookedFor).Seconds(), rec.ID, rec.Time,
			rec.Attempt, rec.typ, text(rec.Payload), rec.extra1, rec.extra2, rec.extra3, rec.extra4)
		return err
	})
	switch {
	case err == nil && booked:
		err = crash.At(ctx, crash.Booked)
	case err == nil && due != nil:
		r.cfg.Logger.Warn("an event was running when a process ended before it could settle; that has cost it an attempt, and it comes again later",
			"event", rec.ID, "type", rec.Type, "attempt", rec.Attempt, "due", time.UnixMicro(*due).Round(time.Second))
	case err == nil:
		r.cfg.Logger.Warn("an event was running at its last attempt when a process ended before it could settle; it is a dead letter",
			"event", rec.ID, "type", rec.Type, "attempt", rec.Attempt)
	}
	return booked, err
}

// unbook deletes the bookings of events that have run. What became of them is
// settled with the batch. Once that is so their rows are none of the guard's.
func (r *run) unbook(ctx context.Context, tx pgx.Tx, batch int64, ran []int64) error {
	if len(ran) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, `delete from pgque.retry_queue r using pgque.subscription s
		where s.sub_batch = $1::bigint and r.ev_owner = s.sub_id and r.ev_id = any($2::bigint[])`, exec, batch, ran)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `delete from pgque.dead_letter d using pgque.subscription s
		where s.sub_batch = $1::bigint and d.dl_queue_id = s.sub_queue and d.dl_consumer_id = s.sub_consumer and d.ev_id = any($2::bigint[])`,
		exec, batch, ran)
	return err
}

// letGo gives the lease up. After Abort it first deletes the booking of the event
// that ran: this process ends, but does not die of it. That is the last act of the
// transaction that is the lease, so nobody can have looked at the booking before,
// and a lease that was lost deletes nothing.
func (r *run) letGo() {
	defer r.lease.release()
	if len(r.booked) == 0 || !errors.Is(context.Cause(r.living), ErrAborted) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*lastMoment)
	defer cancel()
	if err := r.withdraw(ctx); err != nil {
		r.cfg.Logger.Warn("what the crash guard has booked stays booked: the event comes again later, with an attempt spent", "events", r.booked, "err", err)
	}
}

func (r *run) withdraw(ctx context.Context) error {
	if r.returned != nil {
		select {
		case <-r.returned:
		case <-time.After(lastMoment):
			return errors.New("its handler still runs")
		}
	}
	<-r.lease.done
	if err := r.unbook(ctx, r.lease.tx, r.guarded, r.booked); err != nil {
		return err
	}
	return r.lease.tx.Commit(ctx)
}

// text gives NULL for nil, where a []byte would be taken for bytea.
func text(data []byte) *string {
	if data == nil {
		return nil
	}
	s := string(data)
	return &s
}
