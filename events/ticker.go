package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// TickerConfig is how a ticker works. The zero value is good; a negative time is as
// good as zero.
type TickerConfig struct {
	// Every is how often to look for queues that need a tick; 100 ms by default.
	// Looking is cheap, and nothing is written while nothing is due.
	Every time.Duration
	// Queues are the queues to tick; all of the database when empty. Retries and
	// maintenance are always for the whole database, as PgQue's functions are.
	Queues []string
	// MaxLag is given to the queues as their ticker_max_lag, the time that an event
	// may wait for a tick; half of Every is right. When zero no setting is touched,
	// and a queue whose own is above half of Every is warned of once. PgQue's 3 s
	// makes events arrive after 2 to 4 s, however often the ticker looks.
	MaxLag time.Duration
	// Nudge makes the ticker listen for [Nudger] and gives the gap between ticks
	// after a nudge, until a look finds nothing new; 10 ms is good. When zero it
	// does not listen. Events still wait for their queue's ticker_max_lag when they
	// follow one another closely.
	Nudge time.Duration
	// StandBy makes the ticker do nothing while pgque.config says that pg_cron or
	// pg_timetable ticks. Otherwise it ticks beside them and says so: they take no
	// lock, so now and then an event is delivered twice.
	StandBy bool
	// Logger gets warnings and errors; nothing is logged without one.
	Logger *slog.Logger
	// Observer is told of each [Ticked], [Retried] and [TickerFailed]. While it runs the
	// ticker waits; when it ends its goroutine (t.FailNow), so does Run.
	Observer Observer
}

// Ticker makes the ticks that cut queues into batches, moves due retries back
// into their queues, and rotates the queues' tables. Events that are committed
// after the tick that their numbers brought about, which PgQue leaves waiting for
// something else to happen, get a tick of their own. Make one with [NewTicker].
type Ticker struct {
	pool     *pgxpool.Pool
	config   TickerConfig
	log      *slog.Logger
	nudged   chan struct{} // holds one nudge at most
	standing atomic.Bool   // another scheduler ticks, and we stand by
	running  atomic.Bool

	// One loop's own: queues that fail by themselves, and what was warned of.
	troubled   troubles // tickLoop
	last       lastLook // tickLoop
	unrotated  troubles // upkeepLoop, like the rest
	unretried  troubles
	warned     map[string]bool
	maintained time.Time // when maint() was called last

	mu      sync.Mutex
	actions map[string]actionState
}

// actionState is how an action that is done over and over fares.
type actionState struct {
	succeeded time.Time
	err       error // of the last try, nil when it succeeded
	failures  int   // in a row
}

// Ticked is observed for each tick that was made.
type Ticked struct {
	Queue string
	Tick  int64 // the tick's number in its queue
}

// Retried is observed when due retries went back into their queues.
type Retried struct{ Events int }

// TickerFailed is observed for each failed try of an action ("tick", "late",
// "retry", "rotate", "maintain", "settings", "start"). "late" looks for events
// that were committed after their tick. Queue is "" when it concerns all queues.
type TickerFailed struct {
	Action, Queue string
	Err           error
}

func (Ticked) observation()       {}
func (Retried) observation()      {}
func (TickerFailed) observation() {}

// NewTicker makes a ticker on pool. It takes up to two connections at a time for
// a moment each, and with Nudge one of its own beside the pool.
func NewTicker(pool *pgxpool.Pool, config TickerConfig) *Ticker {
	if config.Every <= 0 {
		config.Every = 100 * time.Millisecond
	}
	return &Ticker{
		pool:     pool,
		config:   config,
		log:      loggerOr(config.Logger),
		nudged:   make(chan struct{}, 1),
		last:     lastLook{quiet: map[int32]quiet{}, late: lateWatches{queues: map[int32]*lateWatch{}, failing: troubles{}}},
		troubled: troubles{}, unrotated: troubles{}, unretried: troubles{}, warned: map[string]bool{},
		actions: map[string]actionState{},
	}
}

// Run ticks until ctx ends, then returns nil. Any number of tickers may run on a
// database, in one process or many: each action is done under a lock of its own
// transaction, so there is no leader to wait for. It goes on through restarts and
// failovers of the server, and works behind pgbouncer in transaction mode.
//
// It returns an error only at its start, when trying again cannot help:
// [ErrPermission] with the grant that is missing, [ErrNotInstalled],
// [ErrQueueNotFound] for a name in Queues, a login that is refused (SQLSTATE
// class 28), or a database that does not exist (3D000); and when an Observer ends
// the ticker's goroutine, as t.FailNow does.
//
// A Ticker may run again once it has returned. While it runs another Run returns an
// error: make a Ticker for each.
func (t *Ticker) Run(ctx context.Context) error {
	if !t.running.CompareAndSwap(false, true) {
		return errors.New("this Ticker is running already")
	}
	defer t.running.Store(false)
	if err := t.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){t.tickLoop, t.upkeepLoop} {
		loops.Go(func() {
			defer end(errLoopEnded) // no cause any more when ctx has ended
			loop(ctx)
		})
	}
	if t.config.Nudge > 0 {
		w := &waker{pool: t.pool, channel: nudgeChannel, poll: t.config.Every, log: t.log, wake: t.nudged}
		loops.Go(func() { w.run(ctx) })
	}
	loops.Wait()
	if errors.Is(context.Cause(ctx), errLoopEnded) {
		return errLoopEnded
	}
	return nil
}

var errLoopEnded = errors.New("the ticker's Observer or Logger has ended its goroutine (runtime.Goexit, t.FailNow)")

// Health returns nil while the ticker does its work, otherwise what keeps it from
// it: an action that has failed three times in a row, or no look that succeeded for
// 15 seconds, the time after which a silent connection is given up. It is meant
// for a readiness probe, and is an error until the first looks have succeeded. A
// queue that fails by itself is not counted, since the others go on: [TickerFailed]
// and the log name it, and [Health] finds that it is not ticked.
func (t *Ticker) Health() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, action := range []string{"start", "tick", "retry", "rotate", "maintain", "settings"} {
		s := t.actions[action]
		looks := action == "tick" || action == "retry"
		switch {
		case s.failures >= 3:
			return fmt.Errorf("%s fails: %w", action, s.err)
		case looks && s.succeeded.IsZero():
			return fmt.Errorf("%s has not succeeded yet", action)
		case looks && time.Since(s.succeeded) > max(callTimeout, 3*t.config.Every):
			return fmt.Errorf("%s has not succeeded for %s", action, time.Since(s.succeeded).Round(time.Second))
		}
	}
	return nil
}

// tickLoop looks every period, and at the nudge's gap from a nudge until a look
// finds nothing new.
func (t *Ticker) tickLoop(ctx context.Context) {
	nudged := false
	for ctx.Err() == nil {
		started := time.Now()
		next, err := t.tick(ctx)
		t.done(ctx, "tick", err)
		wait := t.config.Every
		switch {
		case err != nil:
			wait = t.pause("tick", wait)
		case nudged && next >= 0:
			wait = min(wait, max(next, t.config.Nudge))
		default:
			nudged = false
		}
		if t.nap(ctx, time.Until(started.Add(wait))) {
			nudged = true
			sleep(ctx, time.Until(started.Add(t.config.Nudge)))
		}
	}
}

// nap waits, at most until a nudge, and says whether one came.
func (t *Ticker) nap(ctx context.Context, d time.Duration) (nudged bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-t.nudged:
		return true
	}
	return false
}

// done books the outcome of one try of an action. A failure is logged when it
// begins and when it ends, not in between.
func (t *Ticker) done(ctx context.Context, action string, err error) {
	if err != nil && ctx.Err() != nil {
		return // the end of the run is no failure
	}
	t.mu.Lock()
	s := t.actions[action]
	was := s
	if err == nil {
		s = actionState{succeeded: time.Now()}
	} else {
		s = actionState{succeeded: was.succeeded, err: err, failures: was.failures + 1}
	}
	t.actions[action] = s
	t.mu.Unlock()
	switch {
	case err != nil:
		t.config.Observer.observe(TickerFailed{Action: action, Err: err})
		if was.err == nil || sqlState(was.err) != sqlState(err) {
			t.log.Error("ticker: "+inWords(action)+" failed, trying again", "err", err)
		}
	case was.err != nil:
		t.log.Info("ticker: " + inWords(action) + " works again")
	}
}

// pause is how long to wait after a failure: twice as long each time from the
// action's period up to a second, less up to a quarter.
func (t *Ticker) pause(action string, period time.Duration) time.Duration {
	t.mu.Lock()
	failures := t.actions[action].failures
	t.mu.Unlock()
	pause := min(period<<min(failures, 6), max(period, time.Second))
	return pause - rand.N(pause/4+1)
}
