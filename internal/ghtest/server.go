// Package ghtest is a GitHub for tests: an HTTP server that answers the parts
// of GitHub's REST API which vendoring needs, from any git repository, and
// misbehaves on demand. It imitates what GitHub really does, also where that
// is odd: a single ref is matched exactly, "../" in a path is resolved, a tree
// may be named by a commit, the contents API gives no content above 1 MB, page
// links go to /repositories/ID.
//
// The program of the same purpose for scripts is in serve/.
package ghtest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options say what the server shows.
type Options struct {
	GitDir       string        // a repository, bare or not
	Repository   string        // "owner/name" that it is shown as; "owner/repo" when empty
	RepositoryID int64         // 4711 when 0
	Prefix       string        // "/api/v3" makes an Enterprise server
	Latency      time.Duration // before each answer
	TreeLimit    int           // a recursive listing of more entries is cut; 100,000 when 0
	Token        string        // the one valid token; any is valid when empty
	Private      bool          // without a token there is nothing to see
	TLS          bool          // with a certificate of its own authority
	Addr         string        // where to listen; a free port of the loopback when empty
}

// Server is a running GitHub.
type Server struct {
	URL  string // the API's root, with Prefix and without a slash at the end
	http *httptest.Server
	opts Options
	git  *gitDir
	done chan struct{}

	mu       sync.Mutex
	faults   []*Fault
	requests []*Request
	inFlight int
	newName  string
	id       int64
	tags     map[string]string // tags that differ from the repository's; "" is a deleted one
}

// Request is one request that came in.
type Request struct {
	Method   string
	Path     string // as it came, escaped, without Prefix
	Query    string
	Header   http.Header
	Began    time.Time
	Ended    time.Time
	InFlight int // requests being answered when it came, itself included
}

// New starts a server. Close ends it.
func New(o Options) *Server {
	if o.Repository == "" {
		o.Repository = "owner/repo"
	}
	if o.RepositoryID == 0 {
		o.RepositoryID = 4711
	}
	if o.TreeLimit == 0 {
		o.TreeLimit = 100_000
	}
	s := &Server{
		opts: o,
		git:  &gitDir{dir: o.GitDir},
		done: make(chan struct{}),
		id:   o.RepositoryID,
		tags: map[string]string{},
	}
	s.http = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that a test wants to fail
	if o.Addr != "" {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", o.Addr)
		if err != nil {
			panic("ghtest: " + err.Error()) // as httptest does
		}
		s.http.Listener.Close()
		s.http.Listener = l
	}
	if o.TLS {
		s.http.EnableHTTP2 = true
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	s.URL = s.http.URL + o.Prefix
	return s
}

// Close ends the server and every answer that is still being held back.
func (s *Server) Close() {
	close(s.done)
	s.http.CloseClientConnections()
	s.http.Close()
}

// Transport returns a transport that trusts the server's certificate.
func (s *Server) Transport() *http.Transport {
	return s.http.Client().Transport.(*http.Transport).Clone()
}

// Requests returns what came in so far, in order.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.requests))
	for i, r := range s.requests {
		all[i] = *r
	}
	return all
}

// Paths returns the paths of the requests so far, with their queries.
func (s *Server) Paths() []string {
	var paths []string
	for _, r := range s.Requests() {
		p := r.Path
		if r.Query != "" {
			p += "?" + r.Query
		}
		paths = append(paths, p)
	}
	return paths
}

// Forget empties the record of requests.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = nil
}

// RoundTrips returns how many requests, at least, were made one after another:
// the length of the longest chain in which each began after the one before had
// ended. Give the server some Latency, or requests made at once may not overlap.
func (s *Server) RoundTrips() int {
	all := s.Requests()
	slices.SortFunc(all, func(a, b Request) int { return a.Ended.Compare(b.Ended) })
	n, last := 0, time.Time{}
	for _, r := range all {
		if r.Ended.IsZero() || r.Began.Before(last) {
			continue
		}
		n, last = n+1, r.Ended
	}
	return n
}

// Rename gives the repository a new name. Requests for the old one are
// answered 301, to its id.
func (s *Server) Rename(newName string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newName = newName
}

// SetRepositoryID makes it another repository under the same name.
func (s *Server) SetRepositoryID(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
}

// SetTag adds a tag, or moves one, without touching the git repository. The
// id may be any object's.
func (s *Server) SetTag(name, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tags[name] = id
}

// DeleteTag hides a tag of the git repository.
func (s *Server) DeleteTag(name string) { s.SetTag(name, "") }

// Inject makes the server misbehave. Faults are looked through in the order
// they came; the first that matches a request and is not used up is applied.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal removes all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	record := s.begin(r)
	defer s.end(record)
	f := s.faultFor(r, record.Path)
	if !s.pause(r.Context(), s.opts.Latency) || f != nil && !s.pause(r.Context(), f.delay) {
		return
	}
	answer := s.answer(r, record.Path)
	if f != nil && f.change != nil {
		f.change(answer)
	}
	if answer.Status == http.StatusOK && answer.Header.Get("ETag") == "" {
		answer.tag(r)
	}
	answer.write(w, s.done)
}

func (s *Server) begin(r *http.Request) *Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
	record := &Request{
		Method: r.Method,
		Path:   strings.TrimPrefix(r.URL.EscapedPath(), s.opts.Prefix),
		Query:  r.URL.RawQuery,
		Header: r.Header.Clone(),
		Began:  time.Now(), InFlight: s.inFlight,
	}
	s.requests = append(s.requests, record)
	return record
}

func (s *Server) end(record *Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
	record.Ended = time.Now()
}

// pause reports whether the time went by before the client or the server ended.
func (s *Server) pause(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.done:
	}
	return false
}
