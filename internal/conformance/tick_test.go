package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// age makes all ticks of a queue older, instead of sleeping.
func (s *session) age(by string) {
	s.t.Helper()
	s.rows(`update pgque.tick set tick_time = tick_time - $1::interval`, by)
}

var tickFacts = []fact{
	// The users' loop believes that a 250 ms ticker ticks every 250 ms. It
	// declines until the last tick is ticker_max_lag old.
	{"declines while the last tick is young", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.tick("q")
		s.send("q", 5)
		s.want("-", `select pgque.ticker('q')`)
		s.age("2.5 seconds")
		s.want("-", `select pgque.ticker('q')`)
		s.want("0", `select pgque.ticker()`)
		s.age("0.6 seconds")
		s.want("3", `select pgque.ticker('q')`)

		s.one(`select pgque.set_queue_config('q', 'ticker_max_lag', '50 milliseconds')`)
		s.send("q", 5)
		s.age("60 milliseconds")
		s.want("4", `select pgque.ticker('q')`)
	}},

	// ticker_max_count makes a tick early. It is no cap: one transaction of
	// any size is one batch, which is why there is no safe maximum for receive.
	{"count is a threshold, not a cap", func(t *testing.T, r *release) {
		r.skipOld(t, "receive leaves an empty batch open")
		s := r.open(t)
		s.queue("q", "a")
		s.tick("q")
		s.receive("q", "a") // the empty batch up to that tick
		s.one(`select pgque.send_batch('q', 't', array_agg('x'::text)) from generate_series(1, 499)`)
		s.want("-", `select pgque.ticker('q')`)
		s.one(`select pgque.send_batch('q', 't', array_agg('x'::text)) from generate_series(1, 3000)`)
		s.want("3", `select pgque.ticker('q')`)
		if _, payloads := s.receive("q", "a"); len(payloads) != 3499 {
			t.Errorf("the batch has %d events, want 3499", len(payloads))
		}
	}},

	// When ticker() ticks, exactly. The library's ticker looks by these rules,
	// without a transaction id, and calls ticker() only for what is due.
	{"when", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.rows(`set client_min_messages to error`) // it warns of negative counts
		s.rows(`create function pg_temp.ticks(n int, pause int, age int, max_lag int, idle int, new int) returns boolean language plpgsql as $$
			begin
				delete from pgque.tick;
				perform setval('pgque.event_1_id_seq', 100);
				update pgque.queue set queue_ticker_max_lag = make_interval(secs => max_lag / 1000.0), queue_ticker_max_count = 5,
					queue_ticker_idle_period = make_interval(secs => idle / 1000.0);
				insert into pgque.tick (tick_queue, tick_id, tick_time, tick_event_seq)
				select 1, nextval('pgque.event_1_tick_seq'), now() - make_interval(secs => (age + (n - i) * pause) / 1000.0), 100 - new
				from generate_series(1, n) i;
				return pgque.ticker('q') is not null;
			end $$`)
		s.want("", `select n, pause, age, max_lag, idle, new, ticks from (
			select *, pg_temp.ticks(n, pause, age, max_lag, idle, new) as ticks
			from unnest('{0,1,2}'::int[]) n, unnest('{1,2000}'::int[]) pause, unnest('{100,10000}'::int[]) max_lag,
				unnest('{1000,60000}'::int[]) idle, unnest('{-3,0,1,4,5}'::int[]) new,
				unnest('{0,49,50,99,100,999,1000,3999,4000,4999,5000,9999,10000,60000}'::int[]) age) x
			where ticks is distinct from (
				n = 0
				or new > 0 and (age >= max_lag or new >= 5)
				or new <= 0 and (n = 1 or 2 * age >= max_lag and (age >= idle or age >= 2 * pause)))`)
	}},

	{"all queues", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("a")
		s.queue("b")
		s.queue("paused")
		s.queue("external")
		s.one(`select pgque.set_queue_config('paused', 'ticker_paused', 'true')`)
		s.one(`select pgque.set_queue_config('external', 'external_ticker', 'true')`)
		s.want("2", `select pgque.ticker()`)
		s.send("a", 2) // from now on ticker_max_lag decides, not the idle pause
		s.send("b", 2)
		s.want("0", `select pgque.ticker()`)
		s.one(`select pgque.force_tick('b')`)
		s.want("1", `select pgque.ticker()`)
		s.fails("P0001", "", `select pgque.ticker('paused')`)
		s.fails("P0001", "", `select pgque.ticker('external')`)
		s.fails("P0001", "no such queue", `select pgque.ticker('missing')`)
		s.want("100", `select pgque.ticker('external', 100, now(), 5000)`)
	}},

	// force_tick only prepares: it jumps over event ids. Ids stay unique and
	// ascending, so readers by ev_id hold.
	{"force", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.tick("q")
		s.send("q", 1)
		s.want("2", `select pgque.force_tick('q')`)
		s.want("2", `select max(tick_id) from pgque.tick`)
		s.want("3", `select pgque.ticker('q')`)
		if id := s.send("q", 1)[0]; len(id) < 4 {
			t.Errorf("the next event has id %s, want a jump", id)
		}
		if !r.isOld() {
			s.fails("P0001", "queue not found: missing", `select pgque.force_tick('missing')`)
		}
	}},

	// The wake-up of consumers and the nudge: one NOTIFY per tick, at its
	// commit, also at create_queue and for idle ticks; none for an event.
	{"notify", func(t *testing.T, r *release) {
		for _, queue := range []string{"q", `It's a "Queue" → Очередь 🦉`} {
			s := r.open(t)
			listener := s.as("") // LISTEN needs no grant
			if _, err := listener.conn.Exec(t.Context(), `listen `+pgx.Identifier{"pgque_" + queue}.Sanitize()); err != nil {
				t.Fatal(err)
			}
			expect := func(payload, after string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				n, err := listener.conn.WaitForNotification(ctx)
				if err != nil || n.Channel != "pgque_"+queue || n.Payload != payload {
					t.Errorf("after %s: %+v, %v, want payload %s", after, n, err, payload)
				}
			}
			s.queue(queue)
			expect("1", "create_queue")
			s.one(`select pgque.ticker($1)`, queue)
			expect("2", "an idle tick")
			s.rows(`begin`)
			s.send(queue, 3)
			s.rows(`commit`)
			s.one(`select pg_notify($1, 'mark')`, "pgque_"+queue)
			expect("mark", "three events")
			expect(s.tick(queue), "a tick")
		}
	}},

	// A dump restored into another cluster: the ticker refuses, for all
	// queues when it ticks them together, and the others when asked singly
	// still work. The ticker falls back to that, and doctor names the queue.
	{"restored from a dump", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("restored")
		s.queue("healthy")
		s.rows(`update pgque.tick set tick_snapshot = '999999999:999999999:' where tick_queue = 1`)
		s.one(`select pgque.force_tick('restored'), pgque.force_tick('healthy')`)
		s.fails("P0001", "Invalid PgQ state: old xmin=", `select pgque.ticker('restored')`)
		s.fails("P0001", "Invalid PgQ state: old xmin=", `select pgque.ticker()`)
		s.want("t", `select pgque.ticker('healthy') is not null`)
	}},

	// The library decides with these two tables alone whether a batch waits:
	// for any login, without a transaction id. An empty receive assigns one.
	{"a look without writing", func(t *testing.T, r *release) {
		r.skipOld(t, "receive leaves an empty batch open")
		const look = `select t.tick_id > s.sub_last_tick from pgque.subscription s
			join pgque.queue on queue_id = sub_queue join pgque.consumer on co_id = sub_consumer,
			lateral (select max(tick_id) as tick_id from pgque.tick where tick_queue = sub_queue) t
			where queue_name = 'q' and co_name = 'a'`
		s := r.open(t)
		s.queue("q", "a")
		nobody := s.as("")
		nobody.rows(`begin`)
		nobody.want("f", look)
		s.tick("q")
		nobody.want("t", look)
		nobody.want("-", `select pg_current_xact_id_if_assigned()`)
		nobody.rows(`commit`)

		s.receive("q", "a")
		s.rows(`begin`)
		s.receive("q", "a")
		if s.one(`select pg_current_xact_id_if_assigned()`) == "-" {
			t.Error("an empty receive assigns no transaction id")
		}
	}},

	{"get_queue_info", func(t *testing.T, r *release) {
		s := r.open(t)
		s.queue("q")
		s.tick("q")
		s.send("q", 4)
		s.want("4", `select ev_new from pgque.get_queue_info('q')`)
	}},
}
