package ghclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

const secret = "ghp_thisTokenMustNeverBeSeen0123456789"

// fixture is a repository like PgQue's, small: three files, a directory beside
// them, light-weight and annotated tags.
type fixture struct {
	repo     *ghtest.Repo
	v1, v2   string // commits
	sql2     string // the SQL's bytes at v2
	rc       string // the tag object of the annotated v0.2.0-rc.1
	rcCommit string
}

// shared is a fixture for the tests that leave it as it is.
var shared *fixture

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "ghclient")
	if err != nil {
		panic(err)
	}
	shared = newFixture(setup{dir})
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// setup stands in for a test while there is none yet.
type setup struct{ dir string }

func (s setup) Helper()           {}
func (s setup) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (s setup) TempDir() string   { return s.dir }

func newFixture(t ghtest.TB) *fixture {
	t.Helper()
	f := &fixture{repo: ghtest.NewRepo(t)}
	f.v1 = f.repo.Commit(map[string]string{
		"LICENSE": "a licence\n", "NOTICE": "a notice\n", "sql/pgque.sql": "select 1;\n", "docs/a/b/c.md": "text\n", "sql.txt": "x",
	})
	f.repo.Tag("v0.1.0", f.v1)
	f.rcCommit = f.repo.Commit(map[string]string{"sql/pgque.sql": "select 2;\n"})
	f.rc = f.repo.AnnotatedTag("v0.2.0-rc.1", f.rcCommit)
	f.sql2 = "-- müsli\n" + strings.Repeat("select 'two';\n", 2000)
	f.v2 = f.repo.Commit(map[string]string{"sql/pgque.sql": f.sql2})
	f.repo.Tag("v0.2.0", f.v2)
	return f
}

func (f *fixture) serve(t *testing.T, o ghtest.Options) *ghtest.Server {
	t.Helper()
	o.GitDir = f.repo.Dir
	s := ghtest.New(o)
	t.Cleanup(s.Close)
	return s
}

// notices collects what a client tells its user.
type notices struct {
	mu   sync.Mutex
	said []string
}

func (n *notices) add(s string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, s)
}

func (n *notices) all() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.said, "\n")
}

// connect makes a client that retries without the usual waits.
func connect(t *testing.T, s *ghtest.Server, o Options) (*Client, *notices) {
	t.Helper()
	n := &notices{}
	if o.BaseURL == "" {
		o.BaseURL = s.URL
	}
	if o.Repository == "" {
		o.Repository = "owner/repo"
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Transport == nil {
		o.Transport = s.Transport()
	}
	o.UserAgent = "pgque-vendor/test"
	if o.Notice == nil {
		o.Notice = n.add
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.transport.firstWait = time.Millisecond
	return c, n
}

// wantFault checks class and words of a failure, and that no secret is in it.
func wantFault(t *testing.T, err error, class fault.Class, words ...string) *fault.Error {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Fatalf("got error %v, want a fault of class %d", err, class)
	}
	if f.Class != class {
		t.Errorf("class %d, want %d: %v", f.Class, class, f)
	}
	all := f.Text + "\n" + strings.Join(f.Hints, "\n")
	for _, w := range words {
		if !strings.Contains(all, w) {
			t.Errorf("the failure lacks %q:\n%s", w, all)
		}
	}
	if strings.Contains(all, secret) {
		t.Errorf("the failure shows the token:\n%s", all)
	}
	return f
}

// debugLog logs everything. The client writes one line at a time.
func debugLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func names(tags []gitobject.Tag) []string {
	var n []string
	for _, t := range tags {
		n = append(n, t.Name)
	}
	slices.Sort(n)
	return n
}

func TestUpdateRequests(t *testing.T) {
	t.Parallel()
	f := shared
	paths := []string{"sql/pgque.sql", "LICENSE", "no/such", "NOTICE", "sql"}
	tests := []struct {
		tag    string
		object string
		commit string
		calls  int
	}{
		{"v0.2.0", f.v2, f.v2, 3},
		{"v0.2.0-rc.1", f.rc, f.rcCommit, 4}, // B022: the commit, not the tag's object
	}
	for _, tt := range tests {
		t.Run(tt.tag, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			together := ghtest.Meet(2)
			s.Inject(together.At("git/commits"))
			s.Inject(together.At("git/trees"))
			c, n := connect(t, s, Options{})
			ctx := context.Background()
			tag, err := c.ResolveTag(ctx, tt.tag)
			if err != nil {
				t.Fatal(err)
			}
			if string(tag.Object) != tt.object || string(tag.Commit) != tt.commit || tag.Name != tt.tag {
				t.Errorf("got %+v", tag)
			}
			entries, err := c.Entries(ctx, tag.Commit, paths)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(s.Requests()); got != tt.calls {
				t.Errorf("%d requests, want %d: %q", got, tt.calls, s.Paths())
			}
			var got []string
			for _, e := range entries {
				got = append(got, e.Path+" "+e.Mode+" "+string(e.ID))
			}
			want := []string{
				"sql/pgque.sql 100644 " + f.repo.ID(tt.tag+":sql/pgque.sql"),
				"LICENSE 100644 " + f.repo.ID(tt.tag+":LICENSE"),
				"NOTICE 100644 " + f.repo.ID(tt.tag+":NOTICE"),
				"sql 040000 " + f.repo.ID(tt.tag+":sql"),
			}
			if !slices.Equal(got, want) {
				t.Errorf("entries\n%q, want\n%q", got, want)
			}
			data, err := c.Blob(ctx, entries[0].ID, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if want := f.repo.Git("cat-file", "blob", string(entries[0].ID)); strings.TrimSpace(string(data)) != want {
				t.Errorf("the blob has %d bytes: %.40q", len(data), data)
			}
			if int64(len(data)) != entries[0].Size {
				t.Errorf("%d bytes, the tree says %d", len(data), entries[0].Size)
			}
			if n.all() != "" {
				t.Errorf("said %q", n.all())
			}
		})
	}
}

func TestRealUpstream(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("PGQUE_UPSTREAM_GIT")
	if dir == "" {
		t.Skip("PGQUE_UPSTREAM_GIT names no clone of PgQue")
	}
	s := ghtest.New(ghtest.Options{GitDir: dir, Repository: "NikolayS/PgQue"})
	t.Cleanup(s.Close)
	c, _ := connect(t, s, Options{Repository: "NikolayS/PgQue", Timeout: time.Minute})
	ctx := context.Background()
	tags, err := c.Tags(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(tags) < 8 {
		t.Errorf("%d tags: %q", len(tags), names(tags))
	}
	for _, listed := range tags {
		tag, err := c.ResolveTag(ctx, listed.Name)
		if err != nil {
			t.Fatal(err)
		}
		if tag.Commit != listed.Commit {
			t.Errorf("%s: the list says %s, the ref leads to %s", tag.Name, listed.Commit, tag.Commit)
		}
		entries, err := c.Entries(ctx, tag.Commit, []string{"LICENSE", "NOTICE", "sql/pgque.sql"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if _, err := c.Blob(ctx, e.ID, 16<<20); err != nil {
				t.Errorf("%s %s: %v", tag.Name, e.Path, err)
			}
		}
		t.Log(tag.Name, tag.Commit, len(entries))
	}
}
