//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// listener is a process that was started with --listen.
type listener struct {
	*running
	url string
}

var pageURL = regexp.MustCompile(`status page at (http://[^/]+/)`)

func (b *consumeBench) listen(r *running) *listener {
	b.Helper()
	l := &listener{running: r}
	b.untilOr("the address of the status page", func() bool {
		if found := pageURL.FindStringSubmatch(r.stderr.String()); found != nil {
			l.url = found[1]
		}
		return l.url != ""
	}, func() { b.Log(r.stderr) })
	return l
}

// get asks for a path; the status is 0 without an answer.
func (l *listener) get(path string) (status int, body string) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(l.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// until waits for an answer that holds a text.
func (l *listener) until(path string, status int, text string) {
	l.b.Helper()
	var got int
	var body string
	l.b.untilOr(path+" with "+text, func() bool {
		got, body = l.get(path)
		return got == status && strings.Contains(body, text)
	}, func() { l.b.Logf("%s answers %d:\n%s\nstderr:\n%s", path, got, body, l.stderr) })
}

func TestListenTicker(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		b := newConsumeBench(t, v)
		l := b.listen(b.start("ticker", "--listen", ":0"))
		if !strings.Contains(l.stderr.String(), "for this machine only") {
			t.Errorf("not said that only this machine is answered: %s", l.stderr)
		}
		l.until("healthz", 200, "ok\n")
		l.until("readyz", 200, "ready: ticking\n")
		b.publish(events.Event{Type: "ticket.welcome", Payload: []byte(`"hunter2"`)})
		l.until("metrics", 200, "pgque_ticks_total{queue=\"q\"}")
		l.until("metrics", 200, "pgque_events_published_total{queue=\"q\"} 1\n")
		l.until("metrics", 200, "pgque_consumer_lag_events{consumer=\"c\",queue=\"q\"} 1\n")
		l.until("metrics", 200, "pgque_database_up 1\n")
		l.until("", 200, "q/</span><wbr>c")
		if _, page := l.get(""); strings.Contains(page, "hunter2") || strings.Contains(page, "ticket.welcome") || strings.Contains(page, "127.0.0.1") || strings.Contains(page, "postgres:") {
			t.Errorf("the page shows a payload, or where the database is:\n%s", page)
		}

		var stdout, stderr bytes.Buffer
		env := processEnvironment()
		env.stdout, env.stderr = &stdout, &stderr
		at, err := url.Parse(l.url)
		if err != nil {
			t.Fatal(err)
		}
		if code := run([]string{"health", "--listen", at.Host}, env); code != 0 || stdout.String() != "ok\n" {
			t.Errorf("health: code %d, %q, %q", code, &stdout, &stderr)
		}

		// What the server says of a login that may no longer do its work stays here.
		b.db.Exec(t, `alter function pgque.ticker(text) rename to ticker_away; alter function pgque.ticker() rename to ticker_away`)
		b.publish(numbered(1)...)
		l.until("readyz", 503, "not ready: the ticker fails: PgQue 0.2.0 or newer is not installed in this database\n")
		l.until("metrics", 200, "pgque_ready 0\n")
		l.until("metrics", 200, "pgque_ticker_failures_total{action=\"tick\"}")
		l.signal(syscall.SIGTERM)
		l.wantCode(0)
	})
}

// A process that waits for its database is alive and not ready.
func TestListenWaiting(t *testing.T) {
	t.Parallel()
	b := &consumeBench{T: t, db: &pgtest.DB{URL: "postgres://app:hunter2@127.0.0.1:1/stega-events"}, dir: t.TempDir()}
	l := b.listen(b.startAs(func(c *exec.Cmd) { c.Env = append(c.Env, "PGQUE_VENDOR_LISTEN=127.0.0.1:0") }, "ticker", "--wait", "60s"))
	l.until("healthz", 200, "ok")
	l.until("readyz", 503, "not ready: waiting for the database\n")
	l.until("", 200, "Not looked yet")
	l.until("metrics", 200, "pgque_ready 0")
	for _, path := range []string{"", "metrics", "readyz"} {
		if _, body := l.get(path); strings.Contains(body, "hunter2") || strings.Contains(body, "127.0.0.1:1/") || strings.Contains(body, "stega-events") {
			t.Errorf("/%s shows where the database is", path)
		}
	}
	l.signal(syscall.SIGTERM)
	l.wantCode(0)
}

// Who stands by is ready as well. Failures to settle and interruptions are counted.
func TestListenConsume(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	if err := os.WriteFile(filepath.Join(b.dir, "url"), []byte(b.db.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	l := b.listen(b.consume(`read n; case $n in 1) touch begun; until test -e go; do sleep 0.02; done;; 2) exit 65;; 3) exit 75;; esac`,
		"--listen", ":0", "--database-url-file", "url"))
	l.until("readyz", 200, "ready: active\n")
	second := b.listen(b.consume(`exit 0`, "--listen", ":0"))
	second.until("readyz", 200, "ready: standing by\n")
	const of = `{consumer="c",queue="q"} `
	second.until("metrics", 200, "pgque_consumer_active"+of+"0\n")

	b.publish(numbered(4)...)
	b.until("COMMAND", func() bool { _, err := os.Stat(filepath.Join(b.dir, "begun")); return err == nil })
	b.db.Exec(t, `alter function pgque.ack(bigint) rename to ack_away`)
	if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.until("metrics", 200, "pgque_settle_failures_total"+of+"1\n")
	b.db.Exec(t, `alter function pgque.ack_away(bigint) rename to ack`)
	l.until("metrics", 200, "pgque_batch_events_sum"+of+"4\n")
	for _, line := range []string{
		`pgque_events_handled_total{consumer="c",outcome="done",queue="q"} 2`,
		`pgque_events_handled_total{consumer="c",outcome="retried",queue="q"} 1`,
		`pgque_events_handled_total{consumer="c",outcome="dead",queue="q"} 1`,
		"pgque_events_retried_total" + of + "1", "pgque_events_dead_total" + of + "1",
		"pgque_consumer_active" + of + "1", "pgque_consumer_activations_total" + of + "1",
		"pgque_consumer_interruptions_total" + of + "0", "pgque_batches_stale_total" + of + "0",
		"pgque_handler_duration_seconds_count" + of + "4",
	} {
		l.until("metrics", 200, line+"\n")
	}
	l.until("", 200, "gave up on 1 events")
	l.until("", 200, "pgque-vendor dlq list --queue q --consumer c --database-url-file url")

	b.db.Exec(t, `select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'
		and database = (select oid from pg_database where datname = current_database())
		and pid in (select pid from pg_stat_activity where application_name like '%consume%' and state = 'idle in transaction')`)
	l.until("metrics", 200, "pgque_consumer_interruptions_total"+of+"1\n")
	b.until("one active process", func() bool {
		_, one := l.get("readyz")
		_, other := second.get("readyz")
		return one == "ready: active\n" && other == "ready: standing by\n" || one == "ready: standing by\n" && other == "ready: active\n"
	})
}

// Where the vendored folder is, the page says that the database has other functions,
// to a login that may only consume as well.
func TestListenComparesFunctions(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		b := newConsumeBench(t, v)
		b.db.Exec(t, `do $$ begin execute replace(pg_get_functiondef('pgque.ticker(text)'::regprocedure), 'begin', 'begin perform 1;'); end $$`)
		reader := b.db.Role(t)
		b.db.Exec(t, "grant pgque_reader to "+reader)
		allow := func(c *exec.Cmd) {
			c.Env = append(c.Env, "PGQUE_VENDOR_ALLOW_STANDIN=1", "PGQUE_VENDOR_DATABASE_URL="+b.db.URLAs(reader))
		}
		writeVendored(t, filepath.Join(b.dir, "vendor", "pgque"), v.SQL, v.Tag)
		writeVendored(t, filepath.Join(b.dir, "else where"), v.SQL, v.Tag)
		l := b.listen(b.startAs(allow, "consume", "q", "c", "--print", "--listen", ":0"))
		l.until("", 200, "pgque.ticker(i_queue_name text) differs from the file")
		l.until("", 200, "<code>pgque-vendor bootstrap --no-grant --reinstall</code>")
		l.until("metrics", 200, `pgque_findings{code="functions-differ",severity="warning"} 1`)
		l = b.listen(b.startAs(allow, "consume", "q", "c", "--print", "--listen", ":0", "--dir", "else where"))
		l.until("", 200, "<code>pgque-vendor bootstrap --no-grant --reinstall --dir &#39;else where&#39;</code>")
	})
}

// What --listen takes, and what it says of what it does not.
func TestListenRefuses(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		"9090":                  `--listen is "9090": it takes HOST:PORT or :PORT`,
		"127.0.0.1:":            `it takes HOST:PORT or :PORT`,
		taken.Addr().String():   "address already in use",
		"192.0.2.1:9090":        `cannot listen on "192.0.2.1:9090"`,
		"127.0.0.1:no-such-one": "cannot listen on",
	} {
		for _, command := range [][]string{{"ticker"}, {"consume", "q", "c", "--print"}} {
			var stdout, stderr bytes.Buffer
			env := processEnvironment()
			env.stdout, env.stderr = &stdout, &stderr
			if code := run(append(command, "--listen", address), env); code != 2 || !strings.Contains(stderr.String(), want) {
				t.Errorf("%v --listen %s: code %d, %s", command, address, code, &stderr)
			}
		}
	}
}

// A thousand clients that send a byte now and then, and come again when they are
// sent away, stop neither ticks nor events nor the health check.
func TestListenThousandSlowConnections(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin())
	ticker := b.listen(b.start("ticker", "--listen", ":0", "--every", "20ms"))
	ticker.until("readyz", 200, "ready")
	consume := b.listen(b.consume(`cat >> got`, "--listen", ":0"))
	consume.until("readyz", 200, "ready: active")

	var open, dials atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	defer clients.Wait()
	defer close(stop)
	for i := range 1000 {
		at := []*listener{ticker, consume}[i%2]
		address := strings.TrimSuffix(strings.TrimPrefix(at.url, "http://"), "/")
		clients.Go(func() { slowClient(address, stop, &open, &dials) })
	}
	b.until("a thousand connections", func() bool { return dials.Load() >= 1000 })

	began := time.Now()
	for i := range 20 {
		b.publish(numbered(1)...)
		b.until("the event under load", func() bool { return len(b.file("got")) == i+1 })
	}
	t.Logf("20 events one after the other: %s; %d connections were made, %d are open", time.Since(began).Round(time.Millisecond), dials.Load(), open.Load())
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("20 events took %s", took)
	}
	for _, l := range []*listener{ticker, consume} {
		l.until("healthz", 200, "ok")
		l.until("readyz", 200, "ready")
		l.until("metrics", 200, "pgque_database_up 1")
	}
	for _, l := range []*listener{ticker, consume} {
		l.signal(syscall.SIGTERM)
		l.wantCode(0)
	}
}

// slowClient sends a request that never ends, a byte at a time.
func slowClient(address string, stop <-chan struct{}, open, dials *atomic.Int64) {
	for {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			dials.Add(1)
			open.Add(1)
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
			for err == nil {
				select {
				case <-stop:
					err = errors.New("stopped")
				case <-time.After(500 * time.Millisecond):
					_, err = io.WriteString(conn, "x")
				}
			}
			conn.Close()
			open.Add(-1)
		}
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
		}
	}
}
