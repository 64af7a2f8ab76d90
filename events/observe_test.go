package events_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// What the log says of trouble is observed as well, so that nobody has to read it
// to count.
func TestTroubleIsObserved(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		db, pool := setUp(t, v)
		mend := failAcks(t, db)
		publish(t, pool, 1)
		eventstest.Tick(t, pool, queue)
		var mu sync.Mutex
		var seen []string
		saw := func(what string) bool {
			mu.Lock()
			defer mu.Unlock()
			return strings.Contains(strings.Join(seen, " ")+" ", what+" ")
		}
		observer := func(who string) events.Observer {
			return func(o events.Observation) {
				mu.Lock()
				defer mu.Unlock()
				switch o := o.(type) {
				case events.StandingBy:
					if o == (events.StandingBy{Queue: queue, Consumer: consumer}) {
						seen = append(seen, who+":standing-by")
					}
				case events.ConsumerFailed:
					if o.Queue == queue && o.Consumer == consumer && o.Err != nil {
						seen = append(seen, who+":"+o.Action)
					}
				}
			}
		}
		done := func(context.Context, *events.Event) error { return nil }
		start(t, db.Pool(t), events.ConsumerConfig{Observer: observer("a")}, done)
		until(t, "a settling that fails", func() bool { return saw("a:settle") })
		start(t, db.Pool(t), events.ConsumerConfig{Observer: observer("b")}, done)
		until(t, "standing by", func() bool { return saw("b:standing-by") })
		if saw("a:consume") || saw("b:consume") || saw("a:standing-by") {
			t.Error("observed what was not")
		}
		mend()
		db.Exec(t, `select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted
			and database = (select oid from pg_database where datname = current_database())`)
		until(t, "an interruption", func() bool { return saw("a:consume") })
	})
}
