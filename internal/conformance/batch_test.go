package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

var batchFacts = []fact{
	// The most important fact: receive cuts a batch, ack ends all of it. What
	// receive did not return is gone, without a retry, a dead letter, a word.
	{"ack ends what receive did not return", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.send("q", 50)
		s.tick("q")
		first := s.rows(`select msg_id, batch_id from pgque.receive('q', 'a', 20)`)
		if len(first) != 20 || !strings.HasPrefix(first[0], "1|") || !strings.HasPrefix(first[19], "20|") {
			t.Errorf("receive(20) gives %q", first)
		}
		s.want(strings.Join(first, "\n"), `select msg_id, batch_id from pgque.receive('q', 'a', 20)`) // no paging
		_, batch, _ := strings.Cut(first[0], "|")
		s.want("1", `select pgque.ack($1::bigint)`, batch)
		s.tick("q")
		s.want("", `select msg_id from pgque.receive('q', 'a', 20)`)
		s.want("0", `select count(*) from pgque.retry_queue`)
	}},

	{"independent consumers", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		s.send("q", 2)
		s.tick("q")
		batchA, a := s.receive("q", "a")
		s.one(`select pgque.ack($1::bigint)`, batchA)
		batchB, b := s.receive("q", "b")
		if join(a) != "1,2" || join(b) != "1,2" || batchA == batchB {
			t.Errorf("a got %q in batch %s, b got %q in batch %s", a, batchA, b, batchB)
		}
	}},

	// No owner and no time limit: the open batch comes again, at once, with
	// the same id and without a count. A handler that kills its process loops;
	// hence the library's crash guard and its lease.
	{"redelivery", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.send("q", 2)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.tick("q") // also when there is a newer one
		s.another().want("1|"+batch+"|-\n2|"+batch+"|-", `select msg_id, batch_id, retry_count from pgque.receive('q', 'a')`)
	}},

	// The only fencing there is: the second ack returns 0 with a warning, a
	// late nack fails.
	{"fencing", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		ids := s.send("q", 1)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.want("1", `select pgque.ack($1::bigint)`, batch)
		for _, call := range []string{"ack", "finish_batch"} {
			s.want("0", `select pgque.`+call+`($1::bigint)`, batch)
			if len(*s.warnings) != 1 {
				t.Errorf("%s of a finished batch warns %q", call, *s.warnings)
			}
		}
		s.fails("P0001", "batch not found: "+batch, `select pgque.nack($1::bigint,
			row($2::bigint, null, null, null, null, null, null, null, null, null)::pgque.message)`, batch, ids[0])
		s.fails("P0001", "batch not found", `select * from pgque.get_batch_events($1::bigint)`, batch)
		s.fails("P0001", "event not found", `select pgque.event_retry($1::bigint, $2::bigint, 1)`, batch, ids[0])
		s.fails("P0001", "batch not found: "+batch, `select pgque.event_dead($1::bigint, 1, 'r', now(), null, null, 't', 'd')`, batch)
		s.fails("P0001", "batch_retry: batch "+batch+" not found", `select pgque.batch_retry($1::bigint, 1)`, batch)
		s.want("-|-", `select queue_name, tick_id from pgque.get_batch_info($1::bigint)`, batch)
	}},

	// Two processes with one name: who waits for the other's ack is told of
	// corruption. It means nothing; the next call works. The library tries
	// again on exactly this text.
	{"receive that waits for an ack", func(t *testing.T, r *release) {
		r.skipOld(t, "receive does not wait")
		s := r.open(t)
		s.queue("q", "a")
		s.send("q", 1)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.tick("q")
		s.rows(`begin`)
		s.one(`select pgque.ack($1::bigint)`, batch)
		other := s.another()
		failed := make(chan error, 1)
		go func() {
			_, err := other.conn.Exec(context.Background(), `select * from pgque.receive('q', 'a')`)
			failed <- err
		}()
		s.another().untilSomebodyWaits()
		s.rows(`commit`)
		err := pgError(<-failed)
		if err == nil || err.Code != "P0001" || err.Message != "PgQ corruption: Consumer a on queue q does not see tick <NULL>" {
			t.Errorf("receive: %v, want the spurious corruption", err)
		}
		other.rows(`select * from pgque.receive('q', 'a')`)
	}},

	{"not subscribed", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		for _, call := range []string{"receive('q', 'a')", "next_batch('q', 'a')", "next_batch_info('q', 'a')", "receive('missing', 'a')"} {
			s.fails("P0001", "Not subscriber to queue: "+strings.Split(call, "'")[1]+"/a", `select * from pgque.`+call)
		}
	}},

	// An empty batch is closed by receive and looks like none; next_batch tells
	// them apart, and receive then reads the batch that next_batch opened. That
	// is the reader's way, who may not call get_batch_events.
	{"empty batches", func(t *testing.T, r *release) {
		r.skipOld(t, "receive leaves an empty batch open")
		s := r.open(t)
		s.queue("q", "a")
		s.want("-", `select pgque.next_batch('q', 'a')`)
		s.want("-|-|-", `select batch_id, cur_tick_id, prev_tick_id from pgque.next_batch_info('q', 'a')`)
		s.tick("q")
		s.want("", `select * from pgque.receive('q', 'a')`)
		s.want("2|-|-", `select sub_last_tick, sub_batch, sub_next_tick from pgque.subscription`)
		s.tick("q")
		empty := s.one(`select pgque.next_batch('q', 'a')`)
		if empty == "-" {
			t.Fatal("next_batch does not open an empty batch")
		}
		s.want("1", `select pgque.finish_batch($1::bigint)`, empty)

		s.send("q", 1)
		s.tick("q")
		full := s.one(`select pgque.next_batch('q', 'a')`)
		s.want("1", `select count(*) from pgque.receive('q', 'a') where batch_id = $1::bigint`, full)
		s.want(full+"|4|3|t", `select batch_id, cur_tick_id, prev_tick_id, cur_tick_event_seq > prev_tick_event_seq
			from pgque.next_batch_info('q', 'a')`)
	}},

	// All of a batch, in the order of ids, in a statement of its own each time:
	// how the library reads in chunks.
	{"get_batch_events", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.one(`select pgque.send_batch('q', 't', (select array_agg(g::text order by g) from generate_series(1, 1000) g))`)
		s.tick("q")
		batch := s.one(`select pgque.next_batch('q', 'a')`)
		s.want("t", `select array_agg(ev_data::int) = (select array_agg(g) from generate_series(1, 1000) g) from pgque.get_batch_events($1::bigint)`, batch)
		s.want("501\n502", `select ev_id from pgque.get_batch_events($1::bigint) where ev_id > 500 order by ev_id limit 2`, batch)
		s.want("1|-|t|1|-|-|-|-|t", `select ev_id, ev_retry, ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4, ev_txid > 0
			from pgque.get_batch_events($1::bigint) limit 1`, batch)
		s.fails("P0001", "batch not found", `select * from pgque.get_batch_events(999)`)
		s.want("bigint", `select distinct pg_typeof(ev_txid) from pgque.get_batch_events($1::bigint)`, batch)
	}},

	{"get_batch_cursor", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.send("q", 5)
		s.tick("q")
		batch := s.one(`select pgque.next_batch('q', 'a')`)
		s.rows(`begin`)
		s.want("1\n2", `select ev_id from pgque.get_batch_cursor($1::bigint, 'c', 2)`, batch)
		if got := s.rows(`fetch 10 from c`); len(got) != 3 || !strings.HasPrefix(got[0], "3|") {
			t.Errorf("the cursor goes on with %q", got)
		}
		s.rows(`commit`)
	}},

	// An event of a long transaction comes late, with a lower id than what was
	// delivered before. Nothing may be skipped by id across batches.
	{"late commit", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		long := s.another()
		long.rows(`begin`)
		id := long.send("q", 1)[0]
		s.send("q", 2)
		s.tick("q")
		batch, payloads := s.receive("q", "a")
		if join(payloads) != "1,2" {
			t.Errorf("before the commit: %q", payloads)
		}
		s.one(`select pgque.ack($1::bigint)`, batch)
		long.rows(`commit`)
		s.tick("q")
		s.want(id, `select msg_id from pgque.receive('q', 'a')`)
	}},

	// A tick does not see its own transaction.
	{"tick in the sender's transaction", func(t *testing.T, r *release) {
		r.skipOld(t, "receive leaves an empty batch open")
		s := r.open(t)
		s.queue("q", "a")
		s.rows(`begin`)
		s.send("q", 1)
		s.tick("q")
		s.rows(`commit`)
		if _, payloads := s.receive("q", "a"); len(payloads) != 0 {
			t.Errorf("the tick of the sender's transaction gives %q", payloads)
		}
		s.tick("q")
		if _, payloads := s.receive("q", "a"); join(payloads) != "1" {
			t.Errorf("the next tick gives %q", payloads)
		}
	}},

	// Opening and finishing are part of the caller's transaction.
	{"transaction", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.send("q", 1)
		s.tick("q")
		s.rows(`begin`)
		batch, _ := s.receive("q", "a")
		s.rows(`rollback`)
		s.want("1|-|-", `select sub_last_tick, sub_batch, sub_next_tick from pgque.subscription`)
		again, _ := s.receive("q", "a")
		if again == batch {
			t.Errorf("the batch after a rollback has the old id %s", batch)
		}
		s.rows(`begin`)
		s.one(`select pgque.ack($1::bigint)`, again)
		s.rows(`rollback`)
		s.want("1|"+again+"|2", `select sub_last_tick, sub_batch, sub_next_tick from pgque.subscription`)
	}},

	// Each tick is a batch of its own, in order.
	{"one batch a tick", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		for i := range 3 {
			s.one(`select pgque.send('q', 't', $1::text)`, fmt.Sprint(i))
			s.tick("q")
		}
		for i := range 3 {
			batch, payloads := s.receive("q", "a")
			if join(payloads) != fmt.Sprint(i) {
				t.Errorf("batch %d: %q", i, payloads)
			}
			s.one(`select pgque.ack($1::bigint)`, batch)
		}
	}},

	{"next_batch_custom", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b", "c")
		for range 3 {
			s.send("q", 2)
			s.tick("q")
		}
		s.want("-", `select batch_id from pgque.next_batch_custom('q', 'a', '1 hour', null, null)`)
		s.want("-", `select batch_id from pgque.next_batch_custom('q', 'a', null, 1000000, null)`)
		s.want("1|2", `select prev_tick_id, cur_tick_id from pgque.next_batch_custom('q', 'b', null, null, null)`)
		s.want("1|3", `select prev_tick_id, cur_tick_id from pgque.next_batch_custom('q', 'a', null, 3000, null)`)
		s.rows(`update pgque.tick set tick_time = tick_time + interval '1 hour' where tick_id = 4`)
		s.want("1|4", `select prev_tick_id, cur_tick_id from pgque.next_batch_custom('q', 'c', null, null, '30 minutes')`)
	}},

	{"max_return", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.send("q", 150)
		s.tick("q")
		s.want("100", `select count(*) from pgque.receive('q', 'a')`)
		s.want("150", `select count(*) from pgque.receive('q', 'a', 2147483647)`)
		if !r.isOld() {
			s.fails("P0001", "", `select pgque.receive('q', 'a', 0)`)
		}
	}},
}
