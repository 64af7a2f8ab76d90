package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// health is what a container's health check has: its exit code says it all, and
// its output is kept for whoever looks.
func TestHealth(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}))
	t.Cleanup(server.Close)
	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no tick for 3m0s", http.StatusServiceUnavailable)
	}))
	t.Cleanup(sick.Close)
	elsewhere := httptest.NewServer(http.RedirectHandler(server.URL+"/healthz", http.StatusFound))
	t.Cleanup(elsewhere.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	free.Close()

	for _, test := range []struct {
		name   string
		args   []string
		env    map[string]string
		code   int
		stdout string // contained
		stderr string
	}{
		{name: "well", args: []string{"--listen", server.Listener.Addr().String()}, stdout: "ok\n"},
		{name: "from the environment", env: map[string]string{"PGQUE_VENDOR_LISTEN": ":" + port}, stdout: "ok\n"},
		{name: "everywhere", args: []string{"--listen", "0.0.0.0:" + port}, stdout: "ok\n"},
		{name: "not well", args: []string{"--listen", sick.Listener.Addr().String()}, code: 1,
			stdout: "no tick for 3m0s", stderr: "answers 503"},
		{name: "a redirect is no answer", args: []string{"--listen", elsewhere.Listener.Addr().String()}, code: 1, stderr: "answers 302"},
		{name: "nobody there", args: []string{"--listen", nobody}, code: 1, stderr: "not well: "},
		{name: "no address", stderr: "nothing was asked"},
		{name: "no port", args: []string{"--listen", "127.0.0.1"}, code: 2, stderr: `--listen is "127.0.0.1"`},
		{name: "port 0", args: []string{"--listen", ":0"}, code: 2, stderr: "HOST:PORT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			env := processEnvironment()
			env.stdout, env.stderr = &stdout, &stderr
			env.lookup = func(name string) (string, bool) { v, ok := test.env[name]; return v, ok }
			if code := run(append([]string{"health"}, test.args...), env); code != test.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, &stdout, &stderr)
			}
			if !strings.Contains(stdout.String(), test.stdout) || !strings.Contains(stderr.String(), test.stderr) {
				t.Errorf("stdout %q, want %q in it\nstderr %q, want %q in it", &stdout, test.stdout, &stderr, test.stderr)
			}
		})
	}
}
