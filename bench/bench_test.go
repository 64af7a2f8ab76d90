package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// rounds is how often what is compared takes its turn; a ratio is the median of
// the rounds' own, so that what else the machine does weighs on both sides.
var rounds = flag.Int("rounds", 15, "turns of each side of a comparison")

const queue = "bench"

// payload is of the size of a small notification.
const payload = `{"ticket":4711,"email":"ann@example.com","at":"2026-11-30"}`

// table is what the run prints at its end, as Markdown.
var table struct {
	sync.Mutex
	server string
	rows   []string
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if len(table.rows) > 0 {
		fmt.Printf("\n%s\n\n| what | ours | beside it | ratio | target | |\n|---|---|---|---|---|---|\n%s\n", table.server, strings.Join(table.rows, "\n"))
	}
	os.Exit(code)
}

// row adds a line to the table. A target that was missed fails the test.
func row(t *testing.T, what, ours, beside, ratio, target string, met bool) {
	t.Helper()
	verdict := "met"
	if strings.Contains(target, "to compare") {
		verdict = ""
	}
	if !met {
		verdict = "**missed**"
		t.Errorf("%s: %s, beside it %s, ratio %s, target %s", what, ours, beside, ratio, target)
	}
	table.Lock()
	defer table.Unlock()
	table.rows = append(table.rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", what, ours, beside, ratio, target, verdict))
}

// wanted skips unless the run is meant: on a busy machine figures say little.
func wanted(t *testing.T) {
	t.Helper()
	if os.Getenv("PGQUE_BENCH") == "" {
		t.Skip("measures; bench/run.sh runs it")
	}
}

// server starts a PostgreSQL that keeps what it commits, with nothing of its own
// to do in between.
func server(t *testing.T) *pgtest.Postgres {
	t.Helper()
	return pgtest.NewServer(t, pgtest.Options{Fsync: true, Settings: map[string]string{
		"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "8GB",
		"shared_buffers": "512MB", "wal_level": "minimal", "max_wal_senders": "0",
	}})
}

// database makes a database with PgQue v0.2.0, or the stand-in where the real one
// is not at hand, and the queue with its default settings.
func database(t *testing.T, pg *pgtest.Postgres) (*pgtest.DB, *pgxpool.Pool) {
	t.Helper()
	v := pgtest.Standin()
	if pgtest.Upstream() {
		v = pgtest.Real(t, "v0.2.0")
	}
	db := pg.Database(t)
	db.Install(t, v)
	pool := db.Pool(t)
	// Not create_queue alone: PgQue's ticker does not see the first event of a queue.
	if _, err := events.EnsureQueue(t.Context(), pool, queue, events.Settings{"ticker_max_lag": "3 s"}); err != nil {
		t.Fatal(err)
	}
	table.Lock()
	defer table.Unlock()
	table.server = fmt.Sprintf("PostgreSQL %s, PgQue: %s, fsync on, %d turns", db.Value(t, "show server_version"), v.Name, *rounds)
	return db, pool
}

func run(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// tick cuts a batch now, whatever the queue's settings say.
func tick(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	run(t, pool, "select pgque.force_tick($1)", queue)
	run(t, pool, "select pgque.ticker($1)", queue)
}

// fill sends batches of size events each, ready to be consumed.
func fill(t *testing.T, pool *pgxpool.Pool, batches, size int, payload string) {
	t.Helper()
	for range batches {
		run(t, pool, "select pgque.send_batch($1, 'bench.event', array(select $2::text from generate_series(1, $3::int)))", queue, payload, size)
		tick(t, pool)
	}
}

// comparison is two sides of the same work, measured turn about.
type comparison struct{ ours, floor []float64 } // events per second

func compare(t *testing.T, ours, floor func() float64) comparison {
	t.Helper()
	var c comparison
	ours()
	floor() // both warm
	for i := range *rounds {
		if i%2 == 0 {
			c.ours = append(c.ours, ours())
			c.floor = append(c.floor, floor())
		} else {
			c.floor = append(c.floor, floor())
			c.ours = append(c.ours, ours())
		}
	}
	return c
}

// ratio is the median of the rounds' ratios.
func (c comparison) ratio() float64 {
	ratios := make([]float64, len(c.ours))
	for i := range ratios {
		ratios[i] = c.ours[i] / c.floor[i]
	}
	return quantile(ratios, 0.5)
}

func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// perSecond times n events.
func perSecond(t *testing.T, n int, f func() error) float64 {
	t.Helper()
	began := time.Now()
	if err := f(); err != nil {
		t.Fatal(err)
	}
	return float64(n) / time.Since(began).Seconds()
}

// thousands writes a rate as it is read.
func thousands(rate float64) string { return fmt.Sprintf("%.1f k/s", rate/1000) }

// report compares with a target; 0 is none.
func (c comparison) report(t *testing.T, what, beside string, target float64) {
	t.Helper()
	wanted := "to compare"
	if target > 0 {
		wanted = fmt.Sprintf("≥ %.2f", target)
	}
	row(t, what, thousands(quantile(c.ours, 0.5)), beside+" "+thousands(quantile(c.floor, 0.5)),
		fmt.Sprintf("%.2f", c.ratio()), wanted, c.ratio() >= target)
}

// consume runs a consumer until it has settled n events, and returns how long
// that took from the moment when it held the lease.
func consume(t *testing.T, pool *pgxpool.Pool, name string, cfg events.ConsumerConfig, n int, handler events.Handler) time.Duration {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	var began, ended time.Time
	settled := 0
	cfg.Observer = func(o events.Observation) {
		switch o := o.(type) {
		case events.Leased:
			if o.Active {
				began = time.Now()
			}
		case events.Settled:
			if settled += o.Events; settled >= n && ended.IsZero() {
				ended = time.Now()
				stop()
			}
		}
	}
	c := events.NewConsumer(pool, queue, name, cfg)
	c.HandleAny(handler)
	if err := c.Run(ctx); err != nil || settled < n {
		t.Fatalf("consumed %d of %d events, %v", settled, n, err)
	}
	return ended.Sub(began)
}
