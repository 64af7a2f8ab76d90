package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// waiting shows the retry queue: event, count, and whole seconds until due.
const waiting = `select ev_id, ev_retry, ceil(extract(epoch from ev_retry_after - now()))::int from pgque.retry_queue order by ev_owner, ev_id`

var retryFacts = []fact{
	// Of the message nack reads msg_id and nothing else; a second nack says 1
	// too, and the first delay stands.
	{"nack", func(t *testing.T, r *release) {
		r.skipOld(t, "nack believes the whole message, and its last delay wins")
		s := r.open(t)
		s.queue("q", "a")
		ids := s.send("q", 2)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.rows(`begin`) // now() stands still
		s.want("1", `select pgque.nack($1::bigint,
			row($2::bigint, -1, 'forged', 'forged', 99, now(), 'f', 'f', 'f', 'f')::pgque.message, '10 seconds', 'why')`, batch, ids[0])
		s.want("1", `select pgque.nack($1::bigint,
			row($2::bigint, null, null, null, null, null, null, null, null, null)::pgque.message, '1 hour', 'why')`, batch, ids[0])
		s.want(ids[0]+"|1|10", waiting)
		s.want("t|1|-|-", `select ev_type, ev_data, ev_extra1, ev_txid from pgque.retry_queue`)
		s.rows(`commit`)
		s.fails("P0001", "msg_id 999 not found in batch "+batch, `select pgque.nack($1::bigint,
			row(999, null, null, null, null, null, null, null, null, null)::pgque.message)`, batch)
	}},

	// Delays are whole seconds.
	{"rounding", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		delays := []struct{ delay, seconds string }{{"0.499", "0"}, {"0.5", "1"}, {"1.499", "1"}, {"1.5", "2"}, {"3600", "3600"}}
		ids := s.send("q", len(delays))
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.rows(`begin`)
		for i, d := range delays {
			s.nack(batch, ids[i], d.delay+" seconds", "")
			s.want(d.seconds, `select extract(epoch from ev_retry_after - now())::int from pgque.retry_queue where ev_id = $1::bigint`, ids[i])
		}
		s.rows(`rollback`)
	}},

	// An event that comes back keeps its id, and takes a number all the same: without
	// one no tick would be due for it.
	{"takes a number", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		ids := s.send("q", 1)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.nack(batch, ids[0], "0 seconds", "")
		s.one(`select pgque.ack($1::bigint)`, batch)
		before := s.one(`select pg_sequence_last_value(queue_event_seq::regclass) from pgque.queue`)
		s.want("1", `select pgque.maint_retry_events()`)
		s.want("1", `select pg_sequence_last_value(queue_event_seq::regclass) - $1::bigint from pgque.queue`, before)
	}},

	// Only the consumer that sent it back gets it again, with its old id and
	// time and a count.
	{"for one consumer", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		ids := s.send("q", 2)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		sent := s.one(`select created_at from pgque.receive('q', 'a', 1)`)
		s.nack(batch, ids[0], "1 second", "")
		s.one(`select pgque.ack($1::bigint)`, batch)
		s.redeliver("q")
		s.want(ids[0]+"|t|1|1|"+sent, `select msg_id, type, payload, retry_count, created_at from pgque.receive('q', 'a')`)
		batch, payloads := s.receive("q", "b")
		s.one(`select pgque.ack($1::bigint)`, batch)
		_, more := s.receive("q", "b")
		if join(payloads) != "1,2" || len(more) != 0 {
			t.Errorf("the other consumer gets %q and then %q", payloads, more)
		}
	}},

	// max_retries NULL means 5: six deliveries, then the dead letter with the
	// last reason.
	{"six deliveries", func(t *testing.T, r *release) {
		r.skipOld(t, "nack believes the message's retry_count")
		s := r.open(t)
		s.queue("q", "a")
		id := s.send("q", 1)[0]
		s.tick("q")
		var counts []string
		for n := 1; ; n++ {
			rows := s.rows(`select batch_id, retry_count from pgque.receive('q', 'a')`)
			if len(rows) == 0 || n > 10 {
				break
			}
			batch, count, _ := strings.Cut(rows[0], "|")
			counts = append(counts, count)
			s.nack(batch, id, "1 second", fmt.Sprintf("failure %d", n))
			s.one(`select pgque.ack($1::bigint)`, batch)
			s.redeliver("q")
		}
		if join(counts) != "-,1,2,3,4,5" {
			t.Errorf("retry counts = %q", counts)
		}
		s.want(id+"|5|failure 6|t|1", `select ev_id, ev_retry, dl_reason, ev_type, ev_data from pgque.dead_letter`)
		s.want("0", `select count(*) from pgque.retry_queue`)
	}},

	{"max_retries 0", func(t *testing.T, r *release) {
		r.skipOld(t, "nack writes the message's fields")
		s := r.open(t)
		s.queue("q", "a")
		s.one(`select pgque.set_queue_config('q', 'max_retries', '0')`)
		id := s.send("q", 1)[0]
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.nack(batch, id, "1 second", "at once")
		s.want(id+"|at once", `select ev_id, dl_reason from pgque.dead_letter`)
		s.want("0", `select count(*) from pgque.retry_queue`)
	}},

	// Ten rows a call for the whole database, the longest due first, and not
	// part of maint(): hence the library's pump.
	{"ten a call", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.queue("other", "a")
		s.rows(`select pgque.event_retry_raw('q', 'a', now() - interval '2 hours' - g * interval '1 second', g, now(), 1, 't', 'd', null, null, null, null)
			from generate_series(1, 25) g`)
		s.one(`select pgque.event_retry_raw('other', 'a', now() - interval '1 hour', 1, now(), 1, 't', 'd', null, null, null, null)`)
		s.one(`select pgque.event_retry_raw('q', 'a', now() + interval '1 hour', 99, now(), 1, 't', 'd', null, null, null, null)`)
		s.one(`select pgque.maint()`)
		s.want("0", `select count(*) from pgque.event_1`)
		s.want("10", `select pgque.maint_retry_events()`)
		s.want("16|25", `select min(ev_id), max(ev_id) from pgque.event_1`)
		s.want("10", `select pgque.maint_retry_events()`)
		s.want("0", `select count(*) from pgque.event_2`) // starved by the other queue so far
		s.want("6", `select pgque.maint_retry_events()`)
		s.want("0", `select pgque.maint_retry_events()`)
		s.want("1", `select count(*) from pgque.event_2`)
		s.want("99", `select ev_id from pgque.retry_queue`)
	}},

	{"event_retry", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		ids := s.send("q", 3)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.rows(`begin`)
		s.want("1", `select pgque.event_retry($1::bigint, $2::bigint, 5)`, batch, ids[0])
		s.want("0", `select pgque.event_retry($1::bigint, $2::bigint, 50)`, batch, ids[0])
		s.want("1", `select pgque.event_retry($1::bigint, $2::bigint, now() + interval '7 seconds')`, batch, ids[1])
		s.want(ids[0]+"|1|5\n"+ids[1]+"|1|7", waiting)
		if !r.isOld() { // where it fails for any batch
			s.want("1", `select pgque.batch_retry($1::bigint, 9)`, batch)
			s.want(ids[0]+"|1|5\n"+ids[1]+"|1|7\n"+ids[2]+"|1|9", waiting)
		}
		s.fails("P0001", "event not found", `select pgque.event_retry($1::bigint, 999, 5)`, batch)
	}},

	// The library settles with it: it takes the count as given, needs no batch,
	// keeps id and time, and says by 23505 on rq_pkey that the row is there.
	{"event_retry_raw", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		const raw = `select pgque.event_retry_raw('q', 'a', now() + interval '1.25 seconds', $1::bigint, '2020-02-20T20:20:20Z', $2::int, 't', 'd', 'e1', 'e2', 'e3', 'e4')`
		s.want("7", raw, "7", "3")
		s.fails("23505", "", raw, "7", "3")
		var constraint string
		_, err := s.try(raw, "7", "3")
		if pgErr := pgError(err); pgErr != nil {
			constraint = pgErr.ConstraintName
		}
		if constraint != "rq_pkey" {
			t.Errorf("a second booking fails on %q, want rq_pkey", constraint)
		}
		s.want("t", `select ev_retry_after > now() and ev_retry_after < now() + interval '2 seconds' from pgque.retry_queue`)
		s.want("8", raw, "8", nil)
		s.want("1", `select pgque.event_retry_raw('q', 'b', now(), null, now(), null, 't', 'd', null, null, null, null)`) // a new id
		s.fails("P0001", "consumer not registered", strings.Replace(raw, "'a'", "'stranger'", 1), "7", "3")
		s.redeliver("q")
		s.want("7|3|t|d|e1|e2|e3|e4|t\n8|-|t|d|e1|e2|e3|e4|t", `select msg_id, retry_count, type, payload, extra1, extra2, extra3, extra4,
			created_at = '2020-02-20T20:20:20Z' from pgque.receive('q', 'a')`)
		s.want("1", `select msg_id from pgque.receive('q', 'b')`)
	}},

	// nack, then a crash before ack: the batch comes again and so does the
	// retry. Settling in one transaction avoids that.
	{"nack and ack are two steps", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		ids := s.send("q", 1)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.nack(batch, ids[0], "1 second", "")
		s.redeliver("q") // no ack: the process died here
		s.want(batch, `select batch_id from pgque.receive('q', 'a')`)
		s.one(`select pgque.ack($1::bigint)`, batch)
		s.want(ids[0]+"|1", `select msg_id, retry_count from pgque.receive('q', 'a')`)

		batch, _ = s.receive("q", "a")
		s.rows(`begin`)
		s.nack(batch, ids[0], "1 second", "")
		s.one(`select pgque.ack($1::bigint)`, batch)
		s.rows(`rollback`)
		s.want("0", `select count(*) from pgque.retry_queue`)
		s.want(batch, `select sub_batch from pgque.subscription`)
	}},

	// Set-wise settling: one statement for any number of failures.
	{"in one statement", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.one(`select pgque.send_batch('q', 't', (select array_agg(g::text order by g) from generate_series(1, 500) g))`)
		s.tick("q")
		batch := s.one(`select pgque.next_batch('q', 'a')`)
		s.rows(`begin`)
		s.want("50|50", `select count(r), count(d) from (
			select case when ev_id % 2 = 0 then pgque.event_retry_raw('q', 'a', now(), ev_id, ev_time, coalesce(ev_retry, 0) + 1, ev_type, ev_data,
				ev_extra1, ev_extra2, ev_extra3, ev_extra4) end as r,
			case when ev_id % 2 = 1 then pgque.event_dead($1::bigint, ev_id, 'r', ev_time, ev_txid::text::xid8, ev_retry, ev_type, ev_data,
				ev_extra1, ev_extra2, ev_extra3, ev_extra4) end as d
			from pgque.get_batch_events($1::bigint) where ev_id % 5 = 0) x`, batch)
		s.want("1", `select pgque.ack($1::bigint)`, batch)
		s.rows(`commit`)
		s.want("50|50", `select (select count(*) from pgque.retry_queue), (select count(*) from pgque.dead_letter)`)
	}},
}

var deadFacts = []fact{
	{"event_dead", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		ids := s.send("q", 1)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		const dead = `select pgque.event_dead($1::bigint, $2::bigint, $3, '2020-02-20T20:20:20Z', '42'::xid8, 4, 't', 'd', 'e1', 'e2', 'e3', 'e4')`
		s.want("1", dead, batch, ids[0], "first")
		s.want("first|4|42|t|d|e1|e2|e3|e4|t", `select dl_reason, ev_retry, ev_txid, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4,
			ev_time = '2020-02-20T20:20:20Z' from pgque.dead_letter`)
		s.want("1", dead, batch, ids[0], "second") // the first one stands
		if !r.isOld() {
			s.want("first", `select dl_reason from pgque.dead_letter`)
		}
	}},

	// What `dlq` does: to all, as upstream's replay goes, or back to the one
	// consumer that failed.
	{"replay to all", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		kill(s, "a", 2)
		s.want("2", `select count(*) from pgque.dlq_inspect('q')`)
		s.want("1", `select count(*) from pgque.dlq_inspect('q', 1)`)
		id := s.one(`select pgque.dlq_replay(min(dl_id)) from pgque.dead_letter`)
		s.want("1", `select count(*) from pgque.dead_letter`)
		s.fails("P0001", "dead letter entry not found: 999", `select pgque.dlq_replay(999)`)
		if r.isOld() {
			s.want("1", `select pgque.dlq_replay_all('q')`)
		} else {
			s.want("1|0|-", `select replayed, failed, first_error from pgque.dlq_replay_all('q')`)
		}
		s.tick("q")
		for _, consumer := range []string{"a", "b"} {
			_, payloads := drain(s, "q", consumer)
			if want := map[string]string{"a": "1,2", "b": "1,2,1,2"}[consumer]; join(payloads) != want {
				t.Errorf("%s gets %q after the replay, want %s", consumer, payloads, want)
			}
		}
		s.want("-", `select ev_retry from pgque.event_1 where ev_id = $1::bigint`, id)
	}},

	{"replay to one", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		kill(s, "a", 1)
		drain(s, "q", "b")
		s.rows(`begin`)
		s.want("1", `with gone as (delete from pgque.dead_letter returning *)
			select pgque.event_retry_raw(queue_name, co_name, now(), ev_id, ev_time, null, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4)
			from gone join pgque.queue on queue_id = dl_queue_id join pgque.consumer on co_id = dl_consumer_id`)
		s.rows(`commit`)
		s.redeliver("q")
		s.want("1|-", `select msg_id, retry_count from pgque.receive('q', 'a')`)
		if _, payloads := drain(s, "q", "b"); len(payloads) != 0 {
			t.Errorf("the other consumer gets %q", payloads)
		}
	}},

	{"purge", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		kill(s, "a", 3)
		s.rows(`update pgque.dead_letter set dl_time = now() - interval '31 days' where ev_id = 1`)
		s.rows(`update pgque.dead_letter set dl_time = now() - interval '2 days' where ev_id = 2`)
		s.want("1", `select pgque.dlq_purge('q')`)
		s.want("1", `select pgque.dlq_purge('q', '1 day')`)
		s.want("3", `select ev_id from pgque.dead_letter`)
	}},
}

// kill sends n events and makes all of them dead letters of a consumer.
func kill(s *session, consumer string, n int) {
	s.t.Helper()
	s.send("q", n)
	s.tick("q")
	batch, _ := s.receive("q", consumer)
	s.rows(`select pgque.event_dead($1::bigint, ev_id, 'r', ev_time, null, ev_retry, ev_type, ev_data) from pgque.get_batch_events($1::bigint)`, batch)
	s.one(`select pgque.ack($1::bigint)`, batch)
}

// drain receives and acks until nothing is left.
func drain(s *session, queue, consumer string) (batches int, payloads []string) {
	s.t.Helper()
	for {
		batch := s.one(`select pgque.next_batch($1, $2)`, queue, consumer)
		if batch == "-" {
			return batches, payloads
		}
		payloads = append(payloads, s.rows(`select ev_data from pgque.get_batch_events($1::bigint)`, batch)...)
		s.one(`select pgque.finish_batch($1::bigint)`, batch)
		batches++
	}
}
