package notifications_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/appdb"
	"github.com/stega/pgque-vendor/examples/notifications/internal/notify"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// system is the whole of it, in processes of their own.
type system struct {
	app, events         *pgtest.Postgres
	appPool, eventsPool *pgxpool.Pool
	arrived             *inbox
	url                 string // of the web server

	web, jobs        *service
	tickers, workers []*service
}

func start(t *testing.T, bin string) *system {
	t.Helper()
	sys := &system{app: pgtest.NewServer(t, pgtest.Options{}), events: pgtest.NewServer(t, pgtest.Options{}), arrived: newInbox()}
	appDB, eventsDB := sys.app.Database(t), sys.events.Database(t)
	variants := pgtest.Variants(t)
	eventsDB.Install(t, variants[min(1, len(variants)-1)]) // the real PgQue where it is at hand
	sys.appPool, sys.eventsPool = appDB.Pool(t), eventsDB.Pool(t)
	if err := appdb.Migrate(t.Context(), sys.appPool); err != nil {
		t.Fatal(err)
	}
	// What "pgque-vendor bootstrap" does with --queue and --subscribe.
	if _, err := events.EnsureQueue(t.Context(), sys.eventsPool, notify.Queue, events.Settings{"max_retries": "20"}); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Subscribe(t.Context(), sys.eventsPool, notify.Queue, notify.Consumer); err != nil {
		t.Fatal(err)
	}

	addr := freeAddress(t)
	sys.url = "http://" + addr
	env := []string{
		"APP_DATABASE_URL=" + appDB.URL, "EVENTS_DATABASE_URL=" + eventsDB.URL, "PGQUE_VENDOR_DATABASE_URL=" + eventsDB.URL,
		"HTTP_ADDR=" + addr, "SMTP_ADDR=" + sys.arrived.mailServer(t), "SMTP_FROM=support@stega.example", "SMTP_PLAINTEXT=true",
		"SLACK_WEBHOOK_URL=" + sys.arrived.webhook(t),
	}
	program := func(name string) string { return filepath.Join(bin, name) }
	for range 2 {
		sys.tickers = append(sys.tickers, serve(t, env, program("pgque-vendor"), "ticker", "--max-lag", "50ms"))
		sys.workers = append(sys.workers, serve(t, env, program("worker")))
	}
	sys.jobs = serve(t, env, program("jobs"))
	sys.web = serve(t, env, program("web"))
	return sys
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Every notification arrives once, with each part killed at random moments, the
// events database away for five seconds and the application's crashed. The
// workers are asked to stop there: they alone have effects outside of any
// database. When they are killed as well, what was on its way at that moment may
// come a second time, and nothing else may; such a copy can be recognised.
func TestNotifications(t *testing.T) {
	if testing.Short() {
		t.Skip("takes about two minutes")
	}
	bin := build(t)
	for _, c := range []struct {
		name   string
		worker syscall.Signal
	}{
		{"workers stopped", syscall.SIGTERM},
		{"workers killed", syscall.SIGKILL},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			sys := start(t, bin)
			kills := sys.trouble(t, c.worker)
			want := sys.expected(t)
			sys.settle(t, len(want))
			sys.check(t, want, c.worker == syscall.SIGKILL, kills)
		})
	}
}

// trouble sends requests while parts are killed. It returns how often a worker
// was.
func (sys *system) trouble(t *testing.T, worker syscall.Signal) (kills int) {
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { sys.requests(ctx) })
	}
	both.Go(func() {
		for pause(ctx, 300*time.Millisecond, 1500*time.Millisecond) {
			switch rand.N(5) {
			case 0:
				sys.web.signal(syscall.SIGKILL)
			case 1:
				sys.jobs.signal(syscall.SIGKILL)
			case 2:
				sys.tickers[rand.N(2)].signal(syscall.SIGKILL)
			default:
				sys.workers[rand.N(2)].signal(worker)
				kills++
			}
		}
	})
	pause(ctx, 5*time.Second, 6*time.Second)
	sys.events.Stop(t, "immediate")
	pause(ctx, 5*time.Second, 5*time.Second+1)
	sys.events.Start(t)
	pause(ctx, 3*time.Second, 4*time.Second)
	sys.app.Kill(t)
	sys.app.Start(t)
	both.Wait()
	return kills
}

// requests is a user who goes on after an error.
func (sys *system) requests(ctx context.Context) {
	for n := 0; pause(ctx, 20*time.Millisecond, 80*time.Millisecond); n++ {
		var ticket notify.Ticket
		switch {
		case n%10 == 0:
			post(ctx, sys.url+"/reports", notify.Report{Week: "2026-W48", Email: "boss@stega.example", Body: "All is well.\n"}, nil)
		case post(ctx, sys.url+"/tickets", notify.Ticket{Subject: "printer on fire", Email: "ann@stega.example"}, &ticket) && n%3 == 0:
			post(ctx, fmt.Sprintf("%s/tickets/%d/sla-breach", sys.url, ticket.ID), nil, nil)
		}
	}
}

func post(ctx context.Context, url string, body, answer any) bool {
	data, _ := json.Marshal(body)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusCreated && (answer == nil || json.NewDecoder(response.Body).Decode(answer) == nil)
}

// pause waits for a random time and says whether ctx still goes on.
func pause(ctx context.Context, from, to time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(from + rand.N(to-from)):
		return true
	}
}

// expected is one notification for each row that was committed, whether the user
// got an answer or not.
func (sys *system) expected(t *testing.T) map[string]int {
	t.Helper()
	rows, err := sys.appPool.Query(t.Context(), `
		select 'ann@stega.example | We have received your ticket ' || id, 1 from tickets
		union all select ':rotating_light: ticket ' || id || ' (printer on fire) is past its time', 1 from tickets where breached_at is not null
		union all select 'boss@stega.example | Your report for 2026-W48', count(*)::int from reports`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	var key string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&key, &n}, func() error { want[key] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(want) < 100 {
		t.Fatalf("only %d notifications are asked for", len(want))
	}
	return want
}

// settle waits until nothing is under way any more. What waits for longer than a
// test can is brought forward: retries of jobs, and bookings of the crash guard.
func (sys *system) settle(t *testing.T, want int) {
	t.Helper()
	var left string
	for deadline := time.Now().Add(4 * time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		hurry(t, sys.appPool, "update river_job set scheduled_at = now() where state = 'retryable' and scheduled_at > now() + interval '2 seconds'")
		hurry(t, sys.eventsPool, "update pgque.retry_queue set ev_retry_after = now() where ev_retry_after > now() + interval '1 minute'")
		jobs := value(t, sys.appPool, "select count(*) from river_job where state <> 'completed'")
		retries := value(t, sys.eventsPool, "select count(*) from pgque.retry_queue")
		dead := value(t, sys.eventsPool, "select count(*) from pgque.dead_letter")
		left = fmt.Sprintf("%d jobs and %d retries are left, %d dead letters, %d kinds of notification arrived of %d", jobs, retries, dead, sys.arrived.count(), want)
		if jobs+retries+dead == 0 && sys.arrived.count() >= want && sys.drained(t) {
			return
		}
	}
	t.Error(left)
}

// drained says that the consumer has passed all events.
func (sys *system) drained(t *testing.T) bool {
	consumers, err := events.Consumers(t.Context(), sys.eventsPool, notify.Queue)
	if err != nil || len(consumers) != 1 {
		t.Fatal(consumers, err)
	}
	return consumers[0].Pending == 0
}

func hurry(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql); err != nil {
		t.Log(err)
	}
}

func value(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Log(err)
		return -1
	}
	return n
}

// check compares what arrived with what was asked for.
func (sys *system) check(t *testing.T, want map[string]int, killed bool, kills int) {
	t.Helper()
	sys.arrived.mu.Lock()
	defer sys.arrived.mu.Unlock()
	copies := 0
	got := map[string]int{}
	for key, n := range sys.arrived.letters {
		got[key] = len(sys.arrived.ids[key]) // copies of one letter have one Message-ID
		copies += n - got[key]
	}
	for text, n := range sys.arrived.posts {
		first := strings.TrimSuffix(text, seenBefore)
		if first == text && n > 1 {
			t.Errorf("%q was posted %d times without a word about it", text, n)
		}
		got[first] = 1
	}
	for text := range sys.arrived.posts {
		if strings.HasSuffix(text, seenBefore) && sys.arrived.posts[strings.TrimSuffix(text, seenBefore)] > 0 {
			copies += sys.arrived.posts[text]
		}
	}
	for key, n := range want {
		if got[key] != n {
			t.Errorf("%q arrived %d times, want %d", key, got[key], n)
		}
	}
	for key := range got {
		if want[key] == 0 {
			t.Errorf("nobody asked for %q", key)
		}
	}
	most := 0
	if killed {
		most = kills * 4 // what a worker's four handlers were at
	}
	if copies > most {
		t.Errorf("%d second copies, want at most %d", copies, most)
	}
	t.Logf("%d kinds of notification, %d workers stopped or killed, %d second copies", len(want), kills, copies)
}
