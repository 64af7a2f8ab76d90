package events_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
)

// In five minutes more happens than in a day: its rotations (12 at PgQue's two
// hours), its rounds of maintenance (2,880), its retries.
//
//	go test ./events -run TestDay -events.day 5m -timeout 30m -v
var dayTime = flag.Duration("events.day", 5*time.Second, "for how long TestDay publishes")

// A day of everything at once, pressed into a short time: rotation every second
// under load, retries and dead letters, a consumer that is killed again and again,
// another whose lease is lost again and again, tickers that come and go, connections
// that are retired every two seconds. Every event is handled by both consumers, none
// dies that should not, and the tables stay small.
func TestDay(t *testing.T) {
	t.Parallel()
	d := newDay(t)
	var publishers sync.WaitGroup
	for range 2 {
		publishers.Go(d.publish)
	}
	publishers.Wait()
	d.calm.Store(true)
	if d.rotations.Load() == 0 || d.kills.Load() == 0 || d.leases.Load() == 0 {
		t.Errorf("only %d rotations, %d kills, %d leases lost", d.rotations.Load(), d.kills.Load(), d.leases.Load())
	}

	deaths := 0 // at each consumer
	for n := range int(d.sent.Load()) {
		if mortal(n) {
			deaths++
		}
	}
	for _, c := range d.consumers {
		until(t, c.name+" to have handled all", func() bool { n, _ := c.handled.count(); return n == int(d.sent.Load())-deaths })
	}
	until(t, "all deaths", func() bool { return value[int](t, d.direct, dead) >= 2*deaths })
	until(t, "small tables", func() bool {
		return value[int](t, d.direct, retries) == 0 && value[int](t, d.direct, d.rows) == 0 && value[int](t, d.direct, "select count(*) from pgque.tick") < 100
	})
	seen := map[string]bool{}
	for letter, err := range events.DeadLetters(t.Context(), d.direct, events.DeadLetterFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(string(letter.Event.Payload))
		who := letter.Event.Consumer + string(letter.Event.Payload)
		if !mortal(n) || seen[who] {
			t.Errorf("event %d is a dead letter of %s, perhaps again: %s", n, letter.Event.Consumer, letter.Reason)
		}
		seen[who] = true
	}
	t.Logf("%d events, %d of them mortal; %d rotations, %d rounds of maintenance, %d retries, %d kills, %d leases lost, at most %d rows in the event tables",
		d.sent.Load(), deaths, d.rotations.Load(), d.rounds.Load(), d.retried.Load(), d.kills.Load(), d.leases.Load(), d.most.Load())
	for _, c := range d.consumers {
		_, times := c.handled.count()
		t.Logf("%s handled events %d times", c.name, times)
	}
}

// day is what goes on beside the publishers until the test ends.
type day struct {
	t         *testing.T
	url       string
	direct    *pgxpool.Pool
	pool      *pgxpool.Pool // of short-lived connections
	rows      string        // a query for how many rows are in the event tables
	consumers []*dayConsumer
	sent      atomic.Int64
	calm      atomic.Bool // nobody is killed any more

	rotations, rounds, retried, kills, leases, most atomic.Int64
}

type dayConsumer struct {
	name    string
	handled tally
}

func newDay(t *testing.T) *day {
	db, direct := setUp(t, newest(t))
	_, err := events.EnsureQueue(t.Context(), direct, queue, events.Settings{
		"rotation_period": "1 second", "ticker_idle_period": "2 seconds", "ticker_max_lag": "20 milliseconds"})
	if err != nil {
		t.Fatal(err)
	}
	d := &day{t: t, url: db.URL, direct: direct, consumers: []*dayConsumer{{name: consumer}, {name: "steady"}},
		rows: "select count(*) from " + value[string](t, direct, "select queue_data_pfx from pgque.queue")}
	if _, err := events.Subscribe(t.Context(), direct, queue, "steady"); err != nil {
		t.Fatal(err)
	}
	d.pool = newPool(t, db.URL, func(c *pgxpool.Config) { c.MaxConnLifetime, c.MaxConns = 2*time.Second, 20 })

	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { stop(); all.Wait() })
	for range 2 {
		all.Go(func() { d.ended(d.ticker().Run(ctx)) })
	}
	all.Go(func() { d.steady(ctx) })
	all.Go(func() { d.killAgainAndAgain(ctx) })
	for _, do := range []func(context.Context){d.maintain, d.bringForward, d.loseLeases, d.watch} {
		all.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
			}
		})
	}
	return d
}

func (d *day) ended(err error) {
	if err != nil {
		d.t.Error(err)
	}
}

func (d *day) ticker() *events.Ticker {
	return events.NewTicker(d.pool, events.TickerConfig{Every: 20 * time.Millisecond})
}

// publish sends for the day, no faster than events are handled.
func (d *day) publish() {
	enough := func() bool { return d.rotations.Load() >= 2 && d.kills.Load() >= 2 && d.leases.Load() >= 2 }
	for began := time.Now(); time.Since(began) < *dayTime || !enough() && time.Since(began) < *dayTime+patience; nap(d.t.Context(), 50*time.Millisecond) {
		last := d.sent.Add(10)
		es := make([]events.Event, 10)
		for i := range es {
			es[i] = events.Event{Type: fmt.Sprint("t", i/7), Payload: fmt.Append(nil, int(last)-10+i)}
		}
		if _, err := events.SendBatch(d.t.Context(), d.pool, queue, es); err != nil {
			d.t.Errorf("send: %v", err)
			return
		}
		until(d.t, "consumers to keep up", func() bool {
			for _, c := range d.consumers {
				if n, _ := c.handled.count(); n < int(d.sent.Load())*9/10-2000 {
					return false
				}
			}
			return true
		})
	}
}

func (d *day) steady(ctx context.Context) {
	c := events.NewConsumer(d.pool, queue, "steady", events.ConsumerConfig{Workers: 3, Poll: 50 * time.Millisecond, Backoff: dayBackoff})
	c.HandleAny(dayHandler(func(e *events.Event) { d.consumers[1].handled.add(e) }))
	d.ended(c.Run(ctx))
}

func (d *day) killAgainAndAgain(ctx context.Context) {
	for ctx.Err() == nil {
		cmd := exec.CommandContext(ctx, os.Args[0]) // killed at the end, too
		cmd.Env = append(os.Environ(), "EVENTS_TEST_DAY="+d.url)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			d.t.Error(err)
			return
		}
		lines := make(chan string, 100)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				lines <- s.Text()
			}
		}()
		killAt, handled := time.Now().Add(time.Duration(200+rand.IntN(800))*time.Millisecond), 0
		for alive := true; alive; {
			select {
			case line, ok := <-lines:
				if alive = ok; ok {
					handled++
					d.consumers[0].handled.add(&events.Event{Payload: []byte(line)})
				}
			case <-time.After(20 * time.Millisecond):
			}
			// It gets somewhere first, or on a slow machine none ever would.
			if handled >= 20 && time.Now().After(killAt) && !d.calm.Load() {
				_ = cmd.Process.Kill()
				killAt = time.Now().Add(time.Hour)
				d.kills.Add(1)
			}
		}
		_ = cmd.Wait()
	}
}

// maintain is a ticker that starts, does its first round of maintenance, and stops.
func (d *day) maintain(ctx context.Context) {
	round, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	d.ended(d.ticker().Run(round))
	d.rounds.Add(1)
}

// bringForward lets the time until retries pass, and for bookings of the crash guard
// when their batch is finished: no handler of a living process runs that long.
func (d *day) bringForward(ctx context.Context) {
	tag, err := d.direct.Exec(ctx, `update pgque.retry_queue r set ev_retry_after = now() from pgque.subscription s
		where s.sub_id = r.ev_owner and r.ev_retry_after > now() and (r.ev_retry_after < now() + interval '30 minutes' or s.sub_batch is null)`)
	if err == nil {
		d.retried.Add(tag.RowsAffected())
	} else if ctx.Err() == nil {
		d.t.Error(err)
	}
	nap(ctx, 200*time.Millisecond)
}

func (d *day) loseLeases(ctx context.Context) {
	nap(ctx, time.Duration(300+rand.IntN(1000))*time.Millisecond)
	if d.calm.Load() {
		return
	}
	tag, err := d.direct.Exec(ctx, `select pg_terminate_backend(pid) from (select distinct pid from pg_locks where locktype = 'advisory' and granted and objsubid = 1
		and database = (select oid from pg_database where datname = current_database())) holders`)
	if err == nil {
		d.leases.Add(tag.RowsAffected())
	}
}

// watch counts rotations and how large the event tables get.
func (d *day) watch(ctx context.Context) {
	var last string
	for ; ctx.Err() == nil; nap(ctx, 100*time.Millisecond) {
		var switched string
		var rows int64
		err := d.direct.QueryRow(ctx, "select queue_switch_time::text, ("+d.rows+") from pgque.queue").Scan(&switched, &rows)
		if err != nil {
			continue
		}
		if last != "" && switched != last {
			d.rotations.Add(1)
		}
		last = switched
		d.most.Store(max(d.most.Load(), rows))
	}
}

func nap(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// mortal events end as dead letters: the first kind asks for it, the second fails
// whenever it is tried.
func mortal(n int) bool { return n%89 == 0 || n%97 == 0 }

func dayHandler(handled func(*events.Event)) events.Handler {
	return func(_ context.Context, e *events.Event) error {
		n, err := strconv.Atoi(string(e.Payload))
		switch {
		case err != nil:
			return err
		case n%89 == 0:
			return events.Dead(fmt.Errorf("event %d is doomed", n))
		case n%97 == 0 || n%13 == 0 && e.Attempt == 1:
			return fmt.Errorf("event %d fails at attempt %d", n, e.Attempt)
		}
		handled(e)
		return nil
	}
}

// dayBackoff leaves it to bringForward when an event is tried again.
func dayBackoff(int) time.Duration { return 10 * time.Minute }

// dayWork is the process that is killed.
func dayWork(pool *pgxpool.Pool) error {
	c := handler(pool, events.ConsumerConfig{Workers: 2, Poll: 50 * time.Millisecond, Backoff: dayBackoff},
		dayHandler(func(e *events.Event) { fmt.Println(string(e.Payload)) }))
	return c.Run(context.Background())
}
