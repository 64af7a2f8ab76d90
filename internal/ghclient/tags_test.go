package ghclient

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
)

func withTags(s *ghtest.Server, n int, commit string) {
	for i := range n {
		s.SetTag(fmt.Sprintf("x%03d", i), commit)
	}
}

// B045: all pages, by Link and not by count.
func TestTagsPages(t *testing.T) {
	t.Parallel()
	f := shared
	tests := []struct {
		extra, total, requests int
	}{
		{0, 3, 1},
		{97, 100, 1}, // exactly full: no page after it
		{98, 101, 2},
		{247, 250, 3},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.total), func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			withTags(s, tt.extra, f.v1)
			c, _ := connect(t, s, Options{})
			tags, err := c.Tags(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if len(tags) != tt.total || len(s.Requests()) != tt.requests {
				t.Errorf("%d tags in %d requests, want %d in %d", len(tags), len(s.Requests()), tt.total, tt.requests)
			}
			want := map[string]string{"v0.1.0": f.v1, "v0.2.0-rc.1": f.rcCommit, "v0.2.0": f.v2}
			for _, tag := range tags {
				if id, ok := want[tag.Name]; ok && (string(tag.Commit) != id || tag.Object != "") {
					t.Errorf("%+v, want commit %s", tag, id)
				}
				delete(want, tag.Name)
			}
			if len(want) > 0 {
				t.Errorf("missing: %v", want)
			}
		})
	}
}

func TestTagsFailures(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	trap := ghtest.NewTrap()
	t.Cleanup(trap.Close)
	link := func(target string) ghtest.Fault {
		return ghtest.Header("Link", "<"+target+`>; rel="next"`).At("tags")
	}
	tests := []struct {
		name  string
		fault ghtest.Fault
		words []string // none: it succeeds
	}{
		{"a page fails once", ghtest.Status(502, "Server Error").After(1).First(1), nil},
		{"a page fails for good", ghtest.Status(502, "Server Error").After(1), []string{"502", "Server Error"}},
		{"a link to another host", link(trap.URL + "/repos/owner/repo/tags?page=2"), []string{"next page", "only http://127.0.0.1", "not followed"}},
		{"a link back", link("/repositories/1/tags?page=1"), []string{`next page "1"`}},
		{"a link without a page", link("/repositories/1/tags?after=x"), []string{`next page ""`}},
		{"a link that is no URL", link(":"), []string{"no URL"}},
		{"null", ghtest.Body("application/json", "null"), []string{"expected JSON", `"null"`}},
		{"an object", ghtest.Body("application/json", "{}"), []string{"another shape"}},
		{"a tag without a commit", ghtest.Body("application/json", `[{"name":"v1"}]`), []string{"no whole object id", "the commit of a tag"}},
		{"a tag without a name", ghtest.Body("application/json", `[{"commit":{}}]`), []string{"a tag without a name"}},
		{"a short commit", ghtest.Body("application/json", `[{"name":"v1","commit":{"sha":"abc1234"}}]`), []string{"no whole object id", "abc1234"}},
		{"empty list cut", ghtest.Empty(), []string{"empty answer"}},
		{"no repository", ghtest.Status(404, "Not Found"), []string{`no repository "owner/repo" at 127.0.0.1`, "--repo"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			withTags(s, 150, f.v1)
			s.Inject(tt.fault)
			c, _ := connect(t, s, Options{Token: secret, TokenSource: "GITHUB_TOKEN"})
			tags, err := c.Tags(context.Background())
			if tt.words == nil {
				if err != nil || len(tags) != 153 {
					t.Errorf("%d tags, %v", len(tags), err)
				}
				return
			}
			wantFault(t, err, fault.Upstream, tt.words...)
			if tags != nil {
				t.Errorf("a part of the list was returned: %d tags", len(tags))
			}
		})
	}
	if n := len(trap.Requests()); n > 0 {
		t.Errorf("the other host got %d requests", n)
	}
}

func TestTagsTwice(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	withTags(s, 150, f.v1)
	c, _ := connect(t, s, Options{})
	// A tag that appears between two pages pushes another onto the next page.
	s.Inject(ghtest.Change(func(*ghtest.Answer) { s.SetTag("zzz", f.v1) }).First(1))
	tags, err := c.Tags(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	n := names(tags)
	if len(slices.Compact(slices.Clone(n))) != len(n) || len(n) != 153 {
		t.Errorf("%d tags, twice or not all: %q", len(n), n)
	}
}

// The tag is matched exactly and as a tag.
func TestResolveTagExactly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.repo.Branch("v0.1.0", f.v2)
	f.repo.Branch("only-branch", f.v2)
	s := f.serve(t, ghtest.Options{})
	s.DeleteTag("v0.2.0")
	c, _ := connect(t, s, Options{})
	tag, err := c.ResolveTag(context.Background(), "v0.1.0")
	if err != nil || string(tag.Commit) != f.v1 {
		t.Errorf("v0.1.0 is %+v, %v; want the tag's %s", tag, err, f.v1)
	}
	for _, name := range []string{"v0.2.0", "only-branch", "v0.1", "heads/only-branch", f.v1, "HEAD", "main"} {
		s.Forget()
		_, err := c.ResolveTag(context.Background(), name)
		wantFault(t, err, fault.Upstream, fmt.Sprintf(`no tag %q in "owner/repo"`, name), "pgque-vendor list")
		if n := len(s.Requests()); n != 1 {
			t.Errorf("%q: %d requests, want 1", name, n)
		}
	}
}

// go-github's GetRef resolves "../heads/main" to a branch; a name that git
// forbids must not come that far.
func TestResolveTagForbiddenNames(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{})
	for _, name := range []string{"../heads/main", "x/../../heads/main", "", "-rf", "v0.2.0^{}", "a b", "a//b", "x?y", "a\\b", "x..y", "v.lock", "a\nb"} {
		_, err := c.ResolveTag(context.Background(), name)
		wantFault(t, err, fault.Usage)
	}
	if n := len(s.Requests()); n > 0 {
		t.Errorf("%d requests were made: %q", n, s.Paths())
	}
}

// B076: each segment is escaped, and the server finds the very name.
func TestResolveTagOddNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	odd := []string{
		"tags/v1", "clients/go/v0.2.0", "20260817", "deadbee", "v0.2.0+b1", "ü", "a%2Fb", "a%b", "HEAD", "refs/tags/v1",
		"heads/main", "v1#2", "a&b=c", "x;y", `q"q`, "e{x}", "日本/語", "'", "$(x)", f.v2,
	}
	s := f.serve(t, ghtest.Options{})
	for _, name := range odd {
		f.repo.Tag(name, f.v1)
	}
	c, _ := connect(t, s, Options{})
	for _, name := range odd {
		tag, err := c.ResolveTag(context.Background(), name)
		if err != nil || string(tag.Commit) != f.v1 || tag.Name != name {
			t.Errorf("%q: %+v, %v", name, tag, err)
		}
	}
}

func TestResolveTagObjects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	twice := f.repo.AnnotatedTag("twice", f.rc)
	f.repo.AnnotatedTag("thrice", twice)
	f.repo.Tag("tree", f.repo.ID(f.v1+"^{tree}"))
	f.repo.Tag("blob", f.repo.ID(f.v1+":LICENSE"))
	f.repo.AnnotatedTag("annotated-tree", f.repo.ID(f.v1+"^{tree}"))
	last := f.rc
	for i := range maxPeel + 1 {
		last = f.repo.AnnotatedTag(fmt.Sprintf("deep%02d", i), last)
	}
	tests := []struct {
		tag   string
		fault *ghtest.Fault
		class fault.Class // 0: it succeeds, with the commit of v0.2.0-rc.1
		words []string
	}{
		{tag: "twice"},
		{tag: "thrice"},
		{tag: "tree", class: fault.Upstream, words: []string{`the tag "tree"`, "points at a tree, not at a commit"}},
		{tag: "blob", class: fault.Upstream, words: []string{"points at a blob"}},
		{tag: "annotated-tree", class: fault.Upstream, words: []string{"points at a tree"}},
		{tag: "deep10", class: fault.Upstream, words: []string{"a tag of a tag"}},
		{tag: "v0.2.0", fault: new(ghtest.Replace("refs/tags/v0.2.0", "refs/heads/v0.2.0")), class: fault.Integrity, words: []string{`asked for the tag "v0.2.0"`, "refs/heads/v0.2.0"}},
		{tag: "v0.2.0", fault: new(ghtest.Body("application/json", "{}")), class: fault.Upstream, words: []string{"a ref without a name"}},
		{tag: "v0.2.0", fault: new(ghtest.Body("application/json", `{"ref":"refs/tags/v0.2.0"}`)), class: fault.Upstream, words: []string{"no whole object id"}},
		{tag: "v0.2.0", fault: new(ghtest.Body("application/json", "[]")), class: fault.Upstream, words: []string{"another shape"}},
		{tag: "v0.2.0", fault: new(ghtest.Replace(`"type":"commit"`, `"type":"submarine"`)), class: fault.Upstream, words: []string{"submarine"}},
		{tag: "v0.2.0", fault: new(ghtest.Status(http.StatusConflict, "Git Repository is empty.")), class: fault.Upstream, words: []string{"no tag"}},
		{tag: "twice", fault: new(ghtest.Replace(`"sha":"`+twice, `"sha":"`+f.v1).At("git/tags")), class: fault.Integrity, words: []string{"tag object " + twice, f.v1}},
	}
	for _, tt := range tests {
		t.Run(tt.tag+" "+strings.Join(tt.words, " "), func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			if tt.fault != nil {
				s.Inject(*tt.fault)
			}
			c, _ := connect(t, s, Options{})
			tag, err := c.ResolveTag(context.Background(), tt.tag)
			if tt.class != 0 {
				wantFault(t, err, tt.class, tt.words...)
				return
			}
			if err != nil || string(tag.Commit) != f.rcCommit || string(tag.Object) != f.repo.ID("refs/tags/"+tt.tag) {
				t.Errorf("%+v, %v", tag, err)
			}
		})
	}
}

func TestMovedTag(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{})
	s.SetTag("v0.1.0", f.v2)
	tag, err := c.ResolveTag(context.Background(), "v0.1.0")
	if err != nil || string(tag.Commit) != f.v2 {
		t.Errorf("%+v, %v", tag, err)
	}
}
