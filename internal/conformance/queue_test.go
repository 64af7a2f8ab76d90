package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

var queueFacts = []fact{
	{"create and drop", func(t *testing.T, r *release) {
		s := r.open(t)
		s.want("1", `select pgque.create_queue('q')`)
		s.want("0", `select pgque.create_queue('q')`) // idempotent
		s.want("1", `select pgque.create_queue('Q')`) // case counts
		s.fails("P0001", "", `select pgque.create_queue(null)`)
		s.want("1", `select pgque.drop_queue('Q')`)
		s.fails("P0001", "No such event queue", `select pgque.drop_queue('Q')`)

		s.one(`select pgque.subscribe('q', 'a')`)
		s.fails("P0001", "cannot drop queue, consumers still attached", `select pgque.drop_queue('q')`)
		s.want("1", `select pgque.drop_queue('q', true)`)
		s.want("0", `select count(*) from pgque.subscription`)
		s.want("0", `select count(*) from pg_class where relname like 'event\_1%'`)
	}},

	// The limit is in bytes, since the NOTIFY channel must fit into a name.
	{"names", func(t *testing.T, r *release) {
		s := r.open(t)
		s.want("1", `select pgque.create_queue(repeat('x', 57))`)
		if !r.isOld() {
			s.fails("P0001", "queue name too long: 58 bytes", `select pgque.create_queue(repeat('x', 58))`)
			s.fails("P0001", "queue name too long: 58 bytes", `select pgque.create_queue(repeat('é', 29))`)
		}
		s.want("1", `select pgque.subscribe(repeat('x', 57), repeat('y', 500))`)
	}},

	// What the tables of a queue are, for peek, the library's chunked reads
	// and doctor.
	{"tables", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("other")
		s.queue("q")
		s.want("pgque.event_2|pgque.event_2_id_seq|pgque.event_2_tick_seq|3|0",
			`select queue_data_pfx, queue_event_seq, queue_tick_seq, queue_ntables, queue_cur_table from pgque.queue where queue_name = 'q'`)
		s.want("event_2_0,event_2_1,event_2_2", `select string_agg(relname, ',' order by relname) from pg_inherits
			join pg_class c on c.oid = inhrelid where inhparent = 'pgque.event_2'::regclass`)
		s.want("3", `select count(*) from pg_indexes where tablename like 'event\_2\__' and indexdef like '%(ev_txid)'`)
		s.want("pgque.event_2_0", `select pgque.current_event_table('q')`)
		s.want("02:00:00|f|f|500|00:00:03|00:01:00|-", `select queue_rotation_period, queue_external_ticker, queue_ticker_paused,
			queue_ticker_max_count, queue_ticker_max_lag, queue_ticker_idle_period, queue_max_retries from pgque.queue where queue_name = 'q'`)
	}},

	// The parameters of bootstrap --queue and of --max-lag.
	{"settings", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		for param, value := range map[string]string{
			"rotation_period": "03:00:00", "ticker_max_count": "7", "ticker_max_lag": "00:00:00.05", "ticker_idle_period": "00:00:30",
			"ticker_paused": "t", "external_ticker": "t", "max_retries": "0",
		} {
			s.want("1", `select pgque.set_queue_config('q', $1, $2)`, param, value)
			s.want(value, `select queue_`+param+` from pgque.queue`)
		}
		s.fails("P0001", "cannot change parameter", `select pgque.set_queue_config('q', 'nonsense', '1')`)
		s.fails("22007", "", `select pgque.set_queue_config('q', 'rotation_period', 'nonsense')`)
		s.fails("P0001", "No such event queue", `select pgque.set_queue_config('missing', 'rotation_period', '1 s')`)
		if !r.isOld() {
			s.want("1", `select pgque.set_queue_config('q', 'max_retries', null)`)
			s.want("-", `select queue_max_retries from pgque.queue`)
			s.fails("P0001", "set_queue_config:", `select pgque.set_queue_config('q', 'max_retries', '-1')`)
		}
	}},

	{"subscribe", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.want("1", `select pgque.subscribe('q', 'a')`)
		s.send("q", 1)
		s.tick("q")
		s.want("0", `select pgque.subscribe('q', 'a')`) // keeps its place
		s.want("1", `select sub_last_tick from pgque.subscription`)
		s.want("1", `select pgque.subscribe('q', 'late')`) // begins at the last tick
		if batch, _ := s.receive("q", "late"); batch != "" {
			t.Errorf("a late consumer gets batch %s of earlier events", batch)
		}
		s.fails("P0001", "Event queue not created yet", `select pgque.subscribe('missing', 'a')`)
		s.want("1", `select pgque.unsubscribe('q', 'a')`)
		s.want("0", `select pgque.unsubscribe('q', 'a')`)
	}},

	// A position of one's own, for consumers that begin at an older tick.
	{"subscribe at a tick", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "pin")
		first := s.one(`select max(tick_id) from pgque.tick`)
		s.send("q", 2)
		s.tick("q")
		s.want("1", `select pgque.register_consumer_at('q', 'a', $1::bigint)`, first)
		if _, payloads := s.receive("q", "a"); join(payloads) != "1,2" {
			t.Errorf("from tick %s: %q", first, payloads)
		}
	}},

	// The last subscription takes the consumer with it, and its dead letters
	// and retries.
	{"unsubscribe", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		s.queue("other", "a")
		ids := s.send("q", 2)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.nack(batch, ids[0], "1 hour", "")
		s.one(`select pgque.event_dead($1::bigint, $2::bigint, 'r', now(), null, null, 't', 'x')`, batch, ids[1])
		s.one(`select pgque.unsubscribe('q', 'a')`)
		s.want("0", `select count(*) from pgque.retry_queue`)
		s.want("a\nb", `select co_name from pgque.consumer order by 1`) // "other" keeps a
		s.want("1", `select count(*) from pgque.dead_letter`)
		s.one(`select pgque.unsubscribe('other', 'a')`)
		s.want("b", `select co_name from pgque.consumer`)
		s.want("0", `select count(*) from pgque.dead_letter`)
	}},

	// Two at once: the loser gets a unique violation that the library and
	// bootstrap recognise by its name, and a second try succeeds.
	{"races at start-up", func(t *testing.T, r *release) {
		s, other := r.open(t), (*session)(nil)
		other = s.another()
		race := func(sql, constraint string) {
			t.Helper()
			s.rows(`begin`)
			s.rows(sql)
			failed := make(chan error, 1)
			go func() {
				_, err := other.conn.Exec(context.Background(), sql)
				failed <- err
			}()
			s.another().untilSomebodyWaits()
			s.rows(`commit`)
			var pgErr *pgconn.PgError
			if err := <-failed; !errors.As(err, &pgErr) || pgErr.Code != "23505" || pgErr.ConstraintName != constraint {
				t.Errorf("%s by two: %v, want 23505 on %s", sql, err, constraint)
			}
			other.want("0", sql)
		}
		race(`select pgque.create_queue('q')`, "queue_name_uq")
		race(`select pgque.subscribe('q', 'a')`, "consumer_name_uq")
	}},

	// What `queues` and `doctor` show.
	{"infos", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q", "a", "b")
		s.queue("q2", "a")
		s.send("q", 3)
		s.tick("q")
		batch, _ := s.receive("q", "a")
		s.want("q|500|00:00:03|2", `select queue_name, queue_ticker_max_count, queue_ticker_max_lag, last_tick_id from pgque.get_queue_info('q')`)
		s.want("2", `select count(*) from pgque.get_queue_info()`)
		s.want("a|1|"+batch+"|2\nb|1|-|-", `select consumer_name, last_tick, current_batch, next_tick from pgque.get_consumer_info('q') order by 1`)
		s.want("a", `select consumer_name from pgque.get_consumer_info('q2', 'a')`)
		s.want("3", `select count(*) from pgque.get_consumer_info()`)
		s.want("q|a|1|2", `select queue_name, consumer_name, prev_tick_id, tick_id from pgque.get_batch_info($1::bigint)`, batch)
		s.want("1", `select count(*) from pgque.status() where component = 'pgque' and detail = $1`, r.Version)
		pending := s.one(`select pending_events from pgque.get_consumer_info('q', 'b')`)
		if pending == "0" || strings.HasPrefix(pending, "-") {
			t.Errorf("pending events = %s", pending)
		}
	}},
}
