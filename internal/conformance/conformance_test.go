// Package conformance states what pgque-vendor and its event library need of
// PgQue: every fact about names, signatures, behaviour and rights that our
// code relies on, as a test. It runs on the stand-in and, where
// PGQUE_UPSTREAM_GIT names a git directory of PgQue, on the real v0.1.0 (what
// that supports), v0.2.0 and v0.3.0-alpha.1. What differs is the stand-in's
// fault.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// release is a variant installed on a server of its own: PgQue's roles belong
// to the cluster, and v0.1.0 gives them rights that v0.2.0 takes away.
type release struct {
	pgtest.Variant
	server *pgtest.Postgres
	db     *pgtest.DB // with it installed, for one fact after the other
}

// isOld reports whether it is v0.1.0, or the stand-in's release of that name.
func (r *release) isOld() bool { return r.Tag == "v0.1.0" }

// skipOld ends a test whose fact came with v0.2.0.
func (r *release) skipOld(t *testing.T, why string) {
	t.Helper()
	if r.isOld() {
		t.Skipf("v0.1.0: %s", why)
	}
}

func TestConformance(t *testing.T) {
	variants := []pgtest.Variant{pgtest.Standin(), pgtest.OlderStandin(t)}
	if pgtest.Upstream() {
		variants = append(variants, pgtest.Real(t, "v0.1.0"), pgtest.Real(t, "v0.2.0"), pgtest.Real(t, "v0.3.0-alpha.1"))
	}
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.NewServer(t, pgtest.Options{})
			r := &release{Variant: v, server: server, db: server.Database(t)}
			r.db.Install(t, v)
			for _, fact := range facts() {
				t.Run(fact.name, func(t *testing.T) { fact.test(t, r) })
			}
		})
	}
}

// fact is one statement about PgQue. Names begin with the part of PgQue it is
// about; the comments at the tests say who relies on it.
type fact struct {
	name string
	test func(t *testing.T, r *release)
}

func facts() []fact {
	var all []fact
	for _, part := range []struct {
		name  string
		facts []fact
	}{
		{"rights", rightsFacts}, {"shape", shapeFacts}, {"install", installFacts}, {"queue", queueFacts}, {"tick", tickFacts},
		{"send", sendFacts}, {"batch", batchFacts}, {"retry", retryFacts}, {"dead", deadFacts}, {"rotation", rotationFacts},
		// Another run of the file changes who was granted what by name; what
		// each role may do must stay.
		{"rights after a rerun", rightsFacts},
	} {
		for _, f := range part.facts {
			all = append(all, fact{part.name + "/" + f.name, f.test})
		}
	}
	return all
}

// session is a connection to a fresh database with the release in it.
type session struct {
	t    *testing.T
	db   *pgtest.DB
	conn *pgx.Conn
	// warnings are the messages that the last statement raised.
	warnings *[]string
}

// open empties the database, as after an install, and connects to it as the
// superuser. A database for each fact would cost a second each.
func (r *release) open(t *testing.T) *session {
	t.Helper()
	s := sessionOn(t, r.db, r.db.URL)
	s.rows(`select pgque.drop_queue(queue_name, true) from pgque.queue`)
	s.rows(`truncate pgque.queue, pgque.tick, pgque.consumer, pgque.subscription, pgque.retry_queue, pgque.dead_letter restart identity cascade`)
	s.rows(`alter sequence pgque.batch_id_seq restart`)
	return s
}

func sessionOn(t *testing.T, db *pgtest.DB, url string) *session {
	t.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	warnings := new([]string)
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			*warnings = append(*warnings, n.Message)
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return &session{t: t, db: db, conn: conn, warnings: warnings}
}

// another opens one more connection to the same database.
func (s *session) another() *session {
	s.t.Helper()
	return sessionOn(s.t, s.db, s.db.URL)
}

// as opens a connection as a new login that is a member of a role, or of none.
func (s *session) as(role string) *session {
	s.t.Helper()
	login := s.db.Role(s.t)
	if role != "" {
		s.db.Exec(s.t, "grant "+role+" to "+login)
	}
	return sessionOn(s.t, s.db, s.db.URLAs(login))
}

// try runs a query and returns its rows as text, columns joined by a bar and
// NULL as "-".
func (s *session) try(sql string, args ...any) ([]string, error) {
	*s.warnings = nil
	rows, err := s.conn.Query(s.t.Context(), sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var columns []string
		for _, v := range rows.RawValues() {
			if v == nil {
				columns = append(columns, "-")
			} else {
				columns = append(columns, string(v))
			}
		}
		out = append(out, strings.Join(columns, "|"))
	}
	return out, rows.Err()
}

// rows runs a query that must succeed.
func (s *session) rows(sql string, args ...any) []string {
	s.t.Helper()
	out, err := s.try(sql, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

// one runs a query that must give one row.
func (s *session) one(sql string, args ...any) string {
	s.t.Helper()
	out := s.rows(sql, args...)
	if len(out) != 1 {
		s.t.Fatalf("%s: %d rows, want 1: %q", sql, len(out), out)
	}
	return out[0]
}

// want compares the rows of a query with what must be, one row to a line.
func (s *session) want(want, sql string, args ...any) {
	s.t.Helper()
	if got := strings.Join(s.rows(sql, args...), "\n"); got != want {
		s.t.Errorf("%s\n got: %s\nwant: %s", sql, got, want)
	}
}

// fails runs a statement that must fail with a SQLSTATE and a message that
// begins in a certain way.
func (s *session) fails(code, message, sql string, args ...any) {
	s.t.Helper()
	_, err := s.try(sql, args...)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != code || !strings.HasPrefix(pgErr.Message, message) {
		s.t.Errorf("%s: %v, want SQLSTATE %s with %q", sql, err, code, message)
	}
}

// queue creates a queue and subscribes consumers to it.
func (s *session) queue(name string, consumers ...string) {
	s.t.Helper()
	s.one(`select pgque.create_queue($1)`, name)
	for _, c := range consumers {
		s.one(`select pgque.subscribe($1, $2)`, name, c)
	}
}

// send sends n events of type t with payloads "1", "2", …, each in its own
// transaction, and returns their ids.
func (s *session) send(queue string, n int) []string {
	s.t.Helper()
	var ids []string
	for i := range n {
		ids = append(ids, s.one(`select pgque.send($1, 't', $2::text)`, queue, fmt.Sprint(i+1)))
	}
	return ids
}

// tick makes a tick, whatever the thresholds say, and returns its id.
func (s *session) tick(queue string) string {
	s.t.Helper()
	s.one(`select pgque.force_tick($1)`, queue)
	id := s.one(`select pgque.ticker($1)`, queue)
	if id == "-" {
		s.t.Fatalf("queue %q did not tick after force_tick", queue)
	}
	return id
}

// receive returns the batch and the payloads that receive gives, or "" and
// none.
func (s *session) receive(queue, consumer string) (batch string, payloads []string) {
	s.t.Helper()
	for _, row := range s.rows(`select batch_id, payload from pgque.receive($1, $2, 2147483647)`, queue, consumer) {
		id, payload, _ := strings.Cut(row, "|")
		batch, payloads = id, append(payloads, payload)
	}
	return batch, payloads
}

// nack sends one event back with nothing but its id in the message.
func (s *session) nack(batch, id, after, reason string) string {
	s.t.Helper()
	return s.one(`select pgque.nack($1::bigint,
		row($2::bigint, null, null, null, null, null, null, null, null, null)::pgque.message, $3::interval, $4)`,
		batch, id, after, reason)
}

// redeliver makes all retries due, moves them into the queue and ticks.
func (s *session) redeliver(queue string) {
	s.t.Helper()
	s.rows(`update pgque.retry_queue set ev_retry_after = now() - interval '1 second'`)
	for s.one(`select pgque.maint_retry_events()`) != "0" {
	}
	s.tick(queue)
}

// untilSomebodyWaits returns when another session waits for a lock.
func (s *session) untilSomebodyWaits() {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); s.one(`select count(*) from pg_locks where not granted`) == "0"; {
		if time.Now().After(deadline) {
			s.t.Fatal("nobody waits for a lock")
		}
	}
}

func join(list []string) string { return strings.Join(list, ",") }
