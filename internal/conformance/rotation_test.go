package conformance

import (
	"testing"
)

// turn makes the rotation period pass and runs maintenance: step 1 of what is
// due, and step 2 in a transaction of its own.
func (s *session) turn(step2 bool) string {
	s.t.Helper()
	s.rows(`update pgque.queue set queue_switch_time = now() - queue_rotation_period - interval '1 second'`)
	s.one(`select pgque.maint()`)
	if step2 {
		s.one(`select pgque.maint_rotate_tables_step2()`)
	}
	return s.one(`select queue_cur_table from pgque.queue`)
}

// pass moves a consumer past a fresh tick.
func (s *session) pass(consumer string) {
	s.t.Helper()
	s.tick("q")
	drain(s, "q", consumer)
}

var rotationFacts = []fact{
	// Healthy: the tables take turns and each is emptied; the next table is
	// the current one, and what a consumer still needs is kept.
	{"three tables", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.send("q", 2)
		s.pass("a")
		if got := s.turn(true); got != "1" {
			t.Fatalf("current table = %s after a turn, want 1", got)
		}
		s.want("pgque.event_1_1", `select pgque.current_event_table('q')`)
		s.want("2", `select count(*) from pgque.event_1_0`) // kept for now
		s.send("q", 3)
		s.want("3", `select count(*) from pgque.event_1_1`)
		s.pass("a")
		s.turn(true)
		s.pass("a")
		if got := s.turn(true); got != "0" {
			t.Errorf("current table = %s after three turns, want 0", got)
		}
		s.want("0", `select count(*) from pgque.event_1_0`)
		s.want("3", `select count(*) from pgque.event_1`)
	}},

	// Before its period nothing turns.
	{"not due", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.one(`select pgque.maint()`)
		s.want("0|t", `select queue_cur_table, queue_switch_step2 is not null from pgque.queue`)
		s.want("0", `select count(*) from pgque.maint_operations() where func_name like '%rotate%'`)
		s.rows(`update pgque.queue set queue_switch_time = now() - interval '3 hours'`)
		s.want("pgque.maint_rotate_tables_step1|q", `select func_name, func_arg from pgque.maint_operations() where func_name like '%step1'`)
	}},

	// Step 2 forgotten: one switch, then none, and queue_switch_step2 shows it.
	// doctor looks there.
	{"step 2 forgotten", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.pass("a")
		s.turn(false)
		s.want("1|-", `select queue_cur_table, queue_switch_step2 from pgque.queue`)
		s.want("1", `select count(*) from pgque.maint_operations() where func_name like '%step2'`)
		s.pass("a")
		s.turn(false)
		s.want("1|-", `select queue_cur_table, queue_switch_step2 from pgque.queue`)
		s.one(`select pgque.maint_rotate_tables_step2()`)
		s.want("t", `select queue_switch_step2 > queue_switch_step1 from pgque.queue`)
		s.pass("a")
		if got := s.turn(true); got != "2" {
			t.Errorf("current table = %s after step 2 and a turn, want 2", got)
		}
	}},

	// A consumer that never receives pins the tables, and so does a batch that
	// is never acked. unsubscribe frees them.
	{"pinned", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "sleeper", "worker")
		s.pass("worker")
		if got := s.turn(true); got != "0" {
			t.Errorf("a consumer at the first tick does not pin: current table = %s", got)
		}
		s.one(`select pgque.unsubscribe('q', 'sleeper')`)
		if got := s.turn(true); got != "1" {
			t.Errorf("current table = %s after the consumer left, want 1", got)
		}
		s.send("q", 1)
		s.tick("q")
		batch, _ := s.receive("q", "worker")
		s.tick("q")
		if got := s.turn(true); got != "1" {
			t.Errorf("an open batch does not pin: current table = %s", got)
		}
		s.one(`select pgque.ack($1::bigint)`, batch)
		s.pass("worker")
		if got := s.turn(true); got != "2" {
			t.Errorf("current table = %s after the ack, want 2", got)
		}
	}},

	// The ticks go with the tables. A queue without any refuses subscribers
	// until it ticks again; the library ticks and retries.
	{"no ticks", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		for range 3 {
			s.turn(true)
		}
		s.want("0", `select count(*) from pgque.tick`)
		s.fails("P0001", "No ticks for this queue", `select pgque.subscribe('q', 'a')`)
		if s.one(`select pgque.ticker('q')`) == "-" {
			t.Error("a queue without ticks does not tick")
		}
		s.want("1", `select pgque.subscribe('q', 'a')`)
	}},

	// Both steps in one transaction note the same moment; events of
	// transactions that are still open must not be lost by that.
	{"nothing lost across a turn", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		long := s.another()
		s.pass("a")
		long.rows(`begin`)
		long.send("q", 1) // into the table that is about to be left
		s.turn(true)
		s.send("q", 1)
		s.tick("q")
		_, before := drain(s, "q", "a")
		long.rows(`commit`)
		s.turn(true)
		s.pass("a")
		s.turn(true)
		s.tick("q")
		s.want("2", `select count(*) from pgque.event_1`)
		if len(before) != 1 {
			t.Errorf("before the commit: %q", before)
		}
	}},
}
