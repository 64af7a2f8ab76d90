package browsertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/statuspage"
)

// The page shows what happens without being loaded again, in either colour scheme
// and on any width, and nothing of what is in events.
func TestPage(t *testing.T) {
	odd := `<img src=x onerror=alert(1)> & "co"`
	s := newSystem(t, "tickets", "reports", odd)
	if _, err := events.Subscribe(t.Context(), s.pool, "tickets", "audit"); err != nil {
		t.Fatal(err)
	}
	s.tick(t)
	s.consume(t, "tickets", "notifications", func(_ context.Context, e *events.Event) error {
		switch {
		case e.ID%50 == 0:
			return events.Dead(errors.New("no such address hunter2"))
		case e.ID%20 == 0:
			return errors.New("again, hunter2")
		}
		return nil
	})
	p := openTab(t)
	p.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(s.url))
	p.until("the consumer is shown", `document.body.innerText.includes('notifications')`)
	p.do(chromedp.Evaluate[chromedp.Void](`void (window.same = true)`))

	for range 4 {
		s.send(t, "tickets", 100)
		time.Sleep(time.Second)
	}
	p.until("what audit has not taken is shown", `[...document.querySelectorAll('tr')].some(r => r.innerText.includes('audit') && /\b4\d\d\b/.test(r.innerText))`) // 400 sent, and a number for each retry of the other
	p.until("a plot of what was sent", `document.querySelector('section[aria-labelledby=queues] path') !== null && /max [1-9]/.test(document.querySelector('section[aria-labelledby=queues]').innerText)`)
	p.until("dead letters are found", `document.querySelector('.findings').innerText.includes('gave up on 8 events') && document.title.startsWith('1 problem')`)
	if !value[bool](p, `window.same === true`) {
		t.Error("the page was loaded again")
	}

	backs := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		for _, width := range []int64{1280, 800, 360} {
			p.do(chromedp.EmulateViewport(width, 800))
			if got := value[int64](p, `document.documentElement.scrollWidth`); got > width {
				t.Errorf("at a width of %d the page is %d wide", width, got)
			}
			if got := value[float64](p, `Math.min(...[...document.querySelectorAll('td, th, p, dd, code')].filter(e => e.offsetParent).map(e => parseFloat(getComputedStyle(e).fontSize)))`); got < 11.5 {
				t.Errorf("at a width of %d there is text of %.1f pixels", width, got)
			}
			p.shoot(fmt.Sprintf("page-%s-%d", scheme, width))
		}
		backs[scheme] = value[string](p, `getComputedStyle(document.body).backgroundColor`)
		if low := lowContrasts(p); len(low) > 0 {
			t.Errorf("%s: text that is hard to read: %s", scheme, strings.Join(low, "; "))
		}
	}
	if backs["light"] == backs["dark"] {
		t.Errorf("light and dark look the same: %s", backs["light"])
	}

	html := value[string](p, `document.documentElement.outerHTML`)
	if strings.Contains(html, "hunter2") || strings.Contains(html, "ticket.welcome") {
		t.Error("the page shows what is in an event")
	}
	if value[bool](p, `document.querySelector('main img') !== null`) || !strings.Contains(html, "onerror=alert(1)&gt;") {
		t.Error("a queue's name became markup")
	}
	checkAccessible(p)
}

// After an hour the plots show all of it, also the minutes in which the database was
// away.
func TestHour(t *testing.T) {
	page, err := statuspage.New(statuspage.Config{Process: "consume tickets mailer", Version: "v0.1.0"})
	if err != nil {
		t.Fatal(err)
	}
	page.Of("stega-events")
	end := time.Now()
	sent, done := 0.0, 0.0
	for second := range 3600 {
		at := end.Add(time.Duration(second-3600) * time.Second)
		wave := 40 + 30*math.Sin(float64(second)/300) + 10*math.Sin(float64(second)/17)
		sent += wave
		done = min(sent, done+55)
		if second%2 != 0 || second > 1500 && second < 1800 {
			continue
		}
		lag := time.Duration((sent - done) / 55 * float64(time.Second))
		page.Show(statuspage.Look{
			At: at, Seen: at,
			Queues: []events.QueueInfo{{Name: "tickets", LastTick: at, Sent: int64(sent), Consumers: 2}},
			Consumers: []events.ConsumerInfo{
				{Queue: "tickets", Name: "audit"},
				{Queue: "tickets", Name: "mailer", Pending: int64(sent - done), Lag: lag},
			},
		})
	}
	p := openTab(t)
	p.do(chromedp.EmulateViewport(1280, 500), chromedp.Navigate(servePage(t, page)))
	if got := value[int](p, `document.querySelectorAll('svg[viewBox="0 0 180 40"] path').length`); got != 5 {
		t.Errorf("%d plots of an hour, want 5", got)
	}
	if d := value[string](p, `document.querySelector('section[aria-labelledby=queues] path').getAttribute('d')`); strings.Count(d, "Z") != 2 {
		t.Errorf("the time without looks is no gap: %s", d)
	}
	p.shoot("hour-1280")
	p.prefers("dark")
	p.do(chromedp.EmulateViewport(360, 800))
	p.shoot("hour-dark-360")
}

// What is being marked, to be copied, stays as it is; a process that ends is said.
func TestPageSelectionAndLoss(t *testing.T) {
	s := newSystem(t, "tickets")
	stop := s.tick(t)
	p := openTab(t)
	p.do(chromedp.EmulateViewport(1000, 700), chromedp.Navigate(s.url))
	p.until("the queue is shown", `document.querySelector('tbody') !== null`)
	p.do(chromedp.Evaluate[chromedp.Void](`void (window.marked = document.querySelector('tbody th'), getSelection().selectAllChildren(window.marked))`))
	time.Sleep(5 * time.Second)
	if !value[bool](p, `window.marked.isConnected && String(getSelection()) === 'tickets'`) {
		t.Error("an update has taken the selection away")
	}
	p.do(chromedp.Evaluate[chromedp.Void](`void getSelection().removeAllRanges()`))
	p.until("updates go on", `!window.marked.isConnected`)
	stop()
}

// lowContrasts are texts whose colour differs too little from what is behind them:
// less than 4.5 to 1, as WCAG counts.
func lowContrasts(p *tab) []string {
	return value[[]string](p, `(() => {
		const parse = c => { const [r, g, b, a = 1] = c.match(/[\d.]+/g).map(Number); return {rgb: [r, g, b], a}; };
		const light = rgb => { const [r, g, b] = rgb.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.a > 0) return c.rgb; } return [255, 255, 255]; };
		const low = new Set();
		for (const e of document.querySelectorAll('body *')) {
			if (!e.offsetParent || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
			const a = light(parse(getComputedStyle(e).color).rgb), b = light(behind(e));
			const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			if (ratio < 4.5) low.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(1));
		}
		return [...low];
	})()`)
}

// checkAccessible looks for what a screen reader needs.
func checkAccessible(p *tab) {
	p.t.Helper()
	for what, expression := range map[string]string{
		"language":                `document.documentElement.lang === 'en'`,
		"one h1":                  `document.querySelectorAll('h1').length === 1`,
		"one main":                `document.querySelectorAll('main').length === 1`,
		"sections have names":     `[...document.querySelectorAll('section, table')].every(e => document.getElementById(e.getAttribute('aria-labelledby')))`,
		"plots say it in words":   `[...document.querySelectorAll('svg')].every(e => e.getAttribute('role') === 'img' && e.getAttribute('aria-label').includes(', last 10 min: '))`,
		"rows and columns named":  `[...document.querySelectorAll('tbody tr')].every(r => r.querySelector('th[scope=row]')) && [...document.querySelectorAll('thead th')].every(h => h.scope === 'col')`,
		"roles survive the cards": `[...document.querySelectorAll('table, tr, td, th')].every(e => e.hasAttribute('role'))`,
		"ids are unique":          `new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size === document.querySelectorAll('[id]').length`,
		"the state is announced":  `document.getElementById('state').getAttribute('role') === 'status'`,
		"nothing from elsewhere":  `performance.getEntriesByType('resource').every(e => e.name.startsWith(location.origin))`,
	} {
		if !value[bool](p, expression) {
			p.t.Errorf("not accessible: %s", what)
		}
	}
}
