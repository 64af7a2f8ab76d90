package events_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
)

// A role or a database whose transactions are read-only unless they say otherwise can
// publish as it can consume. A transaction of the caller's stays what the caller made it.
func TestSendWithReadOnlyDefault(t *testing.T) {
	t.Parallel()
	db, pool := setUp(t, newest(t))
	readOnly := newPool(t, db.URL, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	})
	conn, err := readOnly.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	e := events.Event{Type: "t", Payload: []byte("1")}
	for name, es := range map[string][]events.Event{
		"one":                 {e},
		"one of each":         {e, {Type: "u", Payload: []byte("2")}},
		"a long run and more": append(copies(e, 20), events.Event{Type: "u", Payload: []byte("3")}),
	} {
		for handle, db := range map[string]events.DB{"pool": readOnly, "pool's connection": conn, "connection": conn.Conn()} {
			if ids, err := events.SendBatch(t.Context(), db, queue, es); err != nil || len(ids) != len(es) {
				t.Errorf("%s through a %s: %v, %v", name, handle, ids, err)
			}
		}
	}
	if n, want := value[int](t, pool, "select count(*) from pgque.event_1"), 3*(1+2+21); n != want {
		t.Errorf("%d events are there, want %d", n, want)
	}

	tx, err := readOnly.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Send(t.Context(), tx, queue, e); !errors.Is(err, events.ErrReadOnly) {
		t.Errorf("send in a read-only transaction: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "begin"); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Send(t.Context(), conn.Conn(), queue, e); !errors.Is(err, events.ErrReadOnly) {
		t.Errorf("send in a read-only transaction that was begun by hand: %v", err)
	}
	if _, err := conn.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
}

// A standby is told from a read-only default.
func TestSendToStandby(t *testing.T) {
	t.Parallel()
	_, standby, db := replicated(t)
	pool := newPool(t, standby.URL(db.Name, ""), nil)
	until(t, "the queue on the standby", func() bool {
		return value[bool](t, pool, "select to_regclass('pgque.queue') is not null") && value[int](t, pool, "select count(*) from pgque.queue") == 1
	})
	e := events.Event{Type: "t", Payload: []byte("1")}
	_, err := events.Send(t.Context(), pool, queue, e)
	var server *pgconn.PgError
	if !errors.Is(err, events.ErrReadOnly) || !errors.As(err, &server) || server.Code != "25006" || !strings.Contains(err.Error(), "recovery") {
		t.Errorf("send to a standby: %v", err)
	}
	if _, err := events.SendBatch(t.Context(), pool, queue, append(copies(e, 20), events.Event{Type: "u", Payload: []byte("1")})); !errors.Is(err, events.ErrReadOnly) {
		t.Errorf("send many to a standby: %v", err)
	}
}

// More than a statement should carry goes in several, of one transaction.
func TestSendManyBytes(t *testing.T) {
	t.Parallel()
	_, pool := setUp(t, newest(t))
	large := events.Event{Type: "t", Payload: append(append([]byte{'"'}, bytes.Repeat([]byte("x"), 9<<20)...), '"')}
	es := copies(large, 8)
	es[5].Type = "u"
	es[7] = es[7].WithHeader("h", "v")
	ids, err := events.SendBatch(t.Context(), pool, queue, es, events.MaxPayload(10<<20))
	if err != nil || len(ids) != len(es) {
		t.Fatalf("%v, %v", ids, err)
	}
	got := value[string](t, pool, `select string_agg(ev_type, '' order by ev_id) || count(distinct ev_txid) || ' ' || sum(length(ev_data)) || ' ' || sum((ev_id = any($1))::int)
		from pgque.event_1`, ids)
	if want := "tttttutt1 75497488 8"; got != want {
		t.Errorf("stored %q, want %q", got, want)
	}
}

func copies(e events.Event, n int) []events.Event {
	es := make([]events.Event, n)
	for i := range es {
		es[i] = e
	}
	return es
}
