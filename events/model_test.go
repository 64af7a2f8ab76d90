package events_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/events/eventstest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// The model test does random things to a queue and its consumers, the worst among
// them, and holds what is delivered against a model of what must be, and how often
// at most (model_fate_test.go).
//
//	go test ./events -run TestModel -events.model 1h      # for long
//	go test ./events -run TestModel -events.seed 12345 -v # one world again
var (
	modelTime = flag.Duration("events.model", 0, "how long TestModel runs: 10s unless CI=true, then 1m")
	modelSeed = flag.Uint64("events.seed", 0, "the only seed of TestModel")
)

func TestModel(t *testing.T) {
	t.Parallel()
	limit := cmp.Or(*modelTime, 10*time.Second)
	if *modelTime == 0 && os.Getenv("CI") == "true" {
		limit = time.Minute
	}
	var places []*place
	for _, v := range pgtest.Variants(t) {
		places = append(places, newPlace(t, v))
	}
	if *modelSeed != 0 {
		newWorld(t, places, *modelSeed).live()
		return
	}
	first := uint64(time.Now().UnixNano()) % 1e12
	worlds := uint64(0)
	for began := time.Now(); time.Since(began) < limit && !t.Failed(); worlds++ {
		newWorld(t, places, first+worlds).live()
	}
	t.Logf("%d worlds, from seed %d on", worlds, first)
}

// place is a database with PgQue in it, for one world at a time.
type place struct {
	name           string
	url, readerURL string
	pool, app      *pgxpool.Pool
}

func newPlace(t *testing.T, v pgtest.Variant) *place {
	db := pgtest.Database(t)
	db.Install(t, v)
	login := db.Role(t)
	db.Exec(t, fmt.Sprintf("grant pgque_reader to %q", login))
	app := pgtest.Database(t)
	app.Exec(t, events.InboxDDL+"create table effect (queue text, id bigint)")
	return &place{name: v.Name, url: db.URL, readerURL: db.URLAs(login), pool: db.Pool(t), app: app.Pool(t)}
}

// world is one random history of a queue.
type world struct {
	*place
	t          *testing.T
	seed       uint64
	rng        *rand.Rand
	queue      string
	maxRetries int
	history    []string

	sent      map[int64]bool // committed
	slow      pgx.Tx         // a sender's transaction that is still open
	slowIDs   []int64
	consumers []*modelConsumer
}

func newWorld(t *testing.T, places []*place, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	w := &world{place: places[rng.IntN(len(places))], t: t, seed: seed, rng: rng, queue: fmt.Sprint("model ", seed), sent: map[int64]bool{}}
	w.maxRetries = rng.IntN(4)
	w.must(events.EnsureQueue(t.Context(), w.pool, w.queue, events.Settings{"max_retries": fmt.Sprint(w.maxRetries)}))
	for _, name := range []string{"plain", "tx", "reader"} {
		url := w.url
		if name == "reader" {
			url = w.readerURL
		}
		c := &modelConsumer{w: w, name: name, rng: rand.New(rand.NewPCG(seed, uint64(len(w.consumers)+1))), fates: map[int64]*fate{}}
		c.pool = c.net.pool(t, url)
		w.must(events.Subscribe(t.Context(), w.pool, w.queue, name))
		w.consumers = append(w.consumers, c)
	}
	return w
}

func (w *world) must(_ any, err error) {
	w.t.Helper()
	if err != nil {
		w.fail("%v", err)
		w.t.FailNow()
	}
}

// fail reports what is wrong with the world's whole history. It may be called from
// any goroutine.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("seed %d (%s): %s", w.seed, w.place.name, fmt.Sprintf(format, args...))
}

func (w *world) did(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

func (w *world) live() {
	defer func() {
		for _, c := range w.consumers {
			c.pool.Close()
		}
		if w.t.Failed() {
			w.t.Logf("seed %d, max_retries %d:\n%s", w.seed, w.maxRetries, strings.Join(w.history, "\n"))
			return
		}
		w.must(nil, events.DropQueue(context.Background(), w.pool, w.queue, true))
	}()
	actions := []func(){
		w.publish, w.publish, w.publish, w.publishSlowly, w.publishForNothing, w.tick, w.tick, w.retry, w.retry, w.hour, w.replay, w.rotate,
		w.step, w.step, w.step, w.step, w.step, w.step, w.run, w.run,
	}
	for range 20 + w.rng.IntN(40) {
		actions[w.rng.IntN(len(actions))]()
		for _, c := range w.consumers {
			c.check()
		}
		if w.t.Failed() {
			return
		}
	}
	w.rest()
}

func (w *world) some() []events.Event {
	n := 1 + w.rng.IntN(5)
	if w.rng.IntN(20) == 0 {
		n = 150
	}
	es := make([]events.Event, n)
	for i := range es {
		es[i] = events.Event{Type: "t", Payload: fmt.Append(nil, w.rng.IntN(3))}
		if w.rng.IntN(5) == 0 {
			es[i].Headers = map[string]string{"trace": "x"}
		}
	}
	return es
}

func (w *world) committed(ids []int64) {
	for _, id := range ids {
		w.sent[id] = true
	}
}

func (w *world) publish() {
	ids, err := events.SendBatch(w.t.Context(), w.pool, w.queue, w.some())
	w.must(nil, err)
	w.committed(ids)
	w.did("publish %d", ids)
}

// publishSlowly keeps a sender's transaction open over other things, ticks among
// them: its events have low numbers and come late.
func (w *world) publishSlowly() {
	if w.slow != nil {
		w.must(nil, w.slow.Commit(w.t.Context()))
		w.committed(w.slowIDs)
		w.did("commit %d", w.slowIDs)
		w.slow = nil
		return
	}
	tx, err := w.pool.Begin(w.t.Context())
	w.must(nil, err)
	w.slowIDs, err = events.SendBatch(w.t.Context(), tx, w.queue, w.some())
	w.must(nil, err)
	w.slow = tx
	w.did("publish %d without a commit", w.slowIDs)
}

func (w *world) publishForNothing() {
	tx, err := w.pool.Begin(w.t.Context())
	w.must(nil, err)
	ids, err := events.SendBatch(w.t.Context(), tx, w.queue, w.some())
	w.must(nil, err)
	w.must(nil, tx.Rollback(w.t.Context()))
	w.did("publish %d and roll back", ids)
}

func (w *world) tick() {
	eventstest.Tick(w.t, w.pool, w.queue)
	w.did("tick")
}

// retry brings retries forward, but no booking: that would be an hour.
func (w *world) retry() { w.bringForward("30 minutes", false) }

// hour lets a booking fall due although its batch may still be open: both copies
// are then delivered.
func (w *world) hour() { w.bringForward("2 hours", true) }

func (w *world) bringForward(due string, bookings bool) {
	rows, err := w.pool.Query(w.t.Context(), `update pgque.retry_queue r set ev_retry_after = '-infinity'
		from pgque.queue q, pgque.subscription s join pgque.consumer c on c.co_id = s.sub_consumer
		where q.queue_id = r.ev_queue and q.queue_name = $1 and s.sub_id = r.ev_owner and r.ev_retry_after < now() + $2::text::interval
		returning c.co_name, r.ev_id, s.sub_batch is not null`, w.queue, due)
	w.must(nil, err)
	var name string
	var id int64
	var open bool
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &id, &open}, func() error {
		n++
		if open && bookings {
			w.consumer(name).excuse(id)
		}
		return nil
	})
	w.must(nil, err)
	for moved := 1; moved > 0; {
		w.must(nil, w.pool.QueryRow(w.t.Context(), "select pgque.maint_retry_events()").Scan(&moved))
	}
	w.tick()
	w.did("%s pass, %d retries", due, n)
}

func (w *world) consumer(name string) *modelConsumer {
	return w.consumers[slices.IndexFunc(w.consumers, func(c *modelConsumer) bool { return c.name == name })]
}

func (w *world) anyConsumer() *modelConsumer { return w.consumers[w.rng.IntN(len(w.consumers))] }

func (w *world) replay() {
	c := w.anyConsumer()
	filter := events.DeadLetterFilter{Queue: w.queue, Consumer: c.name}
	n := 0
	for d, err := range events.DeadLetters(w.t.Context(), w.pool, filter) {
		w.must(nil, err)
		c.excuse(d.Event.ID)
		n++
	}
	replayed, err := events.Replay(w.t.Context(), w.pool, filter)
	w.must(nil, err)
	if replayed != n {
		w.fail("replayed %d of %d dead letters", replayed, n)
	}
	w.did("replay %d to %s", n, c.name)
}

func (w *world) rotate() {
	for _, sql := range []string{
		"update pgque.queue set queue_switch_time = now() - interval '1 day' where queue_name = $1",
		"select pgque.maint_rotate_tables_step1($1)",
		"select pgque.maint_rotate_tables_step2() where $1::text is not null",
	} {
		w.must(w.pool.Exec(w.t.Context(), sql, w.queue))
	}
	w.did("rotate")
}

// step is one batch of a process that may die at any point.
func (w *world) step() {
	c := w.anyConsumer()
	ctx, how := w.t.Context(), ""
	if w.rng.IntN(3) == 0 {
		point, nth := eventstest.Points[w.rng.IntN(len(eventstest.Points))], 1+w.rng.IntN(4)
		ctx, how = eventstest.CrashAt(ctx, point, nth), fmt.Sprintf(", to crash at %s %d", point, nth)
	}
	w.did("%s: step%s", c.name, how)
	n, err := c.step(ctx)
	w.did("%s: %d events, %v", c.name, n, err)
}

// run is a process that is stopped after a while, one way or another.
func (w *world) run() {
	w.tick()
	c := w.anyConsumer()
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	if w.rng.IntN(4) == 0 {
		ctx = eventstest.CrashAt(ctx, eventstest.Points[w.rng.IntN(len(eventstest.Points))], 1+w.rng.IntN(9))
	}
	life, abort := time.Duration(10+w.rng.IntN(100))*time.Millisecond, w.rng.IntN(4) == 0
	if w.rng.IntN(6) == 0 {
		life *= 10
	}
	w.did("%s: run for %s, abort=%v", c.name, life, abort)
	consumer, end := c.process(false)
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()
	var err error
	select {
	case err = <-done:
	case <-time.After(life):
		if abort {
			consumer.Abort()
		}
		stop()
		select {
		case err = <-done:
		case <-time.After(time.Minute):
			w.fail("Run of %s does not return", c.name)
			w.t.FailNow()
		}
	}
	c.running.Wait()
	end(err)
	w.did("%s: ran, %v", c.name, err)
}

// rest lets everything come to its end, with handlers that do their work.
func (w *world) rest() {
	if w.slow != nil {
		w.publishSlowly()
	}
	for _, c := range w.consumers {
		c.calm = true
	}
	w.tick()
	w.did("rest")
	for round := 0; ; round++ {
		for _, c := range w.consumers {
			for n := 1; n > 0; {
				var err error
				// A process that was ended in the middle of asking for the lease can have
				// it until the server has noticed.
				for patience := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
					if n, err = c.step(w.t.Context()); !errors.Is(err, events.ErrLeased) || time.Now().After(patience) {
						break
					}
				}
				if err != nil {
					w.fail("%s: step while all is calm: %v", c.name, err)
					return
				}
			}
		}
		var left int
		w.must(nil, w.pool.QueryRow(w.t.Context(), `select (select count(*) from pgque.retry_queue r join pgque.queue on queue_id = r.ev_queue where queue_name = $1)
			+ (select count(*) from pgque.subscription s join pgque.queue on queue_id = s.sub_queue where queue_name = $1 and s.sub_batch is not null)`, w.queue).Scan(&left))
		if left == 0 {
			break
		}
		if round == 30 {
			w.fail("%d things are still to be done", left)
			return
		}
		w.hour()
	}
	for _, c := range w.consumers {
		c.check()
		c.checkEnd()
	}
}
