package bootstrap

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// Reinstalls and upgrades while producers, consumers that retry, and a ticker
// run: no error on either side, and every event is handled (issue's part 6).
func TestUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	v := pgtest.Standin()
	if pgtest.Upstream() {
		v = pgtest.Real(t, "v0.2.0")
	}
	db := pgtest.Database(t)
	app := db.Role(t)
	mustBootstrap(t, db.URL, fileOf(v), Options{Grants: admin(app)})
	db.Exec(t, "select pgque.create_queue('load'), pgque.subscribe('load', 'a'), pgque.subscribe('load', 'b'); select pgque.set_queue_config('load', 'ticker_max_lag', '20 ms'), pgque.set_queue_config('load', 'max_retries', '50')")

	l := &load{t: t, pool: db.PoolAs(t, app), handled: map[string]map[int64]bool{"a": {}, "b": {}}}
	stop := make(chan struct{})
	var producers, others sync.WaitGroup
	for range 2 {
		producers.Go(func() { l.produce(stop) })
	}
	done := make(chan struct{})
	for _, consumer := range []string{"a", "b"} {
		others.Go(func() { l.consume(done, consumer) })
	}
	others.Go(func() { l.tick(done) })

	runs := 0
	for start := time.Now(); runs < 5 || time.Since(start) < 6*time.Second; runs++ {
		f := fileOf(v)
		o := Options{Grants: admin(app), Reinstall: true, LockTimeout: 3 * time.Second}
		if runs >= 3 { // then upgrades, to releases that the program does not know
			f, o.Reinstall = with(v, fmt.Sprintf("v9.%d.0", runs), fmt.Sprint(runs)), false
		}
		if _, err := bootstrapAs(t, db.URL, f, o); err != nil {
			t.Errorf("run %d: %v", runs, err)
		}
	}
	close(stop)
	producers.Wait()
	deadline := time.Now().Add(2 * time.Minute)
	for l.missing() > 0 && time.Now().Before(deadline) && !t.Failed() {
		time.Sleep(20 * time.Millisecond)
	}
	close(done)
	others.Wait()
	t.Logf("%d runs, %d events, worst send %s, worst consumer round %s", runs, l.sent.Load(), time.Duration(l.worstSend.Load()), time.Duration(l.worstRound.Load()))
	if l.sent.Load() == 0 {
		t.Error("nothing was sent")
	}
	if n := l.missing(); n > 0 {
		t.Errorf("%d events were never handled", n)
	}
	if worst := time.Duration(l.worstSend.Load()); worst > time.Minute {
		t.Errorf("a producer waited %s", worst)
	}
}

type load struct {
	t                     *testing.T
	pool                  *pgxpool.Pool
	sent                  atomic.Int64
	worstSend, worstRound atomic.Int64

	mu      sync.Mutex
	handled map[string]map[int64]bool
}

func (l *load) missing() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 2*l.sent.Load() - int64(len(l.handled["a"])) - int64(len(l.handled["b"]))
}

func (l *load) produce(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		start := time.Now()
		n := l.sent.Add(1)
		if _, err := l.pool.Exec(context.Background(), "select pgque.send('load', 't', $1::text::jsonb)", pgx.QueryExecModeExec, fmt.Sprint(n)); err != nil {
			l.t.Errorf("send: %v", err)
			return
		}
		l.worstSend.Store(max(l.worstSend.Load(), int64(time.Since(start))))
	}
}

// consume receives, works, sends every seventh event back once, and acks, in
// one transaction, as a careful consumer would.
func (l *load) consume(done chan struct{}, consumer string) {
	ctx := context.Background()
	for {
		select {
		case <-done:
			return
		case <-time.After(2 * time.Millisecond):
		}
		start := time.Now()
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "select msg_id, batch_id, payload::text, retry_count from pgque.receive('load', $1, 1000000)", pgx.QueryExecModeExec, consumer)
			if err != nil {
				return err
			}
			type message struct {
				ID, Batch int64
				Payload   string
				Retries   *int32
			}
			messages, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
			if err != nil || len(messages) == 0 {
				return err
			}
			time.Sleep(10 * time.Millisecond)
			var ok []int64
			for _, m := range messages {
				var n int64
				fmt.Sscan(m.Payload, &n)
				if n%7 == 0 && m.Retries == nil {
					if _, err := tx.Exec(ctx, "select pgque.event_retry($1, $2, 0)", pgx.QueryExecModeExec, m.Batch, m.ID); err != nil {
						return err
					}
					continue
				}
				ok = append(ok, n)
			}
			if _, err := tx.Exec(ctx, "select pgque.ack($1)", pgx.QueryExecModeExec, messages[0].Batch); err != nil {
				return err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, n := range ok {
				l.handled[consumer][n] = true
			}
			return nil
		})
		if err != nil {
			l.t.Errorf("consumer %s: %v", consumer, err)
			return
		}
		l.worstRound.Store(max(l.worstRound.Load(), int64(time.Since(start))))
	}
}

func (l *load) tick(done chan struct{}) {
	ctx := context.Background()
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		case <-time.After(50 * time.Millisecond):
		}
		calls := []string{"select pgque.ticker()", "select pgque.maint_retry_events()"}
		if n%20 == 0 {
			calls = append(calls, "select pgque.maint()", "select pgque.maint_rotate_tables_step2()")
		}
		for _, sql := range calls {
			if _, err := l.pool.Exec(ctx, sql, pgx.QueryExecModeExec); err != nil {
				l.t.Errorf("%s: %v", sql, err)
				return
			}
		}
	}
}
