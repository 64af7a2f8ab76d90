package ghclient

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
)

// B075: every way to write the API's address.
func TestBaseURL(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                "https://api.github.com/",
		" https://api.github.com \n":      "https://api.github.com/",
		"https://api.github.com/":         "https://api.github.com/",
		"https://API.GitHub.com":          "https://api.github.com/",
		"https://github.com":              "https://api.github.com/",
		"https://github.com/":             "https://api.github.com/",
		"https://ghe.example":             "https://ghe.example/api/v3/",
		"https://ghe.example/":            "https://ghe.example/api/v3/",
		"https://ghe.example/api/v3":      "https://ghe.example/api/v3/",
		"https://ghe.example/api/v3/":     "https://ghe.example/api/v3/",
		"https://ghe.example:8443":        "https://ghe.example:8443/api/v3/",
		"https://proxy.example/github/":   "https://proxy.example/github/",
		"https://api.octo.ghe.com":        "https://api.octo.ghe.com/",
		"https://octo.ghe.com/":           "https://api.octo.ghe.com/",
		"http://127.0.0.1:8080":           "http://127.0.0.1:8080/",
		"http://localhost:8080/api/v3///": "http://localhost:8080/api/v3/",
		"http://[::1]:8080":               "http://[::1]:8080/",
	} {
		got, err := parseBaseURL(given)
		if err != nil || got.String() != want {
			t.Errorf("%q: %v, %v; want %s", given, got, err, want)
		}
	}
	for given, word := range map[string]string{
		"ghe.example":                     "https://HOST",
		"//ghe.example":                   "https://HOST",
		"ftp://ghe.example":               "https://HOST",
		"https://":                        "https://HOST",
		"https:ghe.example":               "https://HOST",
		"https://joe:hunter2@ghe.example": "user name or password",
		"https://hunter2@ghe.example":     "user name or password",
		"https://joe:hunter2@[":           "no URL",
		"https://ghe.example?token=x":     "no query",
		"https://ghe.example/#x":          "no query",
	} {
		_, err := parseBaseURL(given)
		f := wantFault(t, err, fault.Usage, word)
		if strings.Contains(f.Text, "hunter2") {
			t.Errorf("a password is shown: %s", f)
		}
	}
}

func TestEnterprise(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{Prefix: "/api/v3"})
	withTags(s, 120, f.v1)
	for _, base := range []string{s.URL, s.URL + "/"} {
		c, _ := connect(t, s, Options{BaseURL: base})
		if _, err := c.Tags(context.Background()); err != nil {
			t.Errorf("%s: %v", base, err)
		}
	}
}

func TestRepositoryNames(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"NikolayS/PgQue", "a/b.c", "octo_corp/x-y_z", "a/.github"} {
		if _, err := New(Options{Repository: good}); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "a", "a/", "/b", "a/b/c", "a/..", "a/.", "../b", "a/b?c", "a b/c", "https://github.com/a/b", "a/b\n", "a/b%2f", "ä/b"} {
		_, err := New(Options{Repository: bad})
		wantFault(t, err, fault.Usage, "OWNER/NAME")
	}
}

func TestSameOrigin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"https://api.github.com/x", "https://API.github.com:443/y", true},
		{"http://h", "http://h:80/", true},
		{"https://h", "http://h", false},
		{"https://h", "https://h:8443", false},
		{"https://h", "https://h.evil", false},
		{"https://h", "https://evil/h", false},
		{"http://h", "https://h:80", false},
	} {
		a, errA := url.Parse(tt.a)
		b, errB := url.Parse(tt.b)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if got := sameOrigin(a, b); got != tt.want {
			t.Errorf("%s and %s: %t", tt.a, tt.b, got)
		}
	}
}
