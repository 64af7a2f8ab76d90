package statuspage

import (
	"sync"

	"github.com/stega/pgque-vendor/events"
)

// counts is what this process did.
type counts struct {
	mu       sync.Mutex
	ticker   bool
	consumer bool
	active   bool

	ticks, moved, failed               int64
	done, skipped, retried, dead, back int64
	batches, stale                     int64
}

type count struct{ Name, Value string }

func (c *counts) observe(o events.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch o := o.(type) {
	case events.Ticked:
		c.ticker = true
		c.ticks++
	case events.Retried:
		c.ticker = true
		c.moved += int64(o.Events)
	case events.TickerFailed:
		c.ticker = true
		c.failed++
	case events.Leased:
		c.consumer, c.active = true, o.Active
	case events.Handled:
		switch o.Outcome {
		case events.OutcomeDone:
			c.done++
		case events.OutcomeSkipped:
			c.skipped++
		}
	case events.Settled:
		if o.Stale {
			c.stale++
			return
		}
		c.batches++
		c.retried += int64(o.Retried)
		c.dead += int64(o.Dead)
		c.back += int64(o.HandedBack)
	}
}

func (c *counts) list() []count {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []count
	add := func(name string, n int64) { list = append(list, count{name, number3(n)}) }
	if c.ticker {
		add("ticks", c.ticks)
		add("retries moved back", c.moved)
		add("failed tries", c.failed)
	}
	if c.consumer {
		state := "standing by"
		if c.active {
			state = "active"
		}
		list = append(list, count{"state", state})
		add("done", c.done)
		add("skipped", c.skipped)
		add("retried", c.retried)
		add("dead letters", c.dead)
		add("batches", c.batches)
	}
	if c.back > 0 {
		add("handed back", c.back)
	}
	if c.stale > 0 {
		add("stale batches", c.stale)
	}
	return list
}
