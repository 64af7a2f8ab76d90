package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// writeTables shows queues, then consumers, each a table.
func (s *queuesState) writeTables(w io.Writer) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "QUEUE\tLAST TICK\tNEW\tRETRIES\tDEAD\tROTATED\tCONSUMERS")
	for _, q := range s.queues {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", cell(q.Name), tickWords(&q), thousands(q.NewEvents),
			retryWords(&q), countOrUnseen(q.DeadLetters), rotationWords(&q), q.Consumers)
	}
	t.Flush()
	if len(s.consumers) > 0 {
		b.WriteByte('\n')
		t = tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "QUEUE\tCONSUMER\tPENDING\tLAG\tBATCH\tRETRIES\tDEAD\tACTIVE")
		for _, c := range s.consumers {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cell(c.Queue), cell(c.Name), thousands(c.Pending), lagWords(&c),
				batchWords(&c), thousands(c.Retries), countOrUnseen(c.DeadLetters), ago(c.Active))
		}
		t.Flush()
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLines shows the same as a line for each, for a log.
func (s *queuesState) writeLines(w io.Writer) error {
	var b strings.Builder
	at := s.time.UTC().Format(time.RFC3339)
	for _, q := range s.queues {
		fmt.Fprintf(&b, "%s queue %q: last tick %s, %s new, %s retries, %s dead letters, rotated %s\n", at, q.Name,
			tickWords(&q), thousands(q.NewEvents), retryWords(&q), countOrUnseen(q.DeadLetters), rotationWords(&q))
	}
	for _, c := range s.consumers {
		fmt.Fprintf(&b, "%s consumer %q of queue %q: %s pending, lag %s, batch %s, %s retries, %s dead letters, active %s\n", at, c.Name, c.Queue,
			thousands(c.Pending), lagWords(&c), batchWords(&c), thousands(c.Retries), countOrUnseen(c.DeadLetters), ago(c.Active))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func tickWords(q *events.QueueInfo) string {
	words := "never"
	if !q.LastTick.IsZero() {
		words = ago(q.TickAge)
	}
	switch {
	case q.Paused:
		return words + " (paused)"
	case q.External:
		return words + " (external)"
	}
	return words
}

func retryWords(q *events.QueueInfo) string {
	if q.DueRetries > 0 {
		return fmt.Sprintf("%s (%s due)", thousands(q.Retries), thousands(q.DueRetries))
	}
	return thousands(q.Retries)
}

func rotationWords(q *events.QueueInfo) string {
	if q.HalfRotated {
		return ago(q.RotationAge) + " (half)"
	}
	return ago(q.RotationAge)
}

func lagWords(c *events.ConsumerInfo) string {
	if c.Pending == 0 {
		return "none"
	}
	return inWords(c.Lag)
}

func batchWords(c *events.ConsumerInfo) string {
	if c.Batch == 0 {
		return "none"
	}
	return "open for " + inWords(c.BatchAge)
}

// countOrUnseen shows a number that this login may not be allowed to know.
func countOrUnseen(n int64) string {
	if n < 0 {
		return "?"
	}
	return thousands(n)
}

// ago says an age as a person does.
func ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return inWords(d) + " ago"
}

// inWords is a duration in the one unit that matters, or in two where the second
// still says something.
func inWords(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 0: // clocks may jump
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < day:
		return strings.TrimSuffix(fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute), " 0 min")
	case d < 2*day:
		return strings.TrimSuffix(fmt.Sprintf("1 day %d h", d%day/time.Hour), " 0 h")
	}
	return fmt.Sprintf("%d days", d/day)
}

// cell is text that other programs chose, as one cell of a table.
func cell(s string) string {
	if s == "" {
		return `""`
	}
	return strings.NewReplacer("\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(printable(s))
}

// queuesDocument is what "queues --json" writes; with --watch, one for each look.
type queuesDocument struct {
	Schema   int         `json:"schema"`
	Database string      `json:"database"`
	Time     time.Time   `json:"time"`
	Queues   []queueLine `json:"queues"`
}

// queueLine is one queue in JSON. Durations are seconds; what this login may not
// see is null.
type queueLine struct {
	Queue          string         `json:"queue"`
	Paused         bool           `json:"paused"`
	External       bool           `json:"external"`
	LastTick       *time.Time     `json:"last_tick"`
	TickAge        *float64       `json:"tick_age_seconds"`
	NewEvents      int64          `json:"new_events"`
	Retries        int64          `json:"retries"`
	DueRetries     int64          `json:"due_retries"`
	DeadLetters    *int64         `json:"dead_letters"`
	RotationAge    float64        `json:"rotation_age_seconds"`
	HalfRotated    bool           `json:"half_rotated"`
	MaxLag         float64        `json:"ticker_max_lag_seconds"`
	MaxCount       int            `json:"ticker_max_count"`
	IdlePeriod     float64        `json:"ticker_idle_period_seconds"`
	RotationPeriod float64        `json:"rotation_period_seconds"`
	MaxRetries     int            `json:"max_retries"`
	Consumers      []consumerLine `json:"consumers"`
}

type consumerLine struct {
	Consumer    string   `json:"consumer"`
	Pending     int64    `json:"pending"`
	Lag         float64  `json:"lag_seconds"`
	ActiveAge   float64  `json:"active_age_seconds"`
	Batch       *int64   `json:"batch"`
	BatchAge    *float64 `json:"batch_age_seconds"`
	Retries     int64    `json:"retries"`
	DeadLetters *int64   `json:"dead_letters"`
}

func (s *queuesState) document() *queuesDocument {
	doc := &queuesDocument{Schema: 1, Database: s.database, Time: s.time.UTC().Truncate(time.Millisecond), Queues: []queueLine{}}
	for _, q := range s.queues {
		line := queueLine{
			Queue: q.Name, Paused: q.Paused, External: q.External, NewEvents: q.NewEvents,
			Retries: q.Retries, DueRetries: q.DueRetries, DeadLetters: seen(q.DeadLetters),
			RotationAge: inSeconds(q.RotationAge), HalfRotated: q.HalfRotated, MaxLag: q.MaxLag.Seconds(), MaxCount: q.MaxCount,
			IdlePeriod: q.IdlePeriod.Seconds(), RotationPeriod: q.RotationPeriod.Seconds(), MaxRetries: q.MaxRetries,
			Consumers: []consumerLine{},
		}
		if !q.LastTick.IsZero() {
			at, age := q.LastTick.UTC(), inSeconds(q.TickAge)
			line.LastTick, line.TickAge = &at, &age
		}
		for _, c := range s.consumers {
			if c.Queue != q.Name {
				continue
			}
			one := consumerLine{Consumer: c.Name, Pending: c.Pending, Lag: inSeconds(c.Lag), ActiveAge: inSeconds(c.Active), Retries: c.Retries, DeadLetters: seen(c.DeadLetters)}
			if c.Batch != 0 {
				age := inSeconds(c.BatchAge)
				one.Batch, one.BatchAge = &c.Batch, &age
			}
			line.Consumers = append(line.Consumers, one)
		}
		doc.Queues = append(doc.Queues, line)
	}
	return doc
}

func seen(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

func inSeconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
