// Package browsertest tests the status page in a real browser. It is a module of
// its own: what drives the browser, chromedp, is a hundred thousand generated lines
// that neither the program nor an application that imports the event library needs
// in its go.sum.
package browsertest

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
	"github.com/stega/pgque-vendor/internal/serve"
	"github.com/stega/pgque-vendor/internal/statuspage"
)

// tab is a tab of a browser of the test's own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// openTab starts Chromium, and fails the test in the end if the page has written
// anything to the console. Without a Chromium the test is skipped, or fails when
// CI=true and PGQUE_BROWSER=required.
func openTab(t *testing.T) *tab {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		if os.Getenv("CI") == "true" && os.Getenv("PGQUE_BROWSER") == "required" {
			t.Fatal("no Chromium for this test")
		}
		t.Skip("no Chromium for this test")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(t.TempDir()),
		chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	t.Cleanup(cancel)
	ctx, cancelAllocator := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancelAllocator)
	ctx, cancelContext := chromedp.NewContext(ctx)
	t.Cleanup(cancelContext)
	page := &tab{t, ctx}
	page.do() // starts it
	listening, stop := context.WithCancel(ctx)
	console := chromedp.Console(listening)
	t.Cleanup(func() {
		time.AfterFunc(200*time.Millisecond, stop) // what was written last is still on its way
		for m, err := range console {
			if err != nil {
				break
			}
			t.Errorf("console: %s", m)
		}
	})
	return page
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// value runs an expression in the page.
func value[T any](p *tab, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits until an expression is true in the page, longer than a busy machine
// takes, and says how long it took.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	const patience = 3 * time.Minute
	began := time.Now()
	for !value[bool](p, expression) {
		if time.Since(began) > patience {
			p.t.Fatalf("%s: not within %s; the page says:\n%s", what, patience, value[string](p, "document.body.innerText"))
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.t.Logf("%s: after %s", what, time.Since(began).Round(10*time.Millisecond))
}

// prefers sets what the user prefers, "light" or "dark".
func (p *tab) prefers(scheme string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		p.t.Fatal(err)
	}
}

// shoot keeps a picture in the folder PGQUE_SCREENSHOTS, for people to look at.
func (p *tab) shoot(name string) {
	p.t.Helper()
	dir := os.Getenv("PGQUE_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// system is a database and a page that shows it, wired as ticker and consume do.
type system struct {
	db   *pgtest.DB
	pool *pgxpool.Pool
	page *statuspage.Page
	url  string
}

func newSystem(t *testing.T, queues ...string) *system {
	t.Helper()
	s := &system{db: pgtest.Database(t)}
	s.db.Install(t, pgtest.Standin())
	s.pool = s.db.Pool(t)
	for _, q := range queues {
		if _, err := events.EnsureQueue(t.Context(), s.pool, q, nil); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if s.page, err = statuspage.New(statuspage.Config{Process: "ticker", Version: "v0.1.0"}); err != nil {
		t.Fatal(err)
	}
	s.page.Of("stega-events")
	s.url = servePage(t, s.page)
	log := slog.New(slog.DiscardHandler)
	background(t, func(ctx context.Context) {
		serve.Watch(ctx, s.pool, events.HealthConfig{}, log, func(look serve.Look) { s.page.Show(statuspage.Look(look)) })
	})
	return s
}

// servePage answers with a page until the test ends.
func servePage(t *testing.T, page *statuspage.Page) (url string) {
	t.Helper()
	socket, err := serve.Listen(t.Context(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) {
		serve.Serve(ctx, socket, serve.Config{
			Ready: func() (string, error) { return "ticking", nil }, Metrics: http.NotFoundHandler(), Page: page,
			Log: slog.New(slog.DiscardHandler),
		})
	})
	return socket.URL()
}

// tick runs a ticker until stop is called or the test ends.
func (s *system) tick(t *testing.T) (stop func()) {
	return background(t, func(ctx context.Context) {
		if err := events.NewTicker(s.pool, events.TickerConfig{Observer: s.page.Observe}).Run(ctx); err != nil {
			t.Errorf("ticker: %v", err)
		}
	})
}

// consume runs a consumer until stop is called or the test ends.
func (s *system) consume(t *testing.T, queue, name string, handle events.Handler) (stop func()) {
	return background(t, func(ctx context.Context) {
		c := events.NewConsumer(s.pool, queue, name, events.ConsumerConfig{Observer: s.page.Observe})
		c.HandleAny(handle)
		if err := c.Run(ctx); err != nil {
			t.Errorf("consumer: %v", err)
		}
	})
}

func (s *system) send(t *testing.T, queue string, n int) {
	t.Helper()
	batch := make([]events.Event, n)
	for i := range batch {
		batch[i] = events.Event{Type: "ticket.welcome", Payload: []byte(`{"password":"hunter2"}`)}
	}
	if _, err := events.SendBatch(t.Context(), s.pool, queue, batch); err != nil {
		t.Fatal(err)
	}
}

// background runs work until stop is called or the test ends.
func background(t *testing.T, work func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { work(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}
