package events_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// inboxRun is a consumer of [events.HandleTx] whose events have one attempt.
type inboxRun struct {
	*events.Consumer
	log logBuffer

	mu      sync.Mutex
	handled []events.Handled
	effects []int
}

func newInboxRun(t *testing.T, pool events.DB, cfg events.ConsumerConfig, make func(events.ConsumerConfig) *events.Consumer, db events.DB) *inboxRun {
	t.Helper()
	if _, err := pool.Exec(t.Context(), "select pgque.set_queue_config($1, 'max_retries', '0')", queue); err != nil {
		t.Fatal(err)
	}
	r := &inboxRun{}
	cfg.Logger = slog.New(slog.NewTextHandler(&r.log, nil))
	cfg.Observer = func(o events.Observation) {
		if h, ok := o.(events.Handled); ok {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.handled = append(r.handled, h)
		}
	}
	r.Consumer = make(cfg)
	events.HandleTx(r.Consumer, db, events.Define[int]("t"), func(_ context.Context, _ pgx.Tx, _ *events.Event, n int) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.effects = append(r.effects, n)
		return nil
	})
	return r
}

// A table that cannot tell what is done loses no event: none is taken for done, and
// none becomes a dead letter. All wait until the table is right.
func TestUnusableInbox(t *testing.T) {
	for name, c := range map[string]struct{ ddl, says string }{
		"missing":         {"", "missing; create it with events.InboxDDL"},
		"other columns":   {"create table pgque_inbox (id int)", "events.InboxDDL"},
		"no key":          {"create table pgque_inbox (queue text, consumer text, key text, done_at timestamptz default now())", "events.InboxDDL"},
		"a shorter key":   {"create table pgque_inbox (queue text, consumer text, key text, primary key (queue, consumer))", "events.InboxDDL"},
		"a longer key":    {"create table pgque_inbox (queue text, consumer text, key text, done_at timestamptz default now(), primary key (queue, consumer, key, done_at))", "events.InboxDDL"},
		"no room":         {"create table pgque_inbox (queue text, consumer text, key varchar(3), primary key (queue, consumer, key))", "events.InboxDDL"},
		"another column":  {"create table pgque_inbox (queue text, consumer text, key text, app int not null, primary key (queue, consumer, key))", "events.InboxDDL"},
		"a view":          {"create view pgque_inbox as select 'q' as queue, 'c' as consumer, 'k' as key", "events.InboxDDL"},
		"a silent rule":   {events.InboxDDL + "create rule nothing as on insert to pgque_inbox do instead nothing", "pgque_inbox"},
		"a trigger":       {events.InboxDDL + "create function nothing() returns trigger language plpgsql as 'begin return null; end'; create trigger nothing before insert on pgque_inbox for each row execute function nothing()", "a trigger"},
		"without a grant": {events.InboxDDL + "revoke all on pgque_inbox from public", "grant it select and insert"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, pool := setUp(t, newest(t))
			app := pgtest.Database(t)
			app.Exec(t, c.ddl)
			login := app.Role(t)
			app.Exec(t, fmt.Sprintf("grant usage on schema public to %q", login))
			if name != "without a grant" && c.ddl != "" {
				app.Exec(t, fmt.Sprintf("grant all on pgque_inbox to %q", login))
			}
			r := newInboxRun(t, pool, events.ConsumerConfig{Workers: 2}, func(cfg events.ConsumerConfig) *events.Consumer {
				return events.NewConsumer(db.Pool(t), queue, consumer, cfg)
			}, app.PoolAs(t, login))
			publish(t, pool, 2)
			eventstest.Drain(t, pool, queue, r.Consumer)
			if len(r.handled) != 2 || len(r.effects) != 0 {
				t.Fatalf("observed %+v, effects %v", r.handled, r.effects)
			}
			for _, h := range r.handled {
				if h.Outcome != events.OutcomeHandedBack || !strings.Contains(fmt.Sprint(h.Err), c.says) {
					t.Errorf("%s: %v", h.Outcome, h.Err)
				}
			}
			if !strings.Contains(r.log.String(), "level=ERROR") || !strings.Contains(r.log.String(), "pgque_inbox") {
				t.Errorf("log:\n%s", r.log.String())
			}
			if n := value[int](t, pool, dead); n != 0 {
				t.Errorf("%d dead letters", n)
			}

			kind := "table"
			if name == "a view" {
				kind = "view"
			}
			app.Exec(t, "drop "+kind+" if exists pgque_inbox; "+events.InboxDDL+fmt.Sprintf("grant select, insert on pgque_inbox to %q", login))
			eventstest.RetryNow(t, pool, queue)
			eventstest.Drain(t, pool, queue, r.Consumer)
			if len(r.effects) != 2 {
				t.Errorf("effects with the table as it should be: %v", r.effects)
			}
		})
	}
}

// inboxDatabase is a database with the inbox and a setting of its own, if any.
func inboxDatabase(t *testing.T, setting string) *pgtest.DB {
	t.Helper()
	app := pgtest.Database(t)
	app.Exec(t, events.InboxDDL)
	if setting != "" {
		app.Exec(t, fmt.Sprintf("alter database %q set %s", app.Name, setting))
	}
	return app
}

// A process that was frozen or cut off in its handler keeps the event's row locked.
// The next one does not let the event pay for that.
func TestInboxRowIsHeld(t *testing.T) {
	for name, setting := range map[string]string{
		"no limit": "", "short lock_timeout": "lock_timeout = '100ms'", "short statement_timeout": "statement_timeout = '4s'",
		"serializable": "default_transaction_isolation = 'serializable'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, pool := setUp(t, newest(t))
			app := inboxDatabase(t, setting)
			r := newInboxRun(t, pool, events.ConsumerConfig{}, func(cfg events.ConsumerConfig) *events.Consumer {
				return events.NewConsumer(db.Pool(t), queue, consumer, cfg)
			}, app.Pool(t))
			tx, err := app.Connect(t).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), "insert into pgque_inbox values ('q', 'c', 'key:t:job 1')"); err != nil {
				t.Fatal(err)
			}
			held := events.Define[int]("t").New(1).WithHeader(events.IdempotencyKey, "job 1")
			if _, err := events.SendBatch(t.Context(), pool, queue, []events.Event{held, events.Define[int]("t").New(2)}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				eventstest.Drain(t, pool, queue, r.Consumer)
				eventstest.RetryNow(t, pool, queue)
			}
			if len(r.handled) != 3 || r.handled[0].Outcome != events.OutcomeHandedBack || r.handled[1].Outcome != events.OutcomeDone ||
				r.handled[2].Outcome != events.OutcomeHandedBack || r.handled[2].Attempt != 1 {
				t.Errorf("observed %+v", r.handled)
			}
			until(t, "the end of the waits at the server", func() bool {
				return app.Value(t, "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == "0"
			})
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventstest.Drain(t, pool, queue, r.Consumer)
			if got := fmt.Sprint(r.effects); got != "[2 1]" {
				t.Errorf("effects %s, want [2 1]", got)
			}
			if n := value[int](t, pool, dead); n != 0 {
				t.Errorf("%d dead letters", n)
			}
		})
	}
}
