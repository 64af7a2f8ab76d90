package ghclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// B048: only the one origin is asked, whatever it says.
func TestRedirects(t *testing.T) {
	t.Parallel()
	f := shared
	trap := ghtest.NewTrap()
	t.Cleanup(trap.Close)
	plain := func(s *ghtest.Server) string { return strings.Replace(s.URL, "https://", "http://", 1) }
	elsewhere := []string{"only https://127.0.0.1", "is ever contacted", "not followed"}
	tests := []struct {
		name     string
		fault    func(s *ghtest.Server) ghtest.Fault
		requests int
		words    []string // none: it succeeds
	}{
		{"301 to another host", func(*ghtest.Server) ghtest.Fault { return ghtest.Redirect(301, trap.URL+"/x") }, 1, elsewhere},
		{"302 to another host", func(*ghtest.Server) ghtest.Fault { return ghtest.Redirect(302, trap.URL+"/x") }, 1, elsewhere},
		{"307 to another host", func(*ghtest.Server) ghtest.Fault { return ghtest.Redirect(307, trap.URL+"/x") }, 1, elsewhere},
		{"308 to a host without a scheme", func(*ghtest.Server) ghtest.Fault {
			return ghtest.Redirect(308, strings.TrimPrefix(trap.URL, "http:")+"/x")
		}, 1, elsewhere},
		{"302 to http", func(s *ghtest.Server) ghtest.Fault { return ghtest.Redirect(302, plain(s)+"/x") }, 1, elsewhere},
		{"302 to another port", func(s *ghtest.Server) ghtest.Fault { return ghtest.Redirect(302, "https://127.0.0.1:1/x") }, 1, elsewhere},
		{"302 with a login", func(s *ghtest.Server) ghtest.Fault {
			return ghtest.Redirect(302, "https://user:hunter2@elsewhere.example/x")
		}, 1, elsewhere},
		{"302 nowhere", func(*ghtest.Server) ghtest.Fault { return ghtest.Redirect(302, "") }, 1, []string{"without saying where to"}},
		{"302 to no URL", func(*ghtest.Server) ghtest.Fault { return ghtest.Redirect(302, "http://[") }, 1, []string{"without saying where to"}},
		{"a loop", func(*ghtest.Server) ghtest.Fault { return ghtest.RedirectLoop() }, maxRedirects + 1, []string{"redirects more than 5 times"}},
		{"302 within the host", func(s *ghtest.Server) ghtest.Fault {
			return ghtest.Redirect(302, s.URL+"/repos/owner/repo/git/ref/tags/v0.2.0").First(1)
		}, 2, nil},
		{"307 to a path", func(*ghtest.Server) ghtest.Fault {
			return ghtest.Redirect(307, "/repos/owner/repo/git/ref/tags/v0.2.0").First(1)
		}, 2, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{TLS: true})
			s.Inject(tt.fault(s))
			c, _ := connect(t, s, Options{Token: secret, TokenSource: "GITHUB_TOKEN"})
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			if tt.words == nil && err != nil {
				t.Error(err)
			}
			if tt.words != nil {
				f := wantFault(t, err, fault.Upstream, tt.words...)
				if strings.Contains(f.Text, "hunter2") {
					t.Errorf("a password is shown: %s", f)
				}
			}
			if n := len(s.Requests()); n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(trap.Requests()); n > 0 || trap.SawToken() {
			t.Errorf("the other host got %d requests, with a token: %t", n, trap.SawToken())
		}
	})
}

// The last gate before the network, whatever let a request come that far.
func TestOneOrigin(t *testing.T) {
	t.Parallel()
	trap := ghtest.NewTrap()
	t.Cleanup(trap.Close)
	c, err := New(Options{BaseURL: "http://127.0.0.1:1", Repository: "o/r", Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodGet, trap.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.transport.RoundTrip(req); err == nil || len(trap.Requests()) > 0 {
		t.Errorf("%v, %d requests", err, len(trap.Requests()))
	}
	req.Method = http.MethodPost
	if _, err := c.transport.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "only reading") {
		t.Error(err)
	}
}

// B072: what is no answer of GitHub's is named for what it is.
func TestAnswerShape(t *testing.T) {
	t.Parallel()
	f := shared
	long := "<html>\x1b[31m" + strings.Repeat("é", 200)
	tests := []struct {
		name     string
		fault    ghtest.Fault
		requests int
		words    []string
	}{
		{"HTML", ghtest.HTML(), 1, []string{"expected JSON from 127.0.0.1", "got text/html (proxy or login page?)", "Sign in to the network"}},
		{"HTML that says it is JSON", ghtest.Body("application/json", "<html>hello"), 1, []string{"got application/json (proxy or login page?)"}},
		{"text", ghtest.Body("text/plain", "moved"), 1, []string{`got text/plain: "moved"`}},
		{"no content type", ghtest.Body("", "moved"), 1, []string{`no content type`}},
		{"a long page", ghtest.Body("text/html", long), 1, []string{`"<html>[31m` + strings.Repeat("é", 35) + `"`}},
		{"nothing", ghtest.Empty(), maxTries, []string{"empty answer"}},
		{"{}", ghtest.Body("application/json", "{}"), 1, []string{"a ref without a name"}},
		{"null", ghtest.Body("application/json", "null"), 1, []string{"expected JSON"}},
		{"an array", ghtest.Body("application/json", "[]"), 1, []string{"another shape"}},
		{"a number for a string", ghtest.Body("application/json", `{"ref":1}`), 1, []string{"another shape"}},
		{"JSON cut", ghtest.TruncatedJSON(40), maxTries, []string{"ends within its JSON, after 40 bytes"}},
		{"204", ghtest.Change(func(a *ghtest.Answer) { a.Status, a.Body = 204, nil }), 1, []string{"204"}},
		{"202", ghtest.Change(func(a *ghtest.Answer) { a.Status, a.Body = 202, []byte("{}") }), 1, []string{"202"}},
		{"451", ghtest.Status(451, "Repository access blocked"), 1, []string{`451 "Repository access blocked"`}},
		{"a gateway's page", ghtest.Change(func(a *ghtest.Answer) {
			a.Status, a.Body = 502, []byte("<html>Bad Gateway</html>")
			a.Header.Set("Content-Type", "text/html")
		}), maxTries, []string{"502 with text/html", "Bad Gateway"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			s.Inject(tt.fault)
			c, _ := connect(t, s, Options{})
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			f := wantFault(t, err, fault.Upstream, tt.words...)
			if len(f.Text) > 400 || strings.ContainsAny(f.Text, "\x1b\n") {
				t.Errorf("%d bytes: %q", len(f.Text), f.Text)
			}
			if n := len(s.Requests()); n != tt.requests {
				t.Errorf("%d requests, want %d", n, tt.requests)
			}
		})
	}
}

func TestWrongContentTypeRightBody(t *testing.T) {
	t.Parallel()
	f := shared
	for _, contentType := range []string{"text/plain", "text/html", ""} {
		s := f.serve(t, ghtest.Options{})
		s.Inject(ghtest.Header("Content-Type", contentType))
		c, _ := connect(t, s, Options{})
		if _, err := c.ResolveTag(context.Background(), "v0.2.0"); err != nil {
			t.Errorf("%q: %v", contentType, err)
		}
	}
}

// A cache in between may answer 304 to a question that had no condition; the
// next try asks it not to.
func TestNotModified(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	s.Inject(ghtest.Change(func(a *ghtest.Answer) {
		if a.Request.Header.Get("Cache-Control") != "no-cache" {
			a.Status, a.Body = http.StatusNotModified, nil
		}
	}))
	c, _ := connect(t, s, Options{})
	if _, err := c.ResolveTag(context.Background(), "v0.2.0"); err != nil {
		t.Error(err)
	}
	if n := len(s.Requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// A server that needs a second is slow, not stalled, however little time there is.
func TestStallIsNotShortened(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[time.Duration]time.Duration{
		3 * time.Second: 10 * time.Second, time.Minute: 15 * time.Second, 10 * time.Minute: 30 * time.Second,
	} {
		c, err := New(Options{Repository: "a/b", Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.transport.stall; got != want {
			t.Errorf("--timeout %s: a connection may bring nothing for %s, want %s", timeout, got, want)
		}
	}
}

func TestStalls(t *testing.T) {
	t.Parallel()
	f := shared
	for name, fault_ := range map[string]ghtest.Fault{"no answer": ghtest.Stall(), "half a body": ghtest.StallBody(10)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			s.Inject(fault_.First(1))
			c, _ := connect(t, s, Options{})
			c.transport.stall = 2 * time.Second // enough for a busy machine to answer
			if _, err := c.ResolveTag(context.Background(), "v0.2.0"); err != nil {
				t.Errorf("one stall: %v", err)
			}
			s.Inject(fault_)
			c.transport.stall = 20 * time.Millisecond
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			wantFault(t, err, fault.Upstream, "20ms")
		})
	}
}

// The time limit is one for all that a client does.
func TestBudget(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	s.Inject(ghtest.Status(502, "Bad Gateway").First(1))
	s.Inject(ghtest.Stall())
	c, _ := connect(t, s, Options{Timeout: 2 * time.Second})
	c.transport.stall = time.Minute
	began := time.Now()
	_, err := c.ResolveTag(context.Background(), "v0.2.0")
	wantFault(t, err, fault.Upstream, "gave no complete answer within 2s", "502", "--timeout")
	if took := time.Since(began); took < 1500*time.Millisecond || took > 30*time.Second {
		t.Errorf("it took %s", took)
	}
	n := len(s.Requests())
	_, err = c.Tags(context.Background())
	wantFault(t, err, fault.Upstream, "gave no complete answer within 2s")
	if len(s.Requests()) != n {
		t.Error("a request was made after the time had run out")
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	interrupted := errors.New("interrupted by a signal")
	calls := map[string]func(*Client, context.Context) error{
		"tags":    func(c *Client, ctx context.Context) error { _, err := c.Tags(ctx); return err },
		"resolve": func(c *Client, ctx context.Context) error { _, err := c.ResolveTag(ctx, "v1"); return err },
		"entries": func(c *Client, ctx context.Context) error {
			_, err := c.Entries(ctx, gitobject.ID(f.v1), []string{"x"})
			return err
		},
		"blob": func(c *Client, ctx context.Context) error { _, err := c.Blob(ctx, gitobject.ID(f.v1), 9); return err },
		"id":   func(c *Client, ctx context.Context) error { _, err := c.RepositoryID(ctx); return err },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := connect(t, s, Options{})
			ctx, cancel := context.WithCancelCause(context.Background())
			// The request itself brings the signal, so it has begun for sure.
			c.transport.http.Proxy = func(*http.Request) (*url.URL, error) { cancel(interrupted); return nil, nil }
			if err := call(c, ctx); !errors.Is(err, interrupted) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// B049: GitHub redirects an old name to the repository's id.
func TestRenamed(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{RepositoryID: 99})
	s.Rename("New-Owner/new.repo")
	c, n := connect(t, s, Options{})
	ctx := context.Background()
	if _, _, ok := c.Renamed(); ok {
		t.Error("renamed before any request")
	}
	tag, err := c.ResolveTag(ctx, "v0.2.0-rc.1")
	if err != nil || string(tag.Commit) != f.rcCommit {
		t.Fatalf("%+v, %v", tag, err)
	}
	if _, err := c.Entries(ctx, tag.Commit, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Tags(ctx); err != nil {
		t.Fatal(err)
	}
	name, id, ok := c.Renamed()
	if name != "New-Owner/new.repo" || id != 99 || !ok {
		t.Errorf("renamed to %q, %d, %t", name, id, ok)
	}
	if want := `the repository "owner/repo" is "New-Owner/new.repo" now`; n.all() != want {
		t.Errorf("said %q, want %q once", n.all(), want)
	}
	if id, err := c.RepositoryID(ctx); id != 99 || err != nil {
		t.Errorf("id %d, %v", id, err)
	}
	// The redirect, its target, the name; then the new name at once.
	old := 0
	for _, p := range s.Paths() {
		if strings.HasPrefix(p, "/repos/owner/repo") {
			old++
		}
	}
	if old != 1 || len(s.Requests()) != 7 {
		t.Errorf("%d requests under the old name, %d in all: %q", old, len(s.Requests()), s.Paths())
	}
}

func TestRenamedEverywhere(t *testing.T) {
	t.Parallel()
	f := shared
	blob := gitobject.ID(f.repo.ID(f.v2 + ":LICENSE"))
	calls := map[string]func(*Client, context.Context) error{
		"tags": func(c *Client, ctx context.Context) error { _, err := c.Tags(ctx); return err },
		"entries": func(c *Client, ctx context.Context) error {
			_, err := c.Entries(ctx, gitobject.ID(f.v1), nil)
			return err
		},
		"blob": func(c *Client, ctx context.Context) error { _, err := c.Blob(ctx, blob, 10); return err },
		"id": func(c *Client, ctx context.Context) error {
			id, err := c.RepositoryID(ctx)
			if err == nil && id != 4711 {
				err = errors.New("another id")
			}
			return err
		},
	}
	for name, call := range calls {
		for _, prefix := range []string{"", "/api/v3"} {
			s := f.serve(t, ghtest.Options{Prefix: prefix})
			s.Rename("new/name")
			c, n := connect(t, s, Options{})
			if err := call(c, context.Background()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got, _, ok := c.Renamed(); got != "new/name" || !ok || strings.Count(n.all(), "new/name") != 1 {
				t.Errorf("%s: renamed to %q, said %q", name, got, n.all())
			}
		}
	}
}

// Where GitHub does not tell the new name, the old one goes on working.
func TestRenamedWithoutAName(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	s.Rename("new/name")
	s.Inject(ghtest.Replace(`"full_name":"new/name"`, `"full_name":"../../x"`))
	c, n := connect(t, s, Options{})
	for range 2 {
		if _, err := c.ResolveTag(context.Background(), "v0.2.0"); err != nil {
			t.Fatal(err)
		}
	}
	if name, id, ok := c.Renamed(); name != "" || id != 4711 || !ok {
		t.Errorf("renamed to %q, %d, %t", name, id, ok)
	}
	if want := `the repository "owner/repo" has a new name; its id is 4711`; n.all() != want {
		t.Errorf("said %q", n.all())
	}
}

// A redirect to another path of the same repository is no new name.
func TestMovedPathIsNoRename(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	s.Inject(ghtest.Redirect(301, "/repos/Owner/Repo/git/ref/tags/v0.2.0").First(1))
	c, n := connect(t, s, Options{})
	if _, err := c.ResolveTag(context.Background(), "v0.2.0"); err != nil {
		t.Fatal(err)
	}
	if name, id, ok := c.Renamed(); ok || n.all() != "" {
		t.Errorf("renamed to %q, %d; said %q", name, id, n.all())
	}
	s.Inject(ghtest.Redirect(301, "/repos/new/name/git/ref/tags/v0.2.0").First(1))
	s.Inject(ghtest.Status(404, "Not Found"))
	_, err := c.ResolveTag(context.Background(), "v0.2.0")
	wantFault(t, err, fault.Upstream, `"new/name"`)
	if name, _, ok := c.Renamed(); name != "new/name" || !ok {
		t.Errorf("renamed to %q, %t", name, ok)
	}
}

func TestRepositoryID(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	s.SetRepositoryID(12)
	c, _ := connect(t, s, Options{Repository: "OWNER/Repo"}) // case is no difference
	if id, err := c.RepositoryID(context.Background()); id != 12 || err != nil {
		t.Errorf("id %d, %v", id, err)
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	s.Inject(ghtest.Body("application/json", "{}").First(1))
	_, err := c.RepositoryID(context.Background())
	wantFault(t, err, fault.Upstream, "a repository without an id")
	c, _ = connect(t, s, Options{Repository: "no/such"})
	_, err = c.RepositoryID(context.Background())
	wantFault(t, err, fault.Upstream, `no repository "no/such"`)
}
