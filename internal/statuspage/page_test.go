package statuspage

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
)

func newPage(t testing.TB) *Page {
	t.Helper()
	p, err := New(Config{Process: "ticker", Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func body(t testing.TB, p *Page) string {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d, %q: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	return w.Body.String()
}

func lookAt(t time.Time) Look {
	return Look{At: t, Seen: t, Queues: []events.QueueInfo{{Name: "q", LastTick: t, Consumers: 1}},
		Consumers: []events.ConsumerInfo{{Queue: "q", Name: "c"}}}
}

func TestStates(t *testing.T) {
	t.Parallel()
	finding := func(s events.Severity) events.Finding {
		return events.Finding{Code: events.CodeNoTick, Severity: s, Queue: "q", Text: "it stands still", Fix: "pgque-vendor ticker"}
	}
	for name, test := range map[string]struct {
		change func(*Look)
		want   []string
	}{
		"well":     {func(l *Look) {}, []string{`class="good" role="status">All is well<`, "<title>All is well · ticker · PgQue</title>"}},
		"note":     {func(l *Look) { l.Findings = []events.Finding{finding(events.Note)} }, []string{">All is well<", `<li class="note">`, "it stands still", "<code>pgque-vendor ticker</code>"}},
		"critical": {func(l *Look) { l.Findings = []events.Finding{finding(events.Critical), finding(events.Warning)} }, []string{`class="critical" role="status">2 problems<`, `<tr role="row" class="critical">`}},
		"gone":     {func(l *Look) { l.Trouble = "the database does not answer in time" }, []string{">The database cannot be seen<", "the database does not answer in time. What follows is older."}},
		"empty":    {func(l *Look) { l.Queues, l.Consumers = nil, nil }, []string{"This database has no queue.", "No consumer is subscribed."}},
		"paused":   {func(l *Look) { l.Queues[0].Paused = true }, []string{"now, paused"}},
		"unseen":   {func(l *Look) { l.Queues[0].DeadLetters = -1 }, []string{`data-name="Dead letters">?<`}},
		"many": {func(l *Look) {
			for i := range 70 {
				l.Queues = append(l.Queues, events.QueueInfo{Name: fmt.Sprint("q", i)})
			}
		}, []string{"And 21 more: <code>pgque-vendor queues</code>"}},
	} {
		p := newPage(t)
		look := lookAt(time.Now())
		test.change(&look)
		p.Show(look)
		html := body(t, p)
		for _, want := range test.want {
			if !strings.Contains(html, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, html)
			}
		}
	}
	if html := body(t, newPage(t)); !strings.Contains(html, ">Not looked yet<") || !strings.Contains(html, "not looked at yet") {
		t.Errorf("before the first look:\n%s", html)
	}
}

// Names, texts and fixes come from others, and stay text.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	const evil = `"><script>alert(1)</script><img src=x onerror='alert(2)'>{{.}}` + "\u202e\x1b\xff"
	p := newPage(t)
	look := lookAt(time.Now())
	look.Queues = []events.QueueInfo{{Name: evil}, {Name: "right\u202eto left"}, {Name: ""}, {Name: "bad\xff"}}
	look.Consumers = []events.ConsumerInfo{{Queue: evil, Name: evil}}
	look.Findings = []events.Finding{{Code: evil, Severity: events.Warning, Queue: evil, Text: evil, Fix: evil}}
	p.Of(evil)
	p.Show(look)
	html := body(t, p)
	if n := strings.Count(html, "<script>"); n != 1 {
		t.Errorf("%d scripts, want ours alone", n)
	}
	if strings.Contains(html, "<img") || strings.ContainsAny(html, "\u202e\x1b") || strings.Contains(html, "\xff") {
		t.Error("a name is markup, turns the text around, or is no UTF-8")
	}
}

// The policy allows the one script and the one style as they are on the page.
func TestPolicyFitsThePage(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	policy := w.Header().Get("Content-Security-Policy")
	for element, directive := range map[string]string{"script": "script-src", "style": "style-src"} {
		found := regexp.MustCompile(`(?s)<` + element + `>(.*?)</` + element + `>`).FindStringSubmatch(w.Body.String())
		if found == nil || !strings.Contains(policy, directive+" '"+hash(found[1])+"'") {
			t.Errorf("%s: the policy %q does not allow what is on the page", element, policy)
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") {
		t.Errorf("policy %q", policy)
	}
	for _, inline := range []string{" style=", " onclick=", " onload=", "javascript:"} {
		if strings.Contains(w.Body.String(), inline) {
			t.Errorf("%q is on the page", inline)
		}
	}
}

// It is rendered once for each look, and shows what the process did.
func TestRenderedOnce(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	for _, o := range []events.Observation{
		events.Ticked{Queue: "q"}, events.Retried{Events: 1200}, events.TickerFailed{Err: errors.New("hunter2")},
		events.Leased{Queue: "q", Consumer: "c", Active: true},
		events.Handled{Outcome: events.OutcomeDone}, events.Handled{Outcome: events.OutcomeRetried, Err: errors.New("hunter2")},
		events.Settled{Events: 3, Retried: 1, Dead: 1, HandedBack: 5}, events.Settled{Stale: true},
	} {
		p.Observe(o)
	}
	p.Show(lookAt(time.Now()))
	first, err := p.render()
	if err != nil {
		t.Fatal(err)
	}
	p.Observe(events.Ticked{Queue: "q"})
	again, err := p.render()
	if err != nil || &first[0] != &again[0] {
		t.Error("rendered again without a new look")
	}
	html := string(first)
	for _, want := range []string{"<dt>ticks</dt><dd>1<", "<dt>retries moved back</dt><dd>1,200<", "<dt>state</dt><dd>active<", "<dt>done</dt><dd>1<", "<dt>handed back</dt><dd>5<", "<dt>stale batches</dt><dd>1<"} {
		if !strings.Contains(html, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	if strings.Contains(html, "hunter2") {
		t.Error("the page shows the text of an error")
	}
}

// An hour of looks at 50 queues and consumers stays a page that a phone can take.
func TestFullPageIsSmall(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	now := time.Now()
	for i := range 1800 {
		at := now.Add(time.Duration(i-1800) * 2 * time.Second)
		look := Look{At: at, Seen: at}
		for q := range 60 {
			name := fmt.Sprint("queue", q)
			look.Queues = append(look.Queues, events.QueueInfo{Name: name, Sent: int64(i * i % 997 * q)})
			look.Consumers = append(look.Consumers, events.ConsumerInfo{Queue: name, Name: "c", Pending: 1, Lag: time.Duration(i*q%61) * time.Second})
		}
		p.Show(look)
	}
	html := body(t, p)
	t.Logf("%d KB", len(html)>>10)
	if len(html) > 400<<10 {
		t.Errorf("the page has %d KB", len(html)>>10)
	}
	if !strings.Contains(html, "Lag, last hour") {
		t.Error("after an hour the plots do not show it")
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		age(-time.Second): "0 s", age(20 * time.Millisecond): "20 ms", age(59 * time.Second): "59 s", age(60 * time.Second): "1 min",
		age(90 * time.Second): "1 min 30 s", age(2*time.Hour + 5*time.Minute): "2 h 5 min", age(50 * time.Hour): "2 d 2 h",
		ago(900 * time.Millisecond): "now", ago(time.Hour): "1 h ago",
		number3(0): "0", number3(999): "999", number3(-1000): "-1,000", number3(1234567): "1,234,567", unseen(-1): "?",
		perSecond(0): "0/s", perSecond(0.02): "1.2/min", perSecond(0.0001): "0.1/min", perSecond(2.54): "2.5/s", perSecond(1234.5): "1,235/s",
		shown("a b"): "a b", shown(`say "hi" \`): `say "hi" \`, shown(""): `""`, shown(" x"): `" x"`, shown("a\nb"): `"a\nb"`, shown("é日"): "é日",
		shown("a\u202eb"): `"a\u202eb"`,
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
