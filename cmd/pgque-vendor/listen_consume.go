package main

import (
	"errors"
	"slices"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// freshLook is how old what is seen of the database may be for a consumer to be
// ready: a look is taken every few seconds, and one that fails is said at once.
const freshLook = 45 * time.Second

// consumerReady is the readiness of a consumer: its database answers, and it is
// subscribed there. Who stands by is ready as well: that is its work.
func (l *listening) consumerReady(queue, consumer string) func() (string, error) {
	return func() (string, error) {
		look := l.look.Load()
		switch {
		case look == nil:
			return "", errors.New("the database was not looked at yet")
		case look.Trouble != "":
			return "", errors.New(look.Trouble)
		case time.Since(look.Seen) > freshLook:
			return "", errors.New("the database does not answer in time")
		case !slices.ContainsFunc(look.Consumers, func(c events.ConsumerInfo) bool { return c.Queue == queue && c.Name == consumer }):
			return "", errors.New("not subscribed")
		}
		switch l.state.Load() {
		case stateActive:
			return "active", nil
		case stateInterrupted:
			return "", errors.New("consuming was interrupted and is begun again; the log says why")
		}
		return "standing by", nil
	}
}

// What a consumer is doing, as far as it was observed.
const (
	stateStandBy int32 = iota
	stateActive
	stateInterrupted
)

// consumes makes the metrics of a consumer before anything happened.
func (l *listening) consumes(queue, consumer string) {
	if l != nil {
		l.metrics.Consumes(queue, consumer)
	}
}

// sawConsumer keeps what a consumer is doing.
func (l *listening) sawConsumer(o events.Observation) {
	switch o := o.(type) {
	case events.StandingBy:
		l.state.Store(stateStandBy)
	case events.Leased:
		if o.Active {
			l.state.Store(stateActive)
		} else {
			l.state.Store(stateStandBy)
		}
	case events.ConsumerFailed:
		if o.Action == "consume" {
			l.state.Store(stateInterrupted)
		}
	}
}
