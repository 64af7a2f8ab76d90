package ghclient

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
)

// B026, B073: which limit it is, what is worth waiting for, and how often is
// asked.
func TestLimits(t *testing.T) {
	t.Parallel()
	f := shared
	ahead := time.Now().Add(24 * time.Hour)
	tests := []struct {
		name     string
		fault    ghtest.Fault
		token    bool
		requests int
		words    []string // none: it succeeds
		notice   string
	}{
		{"primary, 403", ghtest.RateLimit(403, 50*time.Minute), false, 1,
			[]string{"the rate limit of 127.0.0.1", "60 requests an hour, is used up; it is reset at ", "(in ", "GITHUB_TOKEN", "--from"}, ""},
		{"primary, 429", ghtest.RateLimit(429, 50*time.Minute), false, 1, []string{"rate limit of", "is used up", "(in "}, ""},
		{"primary, with a token", ghtest.RateLimit(403, 50*time.Minute), true, 1, []string{"5000 requests an hour for the token from GITHUB_TOKEN, is used up"}, ""},
		{"primary, within the time limit", ghtest.RateLimit(403, 12*time.Second), false, 1, []string{"is used up; it is reset at "}, ""},
		{"primary, soon over", ghtest.RateLimit(403, time.Second).First(1), false, 2, nil, "is used up; it is reset at "},
		{"primary, no reset said", ghtest.Change(func(a *ghtest.Answer) {
			a.Status, a.Body = 403, []byte(`{"message":"API rate limit exceeded"}`)
			a.Header.Set("X-RateLimit-Remaining", "0")
			a.Header.Set("X-RateLimit-Reset", "soon")
		}), false, 1, []string{"60 requests an hour, is used up"}, ""},
		{"secondary, seconds", ghtest.SecondaryLimit(429, "1").First(1), false, 2, nil, "waiting 1s"},
		{"secondary, 403 with seconds", ghtest.SecondaryLimit(403, "1").First(1), false, 2, nil, "waiting 1s"},
		{"secondary, a date that passed", ghtest.SecondaryLimit(429, "Mon, 02 Jan 2006 15:04:05 GMT").First(1), false, 2, nil, ""},
		{"secondary, a day", ghtest.SecondaryLimit(429, "86400"), false, 1,
			[]string{"fewer requests at a time", "it asks to wait until ", "(24h0m0s)", "--timeout"}, ""},
		{"secondary, tomorrow", ghtest.SecondaryLimit(403, ahead.UTC().Format(http.TimeFormat)), false, 1, []string{"it asks to wait until "}, ""},
		{"secondary, an absurd number", ghtest.SecondaryLimit(429, strings.Repeat("9", 40)), false, 1, []string{"it asks to wait until"}, ""},
		{"secondary, by its words alone", ghtest.SecondaryLimit(403, ""), false, maxTries, []string{"secondary rate limit"}, ""},
		{"secondary, by its words, once", ghtest.SecondaryLimit(403, "").First(1), false, 2, nil, ""},
		{"secondary, nonsense", ghtest.SecondaryLimit(429, "later"), false, maxTries, []string{"secondary rate limit"}, ""},
		{"429 and nothing else", ghtest.Status(429, ""), false, maxTries, []string{"429"}, ""},
		{"plain 403", ghtest.Status(403, "Must have admin rights"), false, 1, []string{`403 "Must have admin rights"`}, ""},
		{"plain 403 with a token", ghtest.Status(403, "Resource not accessible by personal access token"), true, 1,
			[]string{"403", "the token from GITHUB_TOKEN may lack the right", "--no-token"}, ""},
		{"503 that says when", ghtest.Change(func(a *ghtest.Answer) {
			a.Status = 503
			a.Header.Set("Retry-After", "1")
		}).First(1), false, 2, nil, "waiting 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{})
			s.Inject(tt.fault)
			o := Options{}
			if tt.token {
				o.Token, o.TokenSource = secret, "GITHUB_TOKEN"
			}
			c, n := connect(t, s, o)
			began := time.Now()
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			if took := time.Since(began); took > 50*time.Second {
				t.Errorf("it took %s", took)
			}
			if tt.words == nil && err != nil {
				t.Error(err)
			}
			if tt.words != nil {
				wantFault(t, err, fault.Upstream, tt.words...)
			}
			if got := len(s.Requests()); got != tt.requests {
				t.Errorf("%d requests, want %d", got, tt.requests)
			}
			if !strings.Contains(n.all(), tt.notice) || tt.notice == "" && n.all() != "" {
				t.Errorf("said %q, want %q", n.all(), tt.notice)
			}
		})
	}
}

// go-github refuses the request after an answer that used up the limit, by its
// own clock; whether the limit is reset is GitHub's to say.
func TestLastRequestOfTheHour(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{})
	s.Inject(ghtest.Header("X-RateLimit-Remaining", "0").First(1))
	c, _ := connect(t, s, Options{})
	for range 2 {
		if _, err := c.ResolveTag(context.Background(), "v0.2.0"); err != nil {
			t.Fatal(err)
		}
	}
}

// B026: clocks that disagree by hours.
func TestSkewedClocks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, skew := range []time.Duration{-3 * time.Hour, -time.Hour, 0, time.Hour, 100000 * time.Hour} {
		server := now.Add(skew)
		h := http.Header{}
		h.Set("Date", server.Format(http.TimeFormat))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(server.Add(50*time.Minute).Unix(), 10))
		h.Set("Retry-After", server.Add(7*time.Second).Format(http.TimeFormat))
		if d, ok := resetIn(h, now); !ok || d != 50*time.Minute {
			t.Errorf("skew %s: reset in %s, %t", skew, d, ok)
		}
		if d, ok := retryAfter(h, now); !ok || d != 7*time.Second {
			t.Errorf("skew %s: retry after %s, %t", skew, d, ok)
		}
		h.Del("Date")
		if d, ok := retryAfter(h, now); !ok || d < 0 || d > longestWait {
			t.Errorf("skew %s, no date: retry after %s, %t", skew, d, ok)
		}
		if d, ok := resetIn(h, now); ok && (d < 0 || d > longestWait) {
			t.Errorf("skew %s, no date: reset in %s", skew, d)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	tests := []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"", 0, false},
		{"0", 0, true},
		{" 3 ", 3 * time.Second, true},
		{"120", 2 * time.Minute, true},
		{"99999999999999999999", longestWait, true},
		{"-1", 0, false},
		{"1.5", 0, false},
		{"soon", 0, false},
		{"Wed, 04 Mar 2026 05:06:37 GMT", 30 * time.Second, true},
		{"Wed, 04 Mar 2026 05:00:00 GMT", 0, true},
		{"Wednesday, 04-Mar-26 05:06:17 GMT", 10 * time.Second, true},
		{"Wed Mar  4 05:06:17 2026", 10 * time.Second, true},
		{"Wed, 04 Mar 9026 05:06:37 GMT", longestWait, true},
	}
	for _, tt := range tests {
		h := http.Header{"Retry-After": {tt.value}}
		if got, ok := retryAfter(h, now); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %s, %t; want %s, %t", tt.value, got, ok, tt.want, tt.ok)
		}
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	tr := &transport{now: func() time.Time { return time.Date(2026, 3, 4, 23, 6, 7, 0, time.Local) }}
	for in, want := range map[time.Duration]string{
		time.Minute: "23:07:07", time.Hour: "2026-03-05 00:06:07",
	} {
		if got := tr.clock(in); got != want {
			t.Errorf("in %s: %q, want %q", in, got, want)
		}
	}
}
