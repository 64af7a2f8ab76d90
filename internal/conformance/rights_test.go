package conformance

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func pgError(err error) *pgconn.PgError {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr
	}
	return nil
}

const (
	retryRaw = "event_retry_raw(text,text,timestamptz,bigint,timestamptz,integer,text,text,text,text,text,text)"
	dead     = "event_dead(bigint,bigint,text,timestamptz,xid8,integer,text,text,text,text,text,text)"
	extras   = "insert_event(text,text,text,text,text,text,text)"
)

var rightsFacts = []fact{
	// Which role may call what: the library's three levels, and what bootstrap
	// verifies after a grant. R, W and A are the roles.
	{"functions", func(t *testing.T, r *release) {
		r.skipOld(t, "answers PUBLIC")
		s := r.open(t)
		for signature, want := range map[string]string{
			"send(text,text)": "WA", "send(text,jsonb)": "WA", "send(text,text,text)": "WA", "send(text,text,jsonb)": "WA",
			"send_batch(text,text,text[])": "WA", "send_batch(text,text,jsonb[])": "WA", "insert_event(text,text,text)": "WA", extras: "WA",
			"subscribe(text,text)": "RA", "unsubscribe(text,text)": "RA", "register_consumer_at(text,text,bigint)": "RA",
			"receive(text,text,integer)": "RA", "ack(bigint)": "RA", "nack(bigint,pgque.message,interval,text)": "RA",
			"next_batch(text,text)": "RA", "next_batch_info(text,text)": "RA", "next_batch_custom(text,text,interval,integer,interval)": "RA",
			"finish_batch(bigint)": "RA", "event_retry(bigint,bigint,integer)": "RA", "event_retry(bigint,bigint,timestamptz)": "RA",
			"get_batch_info(bigint)": "RA", "get_consumer_info()": "RA", "get_consumer_info(text,text)": "RA",
			"dlq_inspect(text,integer)": "RA", "version()": "RA",
			"dlq_replay(bigint)": "WA", "dlq_replay_all(text)": "WA",
			"create_queue(text)": "A", "drop_queue(text)": "A", "drop_queue(text,boolean)": "A", "set_queue_config(text,text,text)": "A",
			"ticker()": "A", "ticker(text)": "A", "force_tick(text)": "A", "maint()": "A", "maint_retry_events()": "A",
			"maint_rotate_tables_step1(text)": "A", "maint_rotate_tables_step2()": "A", "maint_operations()": "A",
			retryRaw: "A", dead: "A", "batch_retry(bigint,integer)": "A", "dlq_purge(text,interval)": "A", "status()": "A",
			"uninstall()": "", "get_batch_cursor(bigint,text,integer)": "A",
		} {
			s.want(want, `select coalesce(string_agg(letter, '' order by n), '') from (values (1, 'R', 'pgque_reader'), (2, 'W', 'pgque_writer'), (3, 'A', 'pgque_admin')) r (n, letter, role)
				where has_function_privilege(role, ('pgque.' || $1)::regprocedure, 'execute')`, signature)
		}
	}},

	{"nothing for PUBLIC", func(t *testing.T, r *release) {
		r.skipOld(t, "answers PUBLIC")
		s := r.open(t)
		s.want("", `select oid::regprocedure from pg_proc p, aclexplode(coalesce(proacl, acldefault('f', proowner))) a
			where pronamespace = 'pgque'::regnamespace and grantee = 0`)
		nobody := s.as("")
		nobody.fails("42501", "", `select pgque.version()`)
		nobody.fails("42501", "", `select pgque.send('q', 'x'::text)`)
		nobody.fails("42501", "", `select * from pgque.dead_letter`)
	}},

	// Everybody may look at these: the consumer's look without writing.
	{"tables for all", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		nobody := s.as("")
		for _, table := range []string{"queue", "tick", "consumer", "subscription", "retry_queue", "event_1", "event_1_0"} {
			nobody.rows(`select * from pgque.` + table)
		}
		s.as("pgque_reader").rows(`select * from pgque.dead_letter, pgque.config`)
	}},

	{"members", func(t *testing.T, r *release) {
		s := r.open(t)
		s.want("f|t|f", `select pg_has_role('pgque_reader', 'pgque_writer', 'member'), pg_has_role('pgque_admin', 'pgque_reader', 'usage')
			and pg_has_role('pgque_admin', 'pgque_writer', 'usage'), pg_has_role('pgque_reader', 'pgque_admin', 'member')`)
		// v0.1.0 lets a writer finish other people's batches.
		want := map[bool]string{true: "t", false: "f"}[r.isOld()]
		s.want(want, `select pg_has_role('pgque_writer', 'pgque_reader', 'member')`)
		s.want("f|f|f", `select rolcanlogin, rolsuper, rolcreaterole from pg_roles where rolname = 'pgque_admin'`)
	}},

	// A reader consumes with these. It can't call get_batch_events, although
	// that is granted: what it calls is not.
	{"reader", func(t *testing.T, r *release) {
		r.skipOld(t, "answers PUBLIC")
		s := r.open(t)
		s.queue("q")
		reader := s.as("pgque_reader")
		reader.want("1", `select pgque.subscribe('q', 'a')`)
		ids := s.send("q", 2)
		s.tick("q")
		batch := reader.one(`select pgque.next_batch('q', 'a')`)
		reader.fails("42501", "", `select * from pgque.get_batch_events($1::bigint)`, batch)
		reader.want("2", `select count(*) from pgque.receive('q', 'a') where batch_id = $1::bigint`, batch)
		reader.nack(batch, ids[0], "1 hour", "")
		reader.want("1", `select pgque.event_retry($1::bigint, $2::bigint, 5)`, batch, ids[1])
		reader.fails("42501", "", `select pgque.event_dead($1::bigint, 1, 'r', now(), null, null, 't', 'd')`, batch)
		reader.want("1", `select pgque.finish_batch($1::bigint)`, batch)
		reader.want("1", `select count(*) from pgque.get_consumer_info('q')`)
		reader.fails("42501", "", `select pgque.send('q', 'x'::text)`)
		reader.fails("42501", "", `select pgque.ticker()`)
	}},

	{"writer", func(t *testing.T, r *release) {
		r.skipOld(t, "answers PUBLIC")
		s := r.open(t)
		s.queue("q", "a")
		writer := s.as("pgque_writer")
		writer.want("1", `select pgque.send('q', 't', 'x'::text)`)
		writer.want("{2}", `select pgque.send_batch('q', 't', array['x'])`)
		writer.want("3", `select pgque.insert_event('q', 't', 'x', null, null, 'headers', null)`)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		writer.fails("42501", "", `select pgque.ack($1::bigint)`, batch)
		writer.fails("42501", "", `select pgque.receive('q', 'a')`)
		writer.fails("42501", "", `select pgque.subscribe('q', 'b')`)
		writer.fails("42501", "", `select pgque.version()`)
	}},

	// The application's own login does everything, and so does a worker that
	// ticks for itself. maint_retry_events runs with the caller's rights.
	{"admin", func(t *testing.T, r *release) {
		s := r.open(t)
		admin := s.as("pgque_admin")
		admin.want("1", `select pgque.create_queue('q')`)
		admin.want("1", `select pgque.subscribe('q', 'a')`)
		admin.want("1", `select pgque.set_queue_config('q', 'ticker_max_lag', '50 milliseconds')`)
		ids := admin.send("q", 3)
		admin.tick("q")
		batch, payloads := admin.receive("q", "a")
		if join(payloads) != "1,2,3" {
			t.Errorf("admin receives %q", payloads)
		}
		admin.want("3", `select count(*) from pgque.get_batch_events($1::bigint)`, batch)
		admin.nack(batch, ids[0], "1 second", "")
		admin.one(`select pgque.event_dead($1::bigint, $2::bigint, 'r', now(), null, null, 't', 'd')`, batch, ids[1])
		admin.one(`select pgque.event_retry_raw('q', 'a', now(), $1::bigint, now(), 1, 't', 'd', null, null, null, null)`, ids[2])
		admin.one(`select pgque.ack($1::bigint)`, batch)
		admin.rows(`update pgque.retry_queue set ev_retry_after = now()`) // its rights on the tables
		admin.want("2", `select pgque.maint_retry_events()`)
		admin.one(`select pgque.maint()`)
		admin.one(`select pgque.maint_rotate_tables_step2()`)
		admin.rows(`select * from pgque.get_queue_info()`)
		admin.rows(`delete from pgque.dead_letter`)
		admin.want("1", `select pgque.drop_queue('q', true)`)
	}},
}
