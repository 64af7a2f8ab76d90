package events_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
)

// fate is what the model knows of one event at one consumer.
//
// An event may be delivered once, and once more for each excuse: a handler that
// failed, a process that ended before it had settled, a replay.
type fate struct {
	delivered int
	excuses   int
	handled   bool // a handler has done or skipped it
	effect    bool // a handler has done it, so its effect in the database is there
	died      bool // a handler asked for its death
	failures  int  // of its handlers, that were or may have been settled
	paid      int  // attempts spent beyond those: by crashes
}

// modelConsumer is a subscription with what its events met.
type modelConsumer struct {
	w    *world
	name string
	pool *pgxpool.Pool
	net  lossy
	calm bool

	running sync.WaitGroup // handlers, also those that were left behind
	mu      sync.Mutex     // for all below
	rng     *rand.Rand
	fates   map[int64]*fate
	broken  int // processes that ended, or lost the lease, with a batch open
}

func (c *modelConsumer) roll(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *modelConsumer) fate(id int64) *fate {
	if c.fates[id] == nil {
		c.fates[id] = &fate{}
	}
	return c.fates[id]
}

func (c *modelConsumer) excuse(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fate(id).excuses++
}

// modelProcess is one call of Run or Step.
type modelProcess struct {
	c       *modelConsumer
	calm    bool
	ordered bool
	holds   bool
	batch   map[int64]events.Outcome // delivered since the last settling
	last    map[string]int64         // by key, in this batch
	held    map[string]bool
}

func modelKey(e *events.Event) string { return string(e.Payload) }

// process makes a consumer, and a function to call when it has ended.
func (c *modelConsumer) process(calm bool) (*events.Consumer, func(error)) {
	p := &modelProcess{c: c, calm: calm || c.calm}
	p.settled()
	cfg := events.ConsumerConfig{Workers: 1 + c.roll(4), Grace: 3 * time.Second, Poll: 10 * time.Millisecond, Observer: p.observe,
		Backoff: func(int) time.Duration { return time.Minute }}
	switch c.roll(3) {
	case 0:
		cfg.Key = modelKey
	case 1:
		cfg.Key, cfg.OnFailure = modelKey, events.HoldKey
		p.holds = c.name != "reader" // which cannot hold an event back at its last attempt
	}
	p.ordered = cfg.Key != nil || cfg.Workers == 1
	consumer := events.NewConsumer(c.pool, c.w.queue, c.name, cfg)
	consumer.Use(p.deliver)
	if c.name == "tx" {
		events.HandleTx(consumer, c.w.app, events.Define[int]("t"), func(ctx context.Context, tx pgx.Tx, e *events.Event, _ int) error {
			if _, err := tx.Exec(ctx, "insert into effect values ($1, $2)", e.Queue, e.ID); err != nil {
				return err
			}
			return p.outcome(ctx)
		})
	} else {
		consumer.HandleAny(func(ctx context.Context, _ *events.Event) error { return p.outcome(ctx) })
	}
	c.net.when(nil)
	if !p.calm && c.roll(4) == 0 {
		c.net.when(func(sent []byte) bool {
			return c.roll(60) == 0 || bytes.Contains(sent, []byte("commit")) && c.roll(10) == 0
		})
	}
	return consumer, func(err error) {
		c.net.when(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err != nil {
			c.broken++
		}
		p.interrupted()
	}
}

func (c *modelConsumer) step(ctx context.Context) (int, error) {
	consumer, end := c.process(false)
	n, err := consumer.Step(ctx)
	c.running.Wait()
	end(err)
	return n, err
}

// deliver is the outermost layer: it books the delivery, and may fail although the
// handler has done its work.
func (p *modelProcess) deliver(next events.Handler) events.Handler {
	return func(ctx context.Context, e *events.Event) error {
		p.c.running.Add(1)
		defer p.c.running.Done()
		p.delivered(e)
		failed := true // unless it returns
		defer func() {
			if failed {
				p.hold(e)
			}
		}()
		if !p.calm {
			switch p.c.roll(60) {
			case 0:
				p.c.loseLease()
			case 1: // another process takes over, while this one goes on for a while
				p.c.loseLease()
				rival, end := p.c.process(true)
				_, err := rival.Step(ctx)
				end(err)
			}
		}
		err := next(ctx, e)
		if err == nil {
			p.c.mu.Lock()
			p.c.fate(e.ID).effect = true
			p.c.mu.Unlock()
			if !p.calm && p.c.roll(30) == 0 {
				err = errors.New("after the work was done")
			}
		}
		failed = err != nil && !errors.Is(err, events.Skip) && !errors.Is(err, errDeath)
		return err
	}
}

// errDeath is why handlers ask for an event's death, which holds no key.
var errDeath = errors.New("dead")

func (p *modelProcess) hold(e *events.Event) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.held[modelKey(e)] = true
}

func (c *modelConsumer) loseLease() {
	_, _ = c.w.pool.Exec(context.Background(), `select pg_terminate_backend(l.pid) from pg_locks l
		where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.database = (select oid from pg_database where datname = current_database())`)
}

func (p *modelProcess) outcome(ctx context.Context) error {
	if p.calm {
		return nil
	}
	c := p.c
	switch c.roll(40) {
	case 0, 1, 2:
		return errors.New("failed")
	case 3:
		return events.RetryAfter(time.Duration(c.roll(600))*time.Second, nil)
	case 4:
		return events.Dead(errDeath)
	case 5:
		return events.Skip
	case 6:
		panic("panic")
	case 7:
		runtime.Goexit()
	case 8:
		return events.HandBack(nil)
	case 9:
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

func (p *modelProcess) delivered(e *events.Event) {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.w.sent[e.ID] {
		c.w.fail("%s got event %d, which was not committed", c.name, e.ID)
	}
	if _, again := p.batch[e.ID]; again {
		p.interrupted() // Run has begun the batch anew
	}
	f := c.fate(e.ID)
	f.delivered++
	f.paid = max(f.paid, e.Attempt-1-f.failures)
	if f.paid > 0 && f.paid > c.broken {
		c.w.fail("%s: event %d is at attempt %d after %d failures and %d crashes", c.name, e.ID, e.Attempt, f.failures, c.broken)
	}
	p.batch[e.ID] = ""
	key := ""
	if p.ordered {
		key = modelKey(e)
		if last := p.last[key]; last > e.ID {
			c.w.fail("%s got event %d of key %s after %d", c.name, e.ID, key, last)
		}
		p.last[key] = e.ID
	}
	if p.holds && p.held[modelKey(e)] {
		c.w.fail("%s got event %d of key %s, which is held", c.name, e.ID, key)
	}
}

func (p *modelProcess) observe(o events.Observation) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	switch o := o.(type) {
	case events.Handled:
		f := p.c.fate(o.ID)
		asked := errors.Is(o.Err, errDeath)
		if o.Outcome == events.OutcomeRetried || o.Outcome == events.OutcomeDead && !asked || o.Outcome == events.OutcomeHandedBack && p.c.name == "reader" {
			f.failures++
		}
		if _, delivered := p.batch[o.ID]; !delivered {
			return // handed back without a handler
		}
		p.batch[o.ID] = o.Outcome
		f.handled = f.handled || o.Outcome == events.OutcomeDone || o.Outcome == events.OutcomeSkipped
		f.died = f.died || o.Outcome == events.OutcomeDead && asked
	case events.Settled:
		if o.Stale {
			p.interrupted()
			return
		}
		for id, outcome := range p.batch {
			if outcome == events.OutcomeRetried || outcome == events.OutcomeHandedBack {
				p.c.fate(id).excuses++
			}
		}
		p.settled()
	case events.Leased:
		if !o.Active {
			p.c.broken++
			p.interrupted()
		}
	}
}

func (p *modelProcess) settled() {
	p.batch, p.last, p.held = map[int64]events.Outcome{}, map[string]int64{}, map[string]bool{}
}

// interrupted: what was delivered may come again.
func (p *modelProcess) interrupted() {
	for id := range p.batch {
		p.c.fate(id).excuses++
	}
	p.settled()
}

// check holds what was delivered against what may have been.
func (c *modelConsumer) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	paid := 0
	for id, f := range c.fates {
		if f.delivered > 1+f.excuses {
			c.w.fail("%s got event %d %d times, with %d excuses", c.name, id, f.delivered, f.excuses)
		}
		paid += f.paid
	}
	if paid > c.broken {
		c.w.fail("%s: %d attempts are spent without a failure, after %d crashes", c.name, paid, c.broken)
	}
}

// checkEnd holds what became of all events against what must have.
func (c *modelConsumer) checkEnd() {
	dead := map[int64]bool{}
	for d, err := range events.DeadLetters(context.Background(), c.w.pool, events.DeadLetterFilter{Queue: c.w.queue, Consumer: c.name}) {
		c.w.must(nil, err)
		if dead[d.Event.ID] {
			c.w.fail("%s: event %d is a dead letter twice", c.name, d.Event.ID)
		}
		dead[d.Event.ID] = true
		if f := c.fate(d.Event.ID); !f.died && f.failures+c.broken <= c.w.maxRetries {
			c.w.fail("%s: event %d died of %d failures and at most %d crashes", c.name, d.Event.ID, f.failures, c.broken)
		}
	}
	for id := range c.w.sent {
		if !c.fate(id).handled && !dead[id] {
			c.w.fail("%s: event %d is lost", c.name, id)
		}
	}
	if c.name == "tx" {
		c.checkEffects()
	}
}

func (c *modelConsumer) checkEffects() {
	rows, err := c.w.app.Query(context.Background(), "select id, count(*) from effect where queue = $1 group by id", c.w.queue)
	c.w.must(nil, err)
	effects := map[int64]int{}
	var id int64
	var n int
	_, err = pgx.ForEachRow(rows, []any{&id, &n}, func() error { effects[id] = n; return nil })
	c.w.must(nil, err)
	for id := range c.w.sent {
		if n := effects[id]; n > 1 || n == 0 && c.fate(id).effect {
			c.w.fail("event %d had its effect %d times", id, n)
		}
	}
}
