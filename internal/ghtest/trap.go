package ghtest

import (
	"net/http"
	"net/http/httptest"
	"sync"
)

// Trap is another host, which must never be asked: it answers everything with
// 200 and keeps what it was sent.
type Trap struct {
	URL  string
	http *httptest.Server

	mu       sync.Mutex
	requests []Request
}

// NewTrap starts a trap on a port of its own. Close ends it.
func NewTrap() *Trap {
	t := &Trap{}
	t.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.mu.Lock()
		t.requests = append(t.requests, Request{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, Header: r.Header.Clone()})
		t.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("[]"))
	}))
	t.URL = t.http.URL
	return t
}

// Close ends the trap.
func (t *Trap) Close() { t.http.Close() }

// Requests returns what fell into the trap.
func (t *Trap) Requests() []Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Request(nil), t.requests...)
}

// SawToken reports whether a request carried an Authorization header.
func (t *Trap) SawToken() bool {
	for _, r := range t.Requests() {
		if r.Header.Get("Authorization") != "" {
			return true
		}
	}
	return false
}
