package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

func TestDemoUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"demo", "more"}, `unknown command "more"`},
		{[]string{"demo", "--from", "/nowhere/at/all"}, `--from is "/nowhere/at/all"`},
	} {
		_, stderr, code := runCommand(t, nil, tt.args...)
		if code != 2 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit code %d, stderr %s", tt.args, code, stderr)
		}
	}
	_, stderr, code := runCommand(t, map[string]string{"PGQUE_TEST_PG_BIN": "/nowhere"}, "demo")
	if code != 2 || !strings.Contains(stderr, `PGQUE_TEST_PG_BIN names "/nowhere"`) {
		t.Errorf("a wrong PGQUE_TEST_PG_BIN: exit code %d, stderr %s", code, stderr)
	}
}

// Nothing on the machine, nothing to download: the reason and what to do.
func TestDemoDownloadFails(t *testing.T) {
	t.Parallel()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	for _, tt := range []struct{ repository, want string }{
		{missing.URL, "answered 404 Not Found for /"},
		{"http://127.0.0.1:1", "connection refused"},
	} {
		env := &environment{stderr: io.Discard}
		_, err := downloadServer(t.Context(), env, t.TempDir(), tt.repository)
		var printed bytes.Buffer
		printError(&printed, err)
		for _, want := range []string{"no PostgreSQL is on this machine, and none could be downloaded", tt.want, "hint: install PostgreSQL", "hint: if it is in an unusual place"} {
			if !strings.Contains(printed.String(), want) {
				t.Errorf("%s: %q is missing from: %s", tt.repository, want, printed.String())
			}
		}
	}
}

func TestDemoDownloadProgress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "12582912")
		w.Write(make([]byte, 12<<20))
	}))
	defer server.Close()
	var talk bytes.Buffer
	r, err := startRelay(&environment{stderr: &talk}, server.URL+"/maven")
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(r.url + "/some/file")
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, response.Body)
	response.Body.Close()
	r.Close()
	if n != 12<<20 || err != nil {
		t.Errorf("%d bytes came, %v", n, err)
	}
	if want := "5 of 12 MB\n10 of 12 MB\n"; talk.String() != want {
		t.Errorf("progress is %q, want %q", talk.String(), want)
	}
}

func TestDemoEnvironment(t *testing.T) {
	t.Parallel()
	got := demoEnvironment([]string{
		"HOME=/home/ann", "PGHOST=db", "PGPASSWORD=x", "DATABASE_URL=postgres://x", "DATABASE_URL_FILE=/f",
		"PGQUE_VENDOR_DIR=d", "PGQUE_VENDOR_TOKEN=t", "GH_TOKEN=g", "GITHUB_ACTIONS=true", "GITHUB_API_URL=http://x",
	})
	want := []string{"HOME=/home/ann", "PGQUE_VENDOR_TOKEN=t", "GH_TOKEN=g", "GITHUB_API_URL=http://x", "PGQUE_VENDOR_NO_CACHE=true"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
