package conformance

import (
	"strings"
	"testing"
)

// stored returns what lies in the queue's tables.
const stored = `select ev_type, ev_data, ev_extra1, ev_extra2, ev_extra3, ev_extra4, ev_owner, ev_retry from pgque.event_1 order by ev_id`

var sendFacts = []fact{
	// The text forms keep the bytes, the jsonb forms reprint them. The library
	// takes text: twice as fast, and what was sent is what arrives.
	{"text and jsonb", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.want("1", `select pgque.send('q', 'typed', '{"b":1,  "a":2}'::text)`)
		s.want("2", `select pgque.send('q', 'typed', '{"b":1,  "a":2}'::jsonb)`)
		s.want("3", `select pgque.send('q', 'untyped'::text)`)
		s.want("4", `select pgque.send('q', '[1]'::jsonb)`)
		s.want("{5,6}", `select pgque.send_batch('q', 'b', array['{"b":1,  "a":2}', null]::text[])`)
		s.want("{7}", `select pgque.send_batch('q', 'b', array['{"b":1,  "a":2}']::jsonb[])`)
		const none = "|-|-|-|-|-|-"
		s.want(strings.Join([]string{
			`typed|{"b":1,  "a":2}` + none, `typed|{"a": 2, "b": 1}` + none, `default|untyped` + none, `default|[1]` + none,
			`b|{"b":1,  "a":2}` + none, `b|-` + none, `b|{"a": 2, "b": 1}` + none,
		}, "\n"), stored)
	}},

	// The library's headers travel in extra3; extra1 and extra2 are upstream's.
	{"extras", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.want("1", `select pgque.insert_event('q', 't', 'd', 'e1', 'e2', 'e3', 'e4')`)
		s.want("2", `select pgque.insert_event('q', 't', 'd')`)
		s.tick("q")
		s.want("1|t|d|-|e1|e2|e3|e4\n2|t|d|-|-|-|-|-",
			`select msg_id, type, payload, retry_count, extra1, extra2, extra3, extra4 from pgque.receive('q', 'a')`)
	}},

	// Ids come back in the order of the payloads, and events are read in it.
	{"batch order", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.want("t", `select ids = (select array_agg(g::bigint) from generate_series(1, 1000) g)
			from (select pgque.send_batch('q', 't', (select array_agg(g::text order by g) from generate_series(1, 1000) g)) as ids) x`)
		s.tick("q")
		s.want("t", `select array_agg(payload::int) = (select array_agg(g) from generate_series(1, 1000) g) from pgque.receive('q', 'a', 1000)`)
	}},

	{"no queue", func(t *testing.T, r *release) {
		s := r.open(t)
		r.skipOld(t, "fails with a fault of its own")
		s.fails("P0001", "queue not found: missing", `select pgque.send('missing', 'x'::text)`)
		s.fails("P0001", "queue not found: missing", `select pgque.send_batch('missing', 't', array['x'])`)
		s.want("{}", `select pgque.send_batch('missing', 't', array[]::text[])`) // no look, no error
	}},

	// What the library checks before the round trip, and what it must be able
	// to read.
	{"odd payloads", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.fails("22P05", "", `select pgque.send('q', 't', '"\u0000"'::jsonb)`)
		s.want("1", `select pgque.send('q', 't', '"\u0000"'::text)`)
		s.want("2", `select pgque.send('q', null, null::text)`)
		s.want("3", `select pgque.send('q', '', ''::text)`)
		s.want("4", `select pgque.send('q', repeat('x', 100000), repeat('y', 1000000)::text)`)
		s.tick("q")
		s.want("1|1|8\n2|-|-\n3|0|0\n4|100000|1000000", `select msg_id, length(type), length(payload) from pgque.receive('q', 'a')`)
		if _, err := s.conn.Exec(t.Context(), `select pgque.send('q', 't', $1::text)`, "a\x00b"); err == nil || !strings.Contains(err.Error(), "22021") {
			t.Errorf("a NUL byte: %v, want SQLSTATE 22021", err)
		}
		if _, err := s.conn.Exec(t.Context(), `select pgque.send('q', 't', $1::text)`, "\xff"); err == nil || !strings.Contains(err.Error(), "22021") {
			t.Errorf("invalid UTF-8: %v, want SQLSTATE 22021", err)
		}
	}},

	// Publishing joins the caller's transaction.
	{"transaction", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a")
		s.rows(`begin`)
		s.send("q", 1)
		s.rows(`rollback`)
		s.send("q", 1)
		s.tick("q")
		s.want("2", `select msg_id from pgque.receive('q', 'a')`)
	}},

	{"disabled", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.rows(`update pgque.queue set queue_disable_insert = true`)
		s.fails("P0001", "", `select pgque.send('q', 'x'::text)`)
		s.fails("P0001", "", `select pgque.send_batch('q', 't', array['x'])`)
	}},
}
