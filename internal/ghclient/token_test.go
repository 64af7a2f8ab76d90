package ghclient

import (
	"context"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// B027, B047: a token that is refused is named, and left out once.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	f := shared
	tests := []struct {
		name     string
		options  ghtest.Options
		faults   []ghtest.Fault
		requests int
		words    []string // none: it succeeds
		notice   string
	}{
		{"bad credentials", ghtest.Options{Token: "another"}, nil, 2, nil,
			`refused the token from GH_TOKEN: it answered 401 "Bad credentials"; going on without a token`},
		{"single sign-on", ghtest.Options{}, []ghtest.Fault{ghtest.SSO("https://github.com/orgs/o/sso?authorization_request=private")}, 2, nil,
			"refused the token from GH_TOKEN: it answered 403"},
		{"single sign-on in other words", ghtest.Options{}, []ghtest.Fault{ghtest.Change(func(a *ghtest.Answer) {
			a.Status, a.Body = 403, []byte(`{"message":"Forbidden"}`)
			a.Header.Set("X-GitHub-SSO", "required; url=https://github.com/orgs/o/sso")
		}).WithToken()}, 2, nil, "refused the token from GH_TOKEN: it answered 403"},
		{"IP allow list", ghtest.Options{}, []ghtest.Fault{ghtest.Status(403, "Although you appear to have the correct authorization credentials, the `o` organization has an IP allow list enabled").WithToken()}, 2, nil,
			"refused the token from GH_TOKEN"},
		{"a private repository", ghtest.Options{Private: true}, []ghtest.Fault{ghtest.SSO("https://github.com/orgs/o/sso?authorization_request=private")}, 2,
			[]string{"refused the token from GH_TOKEN", "SAML", `and without a token: 127.0.0.1`, "404", "single sign-on at github.com"}, "refused the token"},
		{"then a used-up limit", ghtest.Options{Token: "another"}, []ghtest.Fault{ghtest.RateLimit(403, 3e12).After(1)}, 2,
			[]string{"refused the token from GH_TOKEN", "and without a token: the rate limit of", "unset it, or use --no-token"}, "refused the token"},
		{"Enterprise", ghtest.Options{Token: "another", Prefix: "/api/v3"}, nil, 1,
			[]string{"refused the token from GH_TOKEN", "Bad credentials", "put a valid token into GH_TOKEN"}, ""},
		{"Enterprise, single sign-on", ghtest.Options{Prefix: "/api/v3"}, []ghtest.Fault{ghtest.SSO("https://ghe.example/sso")}, 1,
			[]string{"refused the token from GH_TOKEN", "ghe.example"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, tt.options)
			for _, fault := range tt.faults {
				s.Inject(fault)
			}
			c, n := connect(t, s, Options{Token: secret, TokenSource: "GH_TOKEN"})
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			if got := len(s.Requests()); got != tt.requests {
				t.Errorf("%d requests, want %d", got, tt.requests)
			}
			said := n.all()
			if tt.notice == "" && said != "" || !strings.Contains(said, tt.notice) || strings.Contains(said, secret) {
				t.Errorf("said %q, want %q", said, tt.notice)
			}
			if tt.words != nil {
				f := wantFault(t, err, fault.Upstream, tt.words...)
				if strings.Contains(strings.Join(f.Hints, " "), "authorization_request") {
					t.Errorf("the address of the sign-on is shown: %q", f.Hints)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// Once refused, it stays out, and nothing more is said.
			if _, err := c.Tags(context.Background()); err != nil {
				t.Error(err)
			}
			for i, r := range s.Requests() {
				if has := r.Header.Get("Authorization") != ""; has != (i == 0) {
					t.Errorf("request %d: token %t", i, has)
				}
			}
			if n.all() != said {
				t.Errorf("said more: %q", n.all())
			}
		})
	}
}

// Two requests that are refused at once are one thing to say.
func TestRefusedTokenSaidOnce(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{Token: "another"})
	s.Inject(ghtest.Meet(2))
	c, n := connect(t, s, Options{Token: secret, TokenSource: "GH_TOKEN"})
	if _, err := c.Entries(context.Background(), gitobject.ID(f.v1), []string{"LICENSE"}); err != nil {
		t.Fatal(err)
	}
	if got := len(s.Requests()); got != 4 || strings.Count(n.all(), "refused the token") != 1 {
		t.Errorf("%d requests, said %q", got, n.all())
	}
}

func TestTokenIsSent(t *testing.T) {
	t.Parallel()
	f := shared
	for given, sent := range map[string]string{
		secret:                 "Bearer " + secret,
		secret + "\r\n":        "Bearer " + secret,
		`"` + secret + `"`:     "Bearer " + secret,
		" '" + secret + "' \n": "Bearer " + secret,
		"":                     "",
		"  \n":                 "",
		`""`:                   "",
	} {
		s := f.serve(t, ghtest.Options{})
		c, _ := connect(t, s, Options{Token: given, TokenSource: "GITHUB_TOKEN"})
		if _, err := c.ResolveTag(context.Background(), "v0.2.0"); err != nil {
			t.Fatal(err)
		}
		r := s.Requests()[0]
		if got := r.Header.Get("Authorization"); got != sent {
			t.Errorf("token %q: sent %q", given, got)
		}
		if r.Header.Get("User-Agent") != "pgque-vendor/test" || !strings.Contains(r.Header.Get("Accept"), "application/vnd.github") {
			t.Errorf("headers %v", r.Header)
		}
	}
	for _, bad := range []string{secret + "\nHost: x", "a b", "tökén"} {
		_, err := New(Options{Repository: "o/r", Token: bad, TokenSource: "GITHUB_TOKEN"})
		f := wantFault(t, err, fault.Usage, "the token from GITHUB_TOKEN")
		if strings.Contains(f.Text, bad) {
			t.Errorf("the failure shows the token: %s", f)
		}
	}
}

// A token travels encrypted, or not at all.
func TestTokenNotOverHTTP(t *testing.T) {
	t.Parallel()
	for base, sent := range map[string]bool{
		"http://ghe.example": false, "http://127.0.0.1.example/": false, "http://10.0.0.1/": false, "http://localhost.evil.example": false,
		"https://ghe.example": true, "http://localhost:1": true, "http://127.0.0.2:1": true, "http://[::1]:1": true, "": true,
	} {
		n := &notices{}
		c, err := New(Options{BaseURL: base, Repository: "o/r", Token: secret, TokenSource: "GITHUB_TOKEN", Notice: n.add})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.transport.sendsToken(); got != sent {
			t.Errorf("%q: the token is sent: %t", base, got)
		}
		if (n.all() == "") != sent || strings.Contains(n.all(), secret) {
			t.Errorf("%q: said %q", base, n.all())
		}
	}
}

// No output holds the token, whatever the server does with it.
func TestTokenNeverShown(t *testing.T) {
	t.Parallel()
	f := shared
	echo := func(change func(a *ghtest.Answer, token string)) ghtest.Fault {
		return ghtest.Change(func(a *ghtest.Answer) {
			change(a, strings.TrimPrefix(a.Request.Header.Get("Authorization"), "Bearer "))
		}).WithToken()
	}
	faults := map[string]ghtest.Fault{
		"in a refusal": echo(func(a *ghtest.Answer, token string) {
			a.Status, a.Body = 403, []byte(`{"message":"the token `+token+` is bad"}`)
		}),
		"in a page": echo(func(a *ghtest.Answer, token string) {
			a.Body = []byte("<html>" + strings.Repeat("x", 50) + token + "</html>")
		}),
		"in a 500": echo(func(a *ghtest.Answer, token string) {
			a.Status, a.Body = 500, []byte("debug: Authorization: Bearer "+token)
		}),
		"in a ref": echo(func(a *ghtest.Answer, token string) {
			a.Body = []byte(`{"ref":"refs/tags/` + token + `"}`)
		}),
		"in a redirect": echo(func(a *ghtest.Answer, token string) {
			a.Status = 302
			a.Header.Set("Location", "https://"+token+".example/"+token)
		}),
		"in a sign-on": echo(func(a *ghtest.Answer, token string) {
			a.Status, a.Body = 403, nil
			a.Header.Set("X-GitHub-SSO", "required; url=https://"+token+"/x")
		}),
		"in a wrong type": echo(func(a *ghtest.Answer, token string) {
			a.Body = []byte("x")
			a.Header.Set("Content-Type", "text/"+token)
		}),
		"refused": ghtest.BadToken(),
		"cut":     ghtest.CutLength(3).WithToken(),
	}
	for name, fault_ := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// On an Enterprise server, which gets no second try.
			s := f.serve(t, ghtest.Options{Prefix: "/api/v3"})
			s.Inject(fault_)
			var log strings.Builder
			c, n := connect(t, s, Options{
				Token: secret, TokenSource: "GITHUB_TOKEN",
				Log: debugLog(&log),
			})
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			class := fault.Upstream
			if name == "in a ref" {
				class = fault.Integrity
			}
			f := wantFault(t, err, class)
			for _, out := range []string{f.Text, strings.Join(f.Hints, "\n"), n.all(), log.String()} {
				if strings.Contains(strings.ToLower(out), strings.ToLower(secret[:12])) {
					t.Errorf("the token shows: %s", out)
				}
			}
			if f.Err != nil && strings.Contains(f.Err.Error(), secret) {
				t.Errorf("the cause holds the token: %v", f.Err)
			}
			if log.Len() == 0 {
				t.Error("nothing was logged")
			}
		})
	}
}
