package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func testConfig() Config {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	return Config{
		Ready: func() (string, error) { return "ticking", nil }, Metrics: http.NotFoundHandler(), Page: page,
		Log: slog.New(slog.DiscardHandler),
	}
}

func TestOnlyReadersAreAnswered(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method, path, host, body string
		loopback                 bool
		status                   int
	}{
		{path: "/", status: 200},
		{path: "/?x=1", status: 200},
		{method: "HEAD", path: "/", status: 200},
		{path: "/healthz", status: 200},
		{path: "/readyz", status: 200},
		{path: "/nope", status: 404},
		{path: "/healthz/", status: 404},
		{path: "/debug/pprof/", status: 404},
		{method: "POST", path: "/", status: 405},
		{method: "PUT", path: "/healthz", status: 405},
		{method: "DELETE", path: "/nope", status: 405},
		{method: "OPTIONS", path: "/", status: 405},
		{method: "TRACE", path: "/", status: 405},
		{path: "/", body: "x", status: 400},
		{path: "/", host: "evil.example", status: 200},
		// A name that a web site may point to 127.0.0.1 (DNS rebinding).
		{path: "/", host: "evil.example", loopback: true, status: 421},
		{path: "/metrics", host: "evil.example:9090", loopback: true, status: 421},
		{path: "/healthz", host: "127.0.0.1.evil.example", loopback: true, status: 421},
		{path: "/", host: "localhost.evil.example", loopback: true, status: 421},
		{path: "/", host: "10.0.0.1:9090", loopback: true, status: 421},
		{path: "/", host: "localhost", loopback: true, status: 200},
		{path: "/", host: "LocalHost.:1", loopback: true, status: 200},
		{path: "/", host: "pgque.localhost:9090", loopback: true, status: 200},
		{path: "/", host: "127.0.0.1:9090", loopback: true, status: 200},
		{path: "/", host: "127.1.2.3", loopback: true, status: 200},
		{path: "/", host: "[::1]:9090", loopback: true, status: 200},
		{path: "/", host: "[::1]", loopback: true, status: 200},
	} {
		var body io.Reader
		if test.body != "" {
			body = strings.NewReader(test.body)
		}
		r := httptest.NewRequest(test.method, test.path, body)
		if test.host != "" {
			r.Host = test.host
		}
		w := httptest.NewRecorder()
		Handler(testConfig(), test.loopback).ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("%s %s of %q, loopback %v: %d, want %d", test.method, test.path, test.host, test.loopback, w.Code, test.status)
		}
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", test.method, test.path, name, got, want)
			}
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s %s: Content-Security-Policy %q", test.method, test.path, csp)
		}
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	config := testConfig()
	config.Ready = func() (string, error) { return "", errors.New("ending") }
	for path, want := range map[string]string{"/readyz": "503 not ready: ending\n", "/healthz": "200 ok\n"} {
		w := httptest.NewRecorder()
		Handler(config, true).ServeHTTP(w, httptest.NewRequest("GET", "http://localhost"+path, nil))
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for address, loopback := range map[string]bool{":0": true, "127.0.0.1:0": true, "localhost:0": true, "0.0.0.0:0": false} {
		l, err := Listen(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if l.Loopback != loopback || !strings.HasPrefix(l.URL(), "http://127.0.0.1:") && address != "localhost:0" {
			t.Errorf("%s: loopback %v, %s", address, l.Loopback, l.URL())
		}
		if address == ":0" && !strings.HasPrefix(l.Addr().String(), "127.0.0.1:") {
			t.Errorf("%s listens on %s", address, l.Addr())
		}
		l.Close()
	}
	for _, address := range []string{"", "x", "127.0.0.1", "127.0.0.1:", "1.2.3.4.5:80", ":99999"} {
		if l, err := Listen(t.Context(), address); err == nil {
			t.Errorf("%q listens on %s", address, l.Addr())
		}
	}
}

// served starts a server, which ends with the test.
func served(t *testing.T, config Config) (address string) {
	t.Helper()
	l, err := Listen(t.Context(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { Serve(ctx, l, config) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return l.Addr().String()
}

// However many connections stay silent, one more is answered.
func TestOneMoreIsAnswered(t *testing.T) {
	t.Parallel()
	address := served(t, testConfig())
	for range maxConnections {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	for i := range 3 {
		client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + address + "/healthz")
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		response.Body.Close()
	}
}

// One connection more than there may be closes the oldest, and no other.
func TestTheOldestConnectionGoes(t *testing.T) {
	t.Parallel()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	const most = 3
	limited := &newestConnections{Listener: socket, most: most}
	var clients, accepted []net.Conn
	for range most + 1 {
		client, err := net.Dial("tcp", socket.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		conn, err := limited.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		clients, accepted = append(clients, client), append(accepted, conn)
	}
	for i, client := range clients {
		if err := client.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if _, err := accepted[i].Write([]byte("x")); err != nil {
				t.Errorf("connection %d: %v", i, err)
			}
		}
		n, err := client.Read(make([]byte, 1))
		if open := n == 1 && err == nil; open != (i > 0) || isTimeout(err) {
			t.Errorf("connection %d: read %d bytes, %v", i, n, err)
		}
	}
}

// patience is how long tests wait for what must come about.
const patience = 3 * time.Minute

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// A header that is too large, or does not come to its end, ends the connection.
func TestSlowAndLargeHeaders(t *testing.T) {
	t.Parallel()
	address := served(t, testConfig())
	large, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if _, err := io.WriteString(large, "GET / HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 64<<10)); err != nil {
		t.Logf("write: %v", err) // it may be gone already
	}
	if line, err := bufio.NewReader(large).ReadString('\n'); err == nil && !strings.Contains(line, "431") {
		t.Errorf("a header of 64 KB: %q", line)
	}
	slow, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := io.WriteString(slow, "GET / HTTP/1.1\r\nHost: "); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := slow.SetReadDeadline(began.Add(headerTime + patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(slow); isTimeout(err) {
		t.Errorf("a header that does not end is waited for: %s", time.Since(began))
	}
}
