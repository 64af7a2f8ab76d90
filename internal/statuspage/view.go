package statuspage

import (
	"fmt"
	"html/template"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// maxRows is how many queues, and how many consumers, are shown.
const maxRows = 50

// view is what the template gets: words and numbers as they are shown.
type view struct {
	Config
	Database string

	Style  template.CSS
	Script template.JS
	Build  string // changes when style, script or program do
	Icon   template.URL

	State   string    // in a few words
	Mood    string    // good, warning, critical or unknown
	Time    time.Time // when it was seen
	Trouble string
	Span    span

	Findings     []finding
	Queues       []queueRow
	Consumers    []consumerRow
	MoreQueues   int
	MoreConsumer int
	Done         []count
}

type finding struct {
	Severity, Code, Text, Fix string
}

type queueRow struct {
	Name, Tick, New, Retries, Dead, Rotated, Rate string
	Bad                                           string // how bad, or ""
	Sent                                          plot
}

type consumerRow struct {
	Queue, Name, Lag, Pending, Batch, Retries, Dead, Active, Rate string
	Bad                                                           string // how bad, or ""
	Lags, Finished                                                plot
}

func (p *Page) view() *view {
	look := &p.look
	v := &view{
		Config: p.config, Style: template.CSS(pageCSS), Script: template.JS(pageJS),
		Build: hash(p.config.Version + pageCSS + pageJS), Time: look.Seen.UTC(), Trouble: look.Trouble,
		Done: p.counts.list(), Span: spanOf(look.Seen.Sub(p.history.first)),
	}
	if p.database != "" {
		v.Database = shown(p.database)
	}
	bad := map[[2]string]events.Severity{} // by queue and consumer
	problems, worst := 0, events.Note
	for _, f := range look.Findings {
		v.Findings = append(v.Findings, finding{Severity: f.Severity.String(), Code: f.Code, Text: visible(f.Text), Fix: visible(f.Fix)})
		if f.Severity > events.Note {
			problems++
			worst = max(worst, f.Severity)
			where := [2]string{f.Queue, f.Consumer}
			bad[where] = max(bad[where], f.Severity)
		}
	}
	switch {
	case look.Trouble != "":
		v.State, v.Mood = "The database cannot be seen", "critical"
	case look.Seen.IsZero():
		v.State, v.Mood = "Not looked yet", "unknown"
	case problems == 0:
		v.State, v.Mood = "All is well", "good"
	default:
		v.State, v.Mood = plural(problems, "problem"), worst.String()
	}
	v.Icon = icon(v.Mood)
	for _, q := range look.Queues[:min(len(look.Queues), maxRows)] {
		v.Queues = append(v.Queues, p.queueRow(&q, v.Span, max(bad[[2]string{q.Name, ""}], bad[[2]string{}])))
	}
	for _, c := range look.Consumers[:min(len(look.Consumers), maxRows)] {
		v.Consumers = append(v.Consumers, p.consumerRow(&c, v.Span, bad[[2]string{c.Queue, c.Name}]))
	}
	v.MoreQueues, v.MoreConsumer = len(look.Queues)-len(v.Queues), len(look.Consumers)-len(v.Consumers)
	return v
}

// badness is the class of a row that a finding is about.
func badness(s events.Severity) string {
	if s == events.Note {
		return ""
	}
	return s.String()
}

func (p *Page) queueRow(q *events.QueueInfo, over span, bad events.Severity) queueRow {
	row := queueRow{
		Name: shown(q.Name), Bad: badness(bad), Tick: "never", New: number3(q.NewEvents), Retries: number3(q.Retries), Dead: unseen(q.DeadLetters),
		Rotated: ago(q.RotationAge), Rate: "–",
	}
	if !q.LastTick.IsZero() {
		row.Tick = ago(q.TickAge)
	}
	switch {
	case q.Paused:
		row.Tick += ", paused"
	case q.External:
		row.Tick += ", external"
	}
	if q.DueRetries > 0 {
		row.Retries += fmt.Sprintf(" (%s due)", number3(q.DueRetries))
	}
	if q.HalfRotated {
		row.Rotated += ", half"
	}
	if h := p.history.queues[q.Name]; h != nil {
		if rate, ok := h.rates.now(p.look.Seen); ok {
			row.Rate = perSecond(rate)
		}
		row.Sent = newPlot("events sent to queue "+row.Name, over, p.look.Seen, h.rates.get, perSecond)
	}
	return row
}

func (p *Page) consumerRow(c *events.ConsumerInfo, over span, bad events.Severity) consumerRow {
	row := consumerRow{
		Queue: shown(c.Queue), Name: shown(c.Name), Bad: badness(bad), Lag: "none", Pending: number3(c.Pending), Batch: "none",
		Retries: number3(c.Retries), Dead: unseen(c.DeadLetters), Active: ago(c.Active), Rate: "–",
	}
	if c.Pending > 0 {
		row.Lag = age(c.Lag)
	}
	if c.Batch != 0 {
		row.Batch = "open for " + age(c.BatchAge)
	}
	if h := p.history.consumers[[2]string{c.Queue, c.Name}]; h != nil {
		if rate, ok := h.rates.now(p.look.Seen); ok {
			row.Rate = perSecond(rate)
		}
		seconds := func(s float64) string {
			if s == 0 {
				return "none"
			}
			return age(time.Duration(s * float64(time.Second)))
		}
		row.Lags = newPlot("lag of consumer "+row.Name, over, p.look.Seen, h.lags.get, seconds)
		row.Finished = newPlot("events finished by consumer "+row.Name, over, p.look.Seen, h.rates.get, perSecond)
	}
	return row
}

// icon is a dot in the colour of the mood, so that a row of tabs tells.
func icon(mood string) template.URL {
	colour := map[string]string{"good": "15803d", "warning": "b45309", "critical": "b91c1c", "unknown": "6b7280"}[mood]
	return template.URL("data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><circle cx='8' cy='8' r='7' fill='%23" + colour + "'/></svg>")
}
