package ghtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func get(t *testing.T, url string, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// What the tests of the client rely on is what GitHub does.
func TestImitation(t *testing.T) {
	t.Parallel()
	repo := NewRepo(t)
	big := strings.Repeat("x", 1<<20+1)
	first := repo.Commit(map[string]string{"sql/a.sql": "select 1;", "big": big, "dir/x": "y"})
	link := repo.ID("HEAD:sql/a.sql")
	repo.Git("update-index", "--add", "--cacheinfo", "120000,"+link+",link", "--cacheinfo", "160000,"+first+",module")
	repo.Git("commit", "-q", "-m", "odd")
	head := repo.ID("HEAD")
	repo.Tag("v1", first)
	repo.Tag("v1-rc", first)
	note := repo.AnnotatedTag("note", head)
	repo.Tag("tree", repo.ID("HEAD^{tree}"))
	repo.Branch("both", head)
	repo.Tag("both", first)

	s := New(Options{GitDir: repo.Dir, Repository: "Own/Rep", TreeLimit: 5})
	t.Cleanup(s.Close)
	api := s.URL + "/repos/own/rep" // in any case
	tests := []struct {
		path   string
		accept string
		status int
		words  []string
		lacks  string
	}{
		{"", "", 200, []string{`"id":4711`, `"full_name":"Own/Rep"`}, ""},
		{"/git/ref/tags/v1", "", 200, []string{`"ref":"refs/tags/v1"`, first, `"type":"commit"`}, ""},
		{"/git/ref/tags/v", "", 404, []string{"Not Found"}, ""},
		{"/git/ref/tags/x/../../heads/both", "", 200, []string{"refs/heads/both"}, ""},
		{"/git/ref/tags%2Fv1", "", 404, nil, ""},
		{"/git/ref/tags/note", "", 200, []string{note, `"type":"tag"`}, head},
		{"/git/ref/tags/tree", "", 200, []string{`"type":"tree"`}, ""},
		{"/git/matching-refs/tags/v1", "", 200, []string{`refs/tags/v1"`, `refs/tags/v1-rc"`}, "note"},
		{"/git/matching-refs/tags/none", "", 200, []string{"[]"}, ""},
		{"/git/tags/" + note, "", 200, []string{head, `"tag":"note"`}, ""},
		{"/git/tags/" + head, "", 404, nil, ""},
		{"/git/commits/" + head, "", 200, []string{repo.ID("HEAD^{tree}")}, ""},
		{"/git/commits/v1", "", 404, nil, ""},
		{"/git/trees/" + head, "", 200, []string{`"sha":"` + head, `"path":"dir"`, `"truncated":false`}, "dir/x"},
		{"/git/trees/" + repo.ID("HEAD:sql") + "?recursive=0", "", 200, []string{"a.sql", `"size":9`}, ""},
		{"/git/trees/" + head + "?recursive=0", "", 200, []string{`"truncated":true`}, "sql/a.sql"},
		{"/git/blobs/" + link, "", 200, []string{"base64", "c2VsZWN0IDE7"}, ""},
		{"/git/blobs/" + link, "application/vnd.github.raw", 200, []string{"select 1;"}, "{"},
		{"/git/blobs/" + head, "", 404, nil, ""},
		{"/tags", "", 200, []string{head, "note"}, `"name":"tree"`},
		{"/contents/sql/a.sql?ref=v1", "", 200, []string{`"type":"file"`, "base64"}, ""},
		{"/contents/sql/a.sql?ref=v1", "application/vnd.github.raw", 200, []string{"select 1;"}, "{"},
		{"/contents/big?ref=v1", "", 200, []string{`"encoding":"none"`, `"content":""`}, "xxx"},
		{"/contents/big?ref=v1", "application/vnd.github.raw", 200, []string{big}, ""},
		{"/contents/dir?ref=v1", "", 200, []string{`[{`, `"path":"dir/x"`}, "sql"},
		{"/contents?ref=v1", "", 200, []string{`"path":"dir"`, `"path":"big"`}, "dir/x"},
		{"/contents/link?ref=" + head, "", 200, []string{`"type":"symlink"`}, ""},
		{"/contents/module?ref=" + head, "", 200, []string{`"type":"submodule"`}, ""},
		{"/contents/link?ref=both", "", 200, []string{"symlink"}, ""}, // the branch wins
		{"/contents/none?ref=v1", "", 404, nil, ""},
		{"/nothing", "", 404, []string{"documentation_url"}, ""},
	}
	for _, tt := range tests {
		status, _, body := get(t, api+tt.path, "Accept", tt.accept)
		if status != tt.status {
			t.Errorf("%s: %d %.200s", tt.path, status, body)
		}
		for _, w := range tt.words {
			if !strings.Contains(body, w) {
				t.Errorf("%s: lacks %.80q: %.300s", tt.path, w, body)
			}
		}
		if tt.lacks != "" && strings.Contains(body, tt.lacks) {
			t.Errorf("%s: has %q: %.300s", tt.path, tt.lacks, body)
		}
	}
	if n := len(s.Requests()); n != len(tests) {
		t.Errorf("%d requests recorded of %d", n, len(tests))
	}
}

func TestETag(t *testing.T) {
	t.Parallel()
	repo := NewRepo(t)
	repo.Tag("v1", repo.Commit(nil))
	s := New(Options{GitDir: repo.Dir})
	t.Cleanup(s.Close)
	url := s.URL + "/repos/owner/repo/tags"
	_, h, _ := get(t, url)
	if status, _, body := get(t, url, "If-None-Match", h.Get("ETag")); status != 304 || body != "" {
		t.Errorf("%d %q", status, body)
	}
	s.DeleteTag("v1")
	if status, _, body := get(t, url, "If-None-Match", h.Get("ETag")); status != 200 || body != "[]" {
		t.Errorf("%d %q", status, body)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	repo := NewRepo(t)
	commit := repo.Commit(nil)
	s := New(Options{GitDir: repo.Dir, Prefix: "/api/v3"})
	t.Cleanup(s.Close)
	for i := range 250 {
		s.SetTag(fmt.Sprintf("t%03d", i), commit)
	}
	seen, pages := map[string]bool{}, 0
	for url := s.URL + "/repos/owner/repo/tags?per_page=100"; url != ""; pages++ {
		_, h, body := get(t, url)
		var tags []struct{ Name string }
		if err := json.Unmarshal([]byte(body), &tags); err != nil {
			t.Fatal(err)
		}
		for _, tag := range tags {
			seen[tag.Name] = true
		}
		url = ""
		for link := range strings.SplitSeq(h.Get("Link"), ", ") {
			if target, ok := strings.CutSuffix(link, `>; rel="next"`); ok {
				url = strings.TrimPrefix(target, "<")
			}
		}
	}
	if len(seen) != 250 || pages != 3 {
		t.Errorf("%d tags on %d pages", len(seen), pages)
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	repo := NewRepo(t)
	repo.Commit(nil)
	s := New(Options{GitDir: repo.Dir, Token: "good", Private: true})
	t.Cleanup(s.Close)
	url := s.URL + "/repos/owner/repo"
	for token, want := range map[string]int{"Bearer good": 200, "token good": 200, "Bearer bad": 401, "": 404} {
		header := []string{"Authorization", token}
		if token == "" {
			header = nil
		}
		if status, _, _ := get(t, url, header...); status != want {
			t.Errorf("%q: %d, want %d", token, status, want)
		}
	}
	s.Rename("new/name")
	if status, h, _ := get(t, url+"/tags?page=2", "Authorization", "Bearer good"); status != 301 || h.Get("Location") != s.URL+"/repositories/4711/tags?page=2" {
		t.Errorf("%d to %q", status, h.Get("Location"))
	}
}

func TestFaultsInOrder(t *testing.T) {
	t.Parallel()
	repo := NewRepo(t)
	repo.Commit(nil)
	s := New(Options{GitDir: repo.Dir})
	t.Cleanup(s.Close)
	for _, text := range []string{"status 502 first=1", "status 503 after=1 first=2 at=tags", "status 401 token", "html at=git/"} {
		f, err := ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Inject(f)
	}
	api := s.URL + "/repos/owner/repo"
	steps := []struct {
		url, token string
		want       int
	}{
		{api + "/tags", "", 502}, {api + "/tags", "", 200}, {api + "/tags", "", 503}, {api, "", 200}, {api + "/tags", "", 503},
		{api + "/tags", "", 200}, {api + "/tags", "x", 401}, {api + "/git/ref/tags/v", "", 200},
	}
	for i, step := range steps {
		header := []string{"Authorization", step.token}
		if step.token == "" {
			header = nil
		}
		if status, _, _ := get(t, step.url, header...); status != step.want {
			t.Errorf("step %d: %d, want %d", i, status, step.want)
		}
	}
	s.Heal()
	if status, _, _ := get(t, api+"/tags", "Authorization", "x"); status != 200 {
		t.Errorf("healed: %d", status)
	}
}

func TestParseFault(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"rate-limit 403 3000s", "secondary 429 1 first=2 at=git/blobs", "secondary 403", "status 502 after=1", "cut-length 1000",
		"cut-chunked 9", "cut-http10 9", "truncated-json 20", "redirect 302 https://x.example/", "html", "empty", "object", "lfs",
		"reset", "stall", "tamper", "bad-token", "broken-gzip", "redirect-loop", "sso https://x.example/", "delay 2s",
	} {
		if _, err := ParseFault(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "nonsense", "delay x", "rate-limit 403", "first=1"} {
		if _, err := ParseFault(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	s := &Server{requests: []*Request{
		{Began: at(0), Ended: at(10)},
		{Began: at(11), Ended: at(30)}, {Began: at(12), Ended: at(20)},
		{Began: at(31), Ended: at(40)}, {Began: at(31), Ended: at(41)},
		{Began: at(50)}, // not answered yet
	}}
	if n := s.RoundTrips(); n != 3 {
		t.Errorf("%d round trips", n)
	}
}
