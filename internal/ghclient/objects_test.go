package ghclient

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// What the tree says is proven up to the root that the commit names.
func TestEntriesTampered(t *testing.T) {
	t.Parallel()
	f := shared
	blob, other := f.repo.ID(f.v2+":sql/pgque.sql"), f.repo.ID(f.v1+":sql/pgque.sql")
	root, otherRoot := f.repo.ID(f.v2+"^{tree}"), f.repo.ID(f.v1+"^{tree}")
	sqlTree := f.repo.ID(f.v2 + ":sql")
	tests := []struct {
		name  string
		limit int // of a recursive listing
		fault ghtest.Fault
		class fault.Class
		words []string
	}{
		{"a blob exchanged", 0, ghtest.Replace(blob, other).At("git/trees"), fault.Integrity, []string{`"sql"`}},
		{"a digit", 0, ghtest.Tamper().At("git/trees/" + f.v2), fault.Integrity, nil},
		{"a mode", 0, ghtest.Replace("100644", "120000").At("git/trees"), fault.Integrity, nil},
		{"a path", 0, ghtest.Replace("sql.txt", "sqm.txt").At("git/trees"), fault.Integrity, []string{"the listing", "hashes to"}},
		{"the whole tree of another commit", 0, ghtest.Replace(root, otherRoot).At("git/commits"), fault.Integrity, []string{"commit " + f.v2[:12], otherRoot, root}},
		{"another commit", 0, ghtest.Replace(f.v2, f.v1).At("git/commits"), fault.Integrity, []string{"asked for the commit " + f.v2, f.v1}},
		{"{} for the commit", 0, ghtest.Body("application/json", "{}").At("git/commits"), fault.Upstream, []string{"no whole object id"}},
		{"{} for the tree", 0, ghtest.Body("application/json", "{}").At("git/trees"), fault.Upstream, []string{"a tree without an id"}},
		{"no entries", 0, ghtest.Body("application/json", `{"sha":"x","tree":[]}`).At("git/trees"), fault.Integrity, nil},
		{"an entry without an id", 0, ghtest.Body("application/json", `{"sha":"x","tree":[{"path":"a"}]}`).At("git/trees"), fault.Upstream, []string{"no whole object id"}},
		{"HTML", 0, ghtest.HTML().At("git/trees"), fault.Upstream, []string{"expected JSON", "text/html (proxy or login page?)"}},
		{"no such commit", 0, ghtest.Status(404, "Not Found").At("git/"), fault.Upstream, []string{"no commit " + f.v2}},
		{"a cut listing: a blob exchanged", 3, ghtest.Replace(blob, other).At("git/trees/" + sqlTree), fault.Integrity, []string{sqlTree}},
		{"a cut listing: a directory cut too", 3, ghtest.Replace(`"truncated":false`, `"truncated":true`).At("git/trees/" + root), fault.Upstream, []string{"too large"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{TreeLimit: tt.limit})
			s.Inject(tt.fault)
			c, _ := connect(t, s, Options{})
			got, err := c.Entries(context.Background(), gitobject.ID(f.v2), []string{"sql/pgque.sql", "LICENSE"})
			wantFault(t, err, tt.class, tt.words...)
			if got != nil {
				t.Errorf("entries came with the failure: %v", got)
			}
		})
	}
}

// GitHub cuts the listing of a very large tree; then each directory on the way
// is asked for, and proven.
func TestEntriesWalk(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{TreeLimit: 3})
	c, _ := connect(t, s, Options{})
	paths := []string{"sql/pgque.sql", "docs/a/b/c.md", "LICENSE", "docs/none/x", "LICENSE/x", "docs/a", "sql/pgque.sql/x", "zzz"}
	got, err := c.Entries(context.Background(), gitobject.ID(f.v2), paths)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range got {
		found = append(found, e.Path)
		if want := f.repo.ID(f.v2 + ":" + e.Path); string(e.ID) != want {
			t.Errorf("%s is %s, want %s", e.Path, e.ID, want)
		}
	}
	if want := "sql/pgque.sql docs/a/b/c.md LICENSE docs/a"; strings.Join(found, " ") != want {
		t.Errorf("found %q, want %s", found, want)
	}
	if n := len(s.Requests()); n != 2+5 { // root, sql, docs, docs/a, docs/a/b
		t.Errorf("%d requests: %q", n, s.Paths())
	}
}

// Symlinks and submodules come with their modes, for the caller to refuse.
func TestEntriesModes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	link := f.repo.ID(f.v1 + ":LICENSE")
	f.repo.Git("update-index", "--add", "--cacheinfo", "120000,"+link+",link", "--cacheinfo", "160000,"+f.v1+",module", "--cacheinfo", "100755,"+link+",run")
	f.repo.Git("commit", "-q", "-m", "odd")
	commit := f.repo.ID("HEAD")
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{})
	got, err := c.Entries(context.Background(), gitobject.ID(commit), []string{"link", "module", "run", "docs"})
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("[{link 120000 %s 10} {module 160000 %s -1} {run 100755 %s 10} {docs 040000 %s -1}]", link, f.v1, link, f.repo.ID("HEAD:docs"))
	if s := fmt.Sprint(got); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

// B030, B097, B072: every download that is not the blob is noticed, and what
// may be an accident is tried again.
func TestBlob(t *testing.T) {
	t.Parallel()
	f := shared
	id := gitobject.ID(f.repo.ID(f.v2 + ":sql/pgque.sql"))
	size := len(f.sql2)
	tests := []struct {
		name  string
		fault ghtest.Fault
		class fault.Class // when it never ends
		tries int
		words []string
	}{
		{"Content-Length too large", ghtest.CutLength(1000), fault.Upstream, maxTries, []string{"ended early, after 1000 of"}},
		{"Content-Length, nothing comes", ghtest.CutLength(0), fault.Upstream, maxTries, []string{"ended early"}},
		{"one byte short", ghtest.CutLength(size - 1), fault.Upstream, maxTries, []string{"ended early"}},
		{"chunks cut", ghtest.CutChunked(1000), fault.Upstream, maxTries, []string{"ended early, after 1000 bytes"}},
		{"chunks whole, end missing", ghtest.CutChunked(size), fault.Upstream, maxTries, []string{"ended early"}},
		{"HTTP/1.0 cut", ghtest.CutHTTP10(1000), fault.Upstream, maxTries, []string{"ended early or was changed", "1000 bytes"}},
		{"gzip with a wrong checksum", ghtest.BrokenGzip(), fault.Upstream, maxTries, []string{"ended early"}},
		{"200 and nothing", ghtest.Empty(), fault.Upstream, maxTries, []string{"empty answer"}},
		{"reset", ghtest.Reset(), fault.Upstream, maxTries, []string{"not reached"}},
		{"502", ghtest.Status(502, "Bad Gateway"), fault.Upstream, maxTries, []string{"502"}},
		{"304", ghtest.Status(304, ""), fault.Upstream, maxTries, []string{"304"}},
		{"a byte changed", ghtest.Tamper(), fault.Integrity, 1, []string{string(id), fmt.Sprint(size)}},
		{"HTML", ghtest.HTML(), fault.Upstream, 1, []string{"text/html (proxy or login page?)"}},
		{"HTML that says it is raw", ghtest.Body("application/vnd.github.raw", " <html><body>x"), fault.Upstream, 1, []string{"proxy or login page?"}},
		{"a pointer of Git LFS", ghtest.LFSPointer(), fault.Upstream, 1, []string{"Git LFS"}},
		{"404 as content", ghtest.Status(404, "Not Found"), fault.Upstream, 1, []string{"no blob " + string(id)}},
		{"403", ghtest.Status(403, "Resource not accessible"), fault.Upstream, 1, []string{"403", "Resource not accessible"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			s.Inject(tt.fault)
			c, _ := connect(t, s, Options{})
			data, err := c.Blob(context.Background(), id, 1<<20)
			wantFault(t, err, tt.class, tt.words...)
			if data != nil {
				t.Errorf("%d bytes came with the failure", len(data))
			}
			if n := len(s.Requests()); n != tt.tries {
				t.Errorf("%d requests, want %d", n, tt.tries)
			}

			if tt.tries == 1 {
				return
			}
			s.Heal()
			s.Inject(tt.fault.First(2))
			data, err = c.Blob(context.Background(), id, 1<<20)
			if err != nil || string(data) != f.sql2 {
				t.Errorf("after two failures: %d bytes, %v", len(data), err)
			}
		})
	}
}

func TestBlobWhole(t *testing.T) {
	t.Parallel()
	f := shared
	id := gitobject.ID(f.repo.ID(f.v2 + ":sql/pgque.sql"))
	for name, fault := range map[string]ghtest.Fault{
		"plain":    ghtest.Delay(0),
		"gzip":     ghtest.Gzip(),
		"HTTP/1.0": ghtest.CutHTTP10(len(f.sql2)), // whole, but nothing says so
	} {
		s := f.serve(t, ghtest.Options{})
		s.Inject(fault)
		c, _ := connect(t, s, Options{})
		data, err := c.Blob(context.Background(), id, int64(len(f.sql2)))
		if err != nil || string(data) != f.sql2 || len(s.Requests()) != 1 {
			t.Errorf("%s: %d bytes, %v, %d requests", name, len(data), err, len(s.Requests()))
		}
	}
}

// B044: the contents API has nothing above 1 MB; blobs do.
func TestBlobOfMegabytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	big := strings.Repeat("select 'ü';\n", 300_000)
	f.repo.Commit(map[string]string{"sql/pgque.sql": big})
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{})
	data, err := c.Blob(context.Background(), gitobject.ID(f.repo.ID("HEAD:sql/pgque.sql")), 16<<20)
	if err != nil || string(data) != big {
		t.Errorf("%d bytes of %d, %v", len(data), len(big), err)
	}
}

func TestBlobLimit(t *testing.T) {
	t.Parallel()
	f := shared
	id := gitobject.ID(f.repo.ID(f.v2 + ":sql/pgque.sql"))
	for name, fault_ := range map[string]ghtest.Fault{"plain": ghtest.Delay(0), "gzip": ghtest.Gzip()} {
		s := f.serve(t, ghtest.Options{})
		s.Inject(fault_)
		c, _ := connect(t, s, Options{})
		_, err := c.Blob(context.Background(), id, int64(len(f.sql2))-1)
		wantFault(t, err, fault.Upstream, "larger than", fmt.Sprint(len(f.sql2)-1))
		if n := len(s.Requests()); n != 1 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// An upstream that keeps its SQL in LFS gives the pointer with the right id.
func TestBlobCommittedLFSPointer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.repo.Commit(map[string]string{"sql/pgque.sql": ghtest.LFSPointerText})
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{})
	_, err := c.Blob(context.Background(), gitobject.ID(f.repo.ID("HEAD:sql/pgque.sql")), 1<<20)
	wantFault(t, err, fault.Upstream, "Git LFS")
}

func TestBlobEmpty(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.repo.Commit(map[string]string{"empty": ""})
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{})
	data, err := c.Blob(context.Background(), gitobject.ID(f.repo.ID("HEAD:empty")), 10)
	if err != nil || len(data) != 0 {
		t.Errorf("%q, %v", data, err)
	}
}

// Blobs can be fetched side by side, so that an update of an annotated tag
// takes four round trips: ref, tag, commit and tree, blobs.
func TestBlobsAtOnce(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	s.Inject(ghtest.Meet(3).At("git/blobs"))
	c, _ := connect(t, s, Options{})
	ctx := context.Background()
	tag, err := c.ResolveTag(ctx, "v0.2.0-rc.1")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := c.Entries(ctx, tag.Commit, []string{"LICENSE", "NOTICE", "sql/pgque.sql"})
	if err != nil {
		t.Fatal(err)
	}
	results := make(chan error)
	for _, e := range entries {
		go func() {
			_, err := c.Blob(ctx, e.ID, 1<<20)
			results <- err
		}()
	}
	for range entries {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := len(s.Requests()); n != 7 {
		t.Errorf("%d requests, want 7", n)
	}
}

func TestObjectIDsAreChecked(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{})
	for _, id := range []gitobject.ID{"", "abc", "../../x", gitobject.ID(strings.ToUpper(f.v1))} {
		if _, err := c.Entries(context.Background(), id, nil); err == nil {
			t.Errorf("Entries took %q", id)
		}
		if _, err := c.Blob(context.Background(), id, 1); err == nil {
			t.Errorf("Blob took %q", id)
		}
	}
	if n := len(s.Requests()); n > 0 {
		t.Errorf("%d requests", n)
	}
}
