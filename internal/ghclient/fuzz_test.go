package ghclient

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v62/github"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// Whatever the header says, a wait is neither negative nor without end.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"1", "", "99999999999999999999", "-1", "Wed, 04 Mar 2026 05:06:37 GMT", " 7", "1e9", "Wed Mar  4 05:06:17 2026"} {
		f.Add(seed, "Wed, 04 Mar 2026 05:06:07 GMT", "1800000000")
	}
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	f.Fuzz(func(t *testing.T, value, date, reset string) {
		h := http.Header{"Retry-After": {value}, "Date": {date}, "X-Ratelimit-Reset": {reset}}
		if d, ok := retryAfter(h, now); d < 0 || d > longestWait || !ok && d != 0 {
			t.Errorf("retry after %s, %t", d, ok)
		}
		if d, ok := resetIn(h, now); d < 0 || d > longestWait || !ok && d != 0 {
			t.Errorf("reset in %s, %t", d, ok)
		}
	})
}

// A next page is a later one on the same origin, or there is none, or it is a
// failure.
func FuzzLink(f *testing.F) {
	base, err := url.Parse("https://api.github.com/")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		`<https://api.github.com/repositories/1/tags?page=2>; rel="next", <https://api.github.com/x?page=9>; rel="last"`,
		`<https://evil.example/?page=2>; rel=next`,
		`<?page=3>;title="a,b;c";rel="prev next"`,
		`<`, `<>;rel=next`, `<//evil.example?page=2>; rel="next"`, `<x>y<z>; REL=NEXT`, `<https:///x?page=5>; rel=next`,
	} {
		f.Add(seed)
	}
	tr := &transport{base: base}
	f.Fuzz(func(t *testing.T, header string) {
		next, err := tr.nextPage([]string{header}, 1)
		if err != nil {
			if next != 0 {
				t.Errorf("page %d with failure %v", next, err)
			}
			return
		}
		if next != 0 && next <= 1 {
			t.Errorf("page %d after page 1", next)
		}
		target, ok := linkTo([]string{header}, "next")
		if next != 0 != ok {
			t.Errorf("a link %t, page %d", ok, next)
		}
		if u, err := base.Parse(target); next != 0 && (err != nil || u.Hostname() != "api.github.com" || u.Scheme != "https") {
			t.Errorf("page %d of %q", next, target)
		}
	})
}

// Every name that git allows for a tag ends up whole in the path below
// git/ref/tags/, and nowhere else.
func FuzzTagPath(f *testing.F) {
	for _, seed := range []string{"v0.2.0", "tags/v1", "a%2Fb", "ü", "v1#2", "a&b=c;d", "%2e%2e/heads/main", "..", "x/./y", "%", "+", "@", "日本"} {
		f.Add(seed)
	}
	var got *url.URL
	client := github.NewClient(&http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		got = r.URL
		return nil, http.ErrSchemeMismatch
	})})
	f.Fuzz(func(t *testing.T, name string) {
		if gitobject.CheckTagName(name) != nil {
			return
		}
		got = nil
		client.Git.GetRef(t.Context(), "o", "r", "tags/"+name)
		if got == nil {
			t.Fatalf("%q: no request was made", name)
		}
		rest, ok := strings.CutPrefix(got.EscapedPath(), "/repos/o/r/git/ref/tags/")
		if !ok || got.RawQuery != "" || got.Fragment != "" || got.Host != "api.github.com" {
			t.Fatalf("%q went to %s", name, got)
		}
		var parts []string
		for p := range strings.SplitSeq(rest, "/") {
			part, err := url.PathUnescape(p)
			if err != nil || part == "." || part == ".." {
				t.Fatalf("%q: segment %q, %v", name, p, err)
			}
			parts = append(parts, part)
		}
		if back := strings.Join(parts, "/"); back != name {
			t.Errorf("%q became %q", name, back)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
