package events

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// How a login has times and numbers written is its own affair, and nothing to go by.
func TestSettingsOfTheLogin(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, plain := tickerDatabase(t, v)
		if _, err := EnsureQueue(t.Context(), plain, "q", Settings{"rotation_period": "3 hours 2 minutes", "ticker_idle_period": "71 s"}); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `select pgque.subscribe('q', 'c')`)
		db.Exec(t, `select pgque.send('q', 't', '{}'::jsonb)`)
		db.Exec(t, `insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, ev_id, ev_time) select sub_queue, sub_consumer, 1, now() from pgque.subscription`)
		db.Exec(t, `select pgque.event_retry_raw('q', 'c', now() - interval '2140 seconds', 1, now(), 1, 't', '{}', null, null, null, null)`)
		db.Exec(t, `update pgque.tick set tick_time = now() - interval '2140 seconds'`)
		db.Exec(t, `insert into pgque.tick (tick_queue, tick_id, tick_time, tick_snapshot, tick_event_seq)
			select tick_queue, max(tick_id) + 1, now() - interval '2140 seconds', '1:2:', max(tick_event_seq) from pgque.tick group by tick_queue`)
		want := sessionSees(t, plain)
		for _, setting := range []string{"datestyle = 'SQL, DMY'", "datestyle = 'German'", "datestyle = 'Postgres, MDY'", "intervalstyle = 'sql_standard'",
			"intervalstyle = 'iso_8601'", "extra_float_digits = -15", "bytea_output = 'escape'", "timezone = 'Asia/Kathmandu'"} {
			role := db.Role(t)
			db.Exec(t, "grant pgque_admin to "+role)
			db.Exec(t, fmt.Sprintf("alter role %s set %s", role, setting))
			if got := sessionSees(t, db.PoolAs(t, role)); got != want {
				t.Errorf("%s:\n%s\nand without it:\n%s", setting, got, want)
			}
		}
	})
}

// sessionSees is what there is to look at, without what goes on with time.
func sessionSees(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	var seen []any
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	peeked, err := Peek(t.Context(), pool, "q", 10)
	must(err)
	for i := range peeked {
		seen = append(seen, peeked[i].ID, peeked[i].Time)
	}
	for d, err := range DeadLetters(t.Context(), pool, DeadLetterFilter{}) {
		must(err)
		seen = append(seen, d.ID, d.Died, d.Event.Time)
	}
	queues, err := Queues(t.Context(), pool)
	must(err)
	for _, q := range queues {
		q.TickAge, q.RotationAge = aged(q.TickAge), aged(q.RotationAge)
		seen = append(seen, q)
	}
	consumers, err := Consumers(t.Context(), pool, "")
	must(err)
	for _, c := range consumers {
		c.Lag, c.Active = aged(c.Lag), aged(c.Active)
		seen = append(seen, c)
	}
	found, err := Health(t.Context(), pool, HealthConfig{})
	must(err)
	for _, f := range found {
		if f.Code != CodeSuperuserOwned { // of other tests
			seen = append(seen, f.Code, aged(f.Age))
		}
	}
	looked, err := lookForTicks(t.Context(), pool, nil, nil)
	must(err)
	seen = append(seen, len(looked))
	text, err := json.MarshalIndent(seen, "", "  ")
	must(err)
	return string(text)
}

// aged is an age without the time that the test takes. Most digits of the age that
// the test gave are lost where one digit is written.
func aged(d time.Duration) time.Duration {
	const made = 2140 * time.Second
	if d < made {
		return 0
	}
	return made
}
