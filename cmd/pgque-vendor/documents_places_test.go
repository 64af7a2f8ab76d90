//go:build unix

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// cmdCheckout: "checkout [FOLDER]" goes into this repository, where go works.
func cmdCheckout(ts *testscript.TestScript, _ bool, args []string) {
	root, err := filepath.Abs("../..")
	ts.Check(err)
	ts.Check(ts.Chdir(filepath.Join(append([]string{root}, args...)...)))
	for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		ts.Check(err)
		ts.Setenv(name, strings.TrimSpace(string(value)))
	}
}

// cmdServer: "server [LOGIN…]" starts a server of this script's own, with the database
// of the documents and these logins. PGQUE_VENDOR_DATABASE_URL names it as the
// superuser, $AS_LOGIN as a login, and $SERVER is its host and port.
func cmdServer(ts *testscript.TestScript, _ bool, args []string) {
	d := ts.Value("database").(*scriptDatabase)
	server := pgtest.NewServer(d.test, pgtest.Options{})
	d.db = &pgtest.DB{Name: "stega-events", URL: server.URL("stega-events", ""), Server: server}
	conn := server.Connect(d.test)
	for _, sql := range append([]string{`create database "stega-events"`}, args...) {
		if !strings.HasPrefix(sql, "create") {
			ts.Setenv("AS_"+strings.ToUpper(sql), d.db.URLAs(sql))
			sql = "create role " + sql + " login"
		}
		_, err := conn.Exec(d.test.Context(), sql)
		ts.Check(err)
	}
	address, err := url.Parse(d.db.URL)
	ts.Check(err)
	ts.Setenv("SERVER", address.Host)
	ts.Setenv("PGQUE_VENDOR_DATABASE_URL", d.db.URL)
}

// cmdByHand: "byhand" installs PgQue as people did before there was bootstrap: the file,
// as the superuser.
func cmdByHand(ts *testscript.TestScript, _ bool, _ []string) {
	d := databaseOf(ts)
	d.db.Install(d.test, pgtest.Variant{Name: "by hand", SQL: []byte(ts.ReadFile("vendor/pgque/pgque.sql"))})
}

// cmdHandled: "handled QUEUE CONSUMER" waits until a consumer is through with all that
// was sent.
func cmdHandled(ts *testscript.TestScript, _ bool, args []string) {
	d := databaseOf(ts)
	conn := d.db.Connect(d.test)
	defer conn.Close(context.Background())
	eventually(ts, func() bool {
		queues, err := events.Queues(d.test.Context(), conn)
		ts.Check(err)
		consumers, err := events.Consumers(d.test.Context(), conn, args[0])
		ts.Check(err)
		waiting := int64(1) // for a consumer that subscribes
		for _, q := range queues {
			for _, c := range consumers {
				if q.Name == args[0] && c.Name == args[1] {
					waiting = q.NewEvents + c.Pending + c.Retries
				}
			}
		}
		return waiting == 0
	})
}

// eventually waits for what must come about while all that goes on goes on.
func eventually(ts *testscript.TestScript, done func() bool) {
	r := ts.Value("reader").(*reader)
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		for _, b := range r.background {
			b.mustGoOn(ts)
		}
		if time.Now().After(deadline) {
			ts.Fatalf("it has not come about in %s:\n%s", patience, r.outputs())
		}
	}
}

// mailbox is the other side of a handler that sends mail over HTTP.
type mailbox struct {
	mu      sync.Mutex
	letters strings.Builder
}

// cmdMailbox: "mailbox" starts a service for mail at $MAIL_API.
func cmdMailbox(ts *testscript.TestScript, _ bool, _ []string) {
	m := &ts.Value("reader").(*reader).mailbox
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.letters.WriteString(r.Method + " " + r.URL.Path + " " + string(body) + "\n")
	}))
	ts.Defer(server.Close)
	ts.Setenv("MAIL_API", server.URL)
}

// cmdLetter: "letter REGEXP" waits for a letter.
func cmdLetter(ts *testscript.TestScript, _ bool, args []string) {
	m := &ts.Value("reader").(*reader).mailbox
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	eventually(ts, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return pattern.MatchString(m.letters.String())
	})
}
