package conformance

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// bodies is the fingerprint of the functions that bootstrap compares.
const bodies = `select md5(string_agg(concat(p.oid::regprocedure, md5(prosrc), prosecdef, provolatile, proconfig),
	',' order by p.oid::regprocedure::text)) from pg_proc p where pronamespace = 'pgque'::regnamespace`

var installFacts = []fact{
	// Bootstrap runs the file at every deployment: data, positions and
	// settings stay, the bodies are the same.
	{"again", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		s.one(`select pgque.set_queue_config('q', 'ticker_max_lag', '50 milliseconds')`)
		ids := s.send("q", 3)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.nack(batch, ids[0], "1 hour", "later")
		s.one(`select pgque.event_dead($1::bigint, $2::bigint, 'never', now(), null, null, 't', 'x')`, batch, ids[1])
		const all = `select (select row(q.*)::text from pgque.queue q), (select count(*) from pgque.event_1),
			(select string_agg(x::text, ' ' order by sub_id) from pgque.subscription x), (select row(x.*)::text from pgque.retry_queue x),
			(select row(x.*)::text from pgque.dead_letter x), (select count(*) from pgque.tick)`
		before, print := s.one(all), s.one(bodies)
		s.db.Install(t, r.Variant)
		s.want(before, all)
		s.want(print, bodies)
	}},

	// The whole file is one message: an error in its last line undoes all.
	{"atomic", func(t *testing.T, r *release) {
		db := r.server.Database(t)
		conn := db.Connect(t)
		_, err := conn.PgConn().Exec(t.Context(), string(r.SQL)+"\nselect 1/0;\n").ReadAll()
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "22012" {
			t.Fatalf("the appended statement: %v, want a division by zero", err)
		}
		if got := db.Value(t, `select count(*) from pg_namespace where nspname = 'pgque'`); got != "0" {
			t.Errorf("%s schemas are left", got)
		}
	}},

	// doctor and bootstrap name this one: a view on get_queue_info blocks the
	// next run, one on version() does not.
	{"view", func(t *testing.T, r *release) {
		r.skipOld(t, "drops other functions")
		s := r.open(t)
		t.Cleanup(func() { s.db.Exec(t, `drop view if exists public.label, public.queues`) })
		s.db.Exec(t, `create view public.label as select pgque.version()`)
		s.db.Install(t, r.Variant)
		s.db.Exec(t, `create view public.queues as select * from pgque.get_queue_info()`)
		_, err := s.conn.PgConn().Exec(t.Context(), string(r.SQL)).ReadAll()
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "2BP01" {
			t.Errorf("install under a view: %v, want SQLSTATE 2BP01", err)
		}
	}},

	// Bodies hold characters that LATIN1 lacks: bootstrap refuses such a
	// database before it tries.
	{"encoding", func(t *testing.T, r *release) {
		conn := r.server.DatabaseWith(t, pgtest.DatabaseOptions{Encoding: "LATIN1"}).Connect(t)
		if _, err := conn.Exec(t.Context(), "set client_encoding to 'UTF8'"); err != nil {
			t.Fatal(err)
		}
		_, err := conn.PgConn().Exec(t.Context(), string(r.SQL)).ReadAll()
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "22P05" {
			t.Errorf("install in LATIN1: %v, want SQLSTATE 22P05", err)
		}
	}},

	// A managed server gives no superuser: a CREATEROLE login that owns the
	// database is enough, also for the reruns, and owns what it makes.
	{"without superuser", func(t *testing.T, r *release) {
		r.skipOld(t, "grants reader to writer each time, which a second login may not do on 16 and later")
		owner := r.server.Role(t, "createrole")
		db := r.server.DatabaseWith(t, pgtest.DatabaseOptions{Owner: owner})
		for range 3 {
			db.InstallAs(t, r.Variant, owner)
		}
		if got := db.Value(t, `select string_agg(distinct proowner::regrole::text, ',') from pg_proc where pronamespace = 'pgque'::regnamespace`); got != owner {
			t.Errorf("the functions belong to %q, want %q", got, owner)
		}
	}},

	// What bootstrap's preflight asks for: TEMP, and CREATE on the database
	// even where the schema is there.
	{"rights it needs", func(t *testing.T, r *release) {
		if r.isOld() {
			t.Skip("v0.1.0 needs less")
		}
		owner := r.server.Role(t, "createrole")
		for right, missing := range map[string]string{"create": "permission denied for database", "temporary": "permission denied to create temporary tables"} {
			db := r.server.Database(t)
			db.Exec(t, `grant all on database `+db.Name+` to `+owner+`; revoke temporary on database `+db.Name+` from public`)
			db.Exec(t, `revoke `+right+` on database `+db.Name+` from `+owner)
			_, err := db.ConnectAs(t, owner).PgConn().Exec(t.Context(), string(r.SQL)).ReadAll()
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "42501" || len(pgErr.Message) < len(missing) || pgErr.Message[:len(missing)] != missing {
				t.Errorf("install without %s: %v, want SQLSTATE 42501 %q", right, err, missing)
			}
		}
	}},

	// The grants of v0.1.0 must not outlive an upgrade: bootstrap checks.
	{"upgrade", func(t *testing.T, r *release) {
		r.skipOld(t, "is what is upgraded from")
		older := pgtest.OlderStandin(t)
		if r.Real {
			older = pgtest.Real(t, "v0.1.0")
		}
		server := pgtest.NewServer(t, pgtest.Options{})
		db := server.Database(t)
		db.Install(t, older)
		s := sessionOn(t, db, db.URL)
		s.want("t", `select pg_has_role('pgque_writer', 'pgque_reader', 'member')`)
		s.queue("q", "a")
		s.send("q", 2)
		s.tick("q")
		db.Install(t, r.Variant)
		s.want("f", `select pg_has_role('pgque_writer', 'pgque_reader', 'member')`)
		s.want(r.Version, `select pgque.version()`)
		if _, payloads := s.receive("q", "a"); join(payloads) != "1,2" {
			t.Errorf("events after the upgrade: %q", payloads)
		}

		fresh := server.Database(t)
		fresh.Install(t, r.Variant)
		s.want(fresh.Value(t, bodies), bodies)
	}},

	// v0.1.0 takes the same dead letter twice, which stops the upgrade: a
	// permanent fault of the data, not a race.
	{"upgrade with doubled dead letters", func(t *testing.T, r *release) {
		r.skipOld(t, "is what is upgraded from")
		older := pgtest.OlderStandin(t)
		if r.Real {
			older = pgtest.Real(t, "v0.1.0")
		}
		db := pgtest.NewServer(t, pgtest.Options{}).Database(t)
		db.Install(t, older)
		s := sessionOn(t, db, db.URL)
		s.queue("q", "a")
		ids := s.send("q", 1)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		for range 2 {
			s.one(`select pgque.event_dead($1::bigint, $2::bigint, 'r', now(), null, null, 't', 'x')`, batch, ids[0])
		}
		s.want("2", `select count(*) from pgque.dead_letter`)
		_, err := s.conn.PgConn().Exec(t.Context(), string(r.SQL)).ReadAll()
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.Code != "23505" || pgErr.ConstraintName != "dl_queue_consumer_ev_idx" {
			t.Errorf("upgrade: %v, want 23505 on dl_queue_consumer_ev_idx", err)
		}
		s.want(older.Version, `select pgque.version()`)
	}},
}
