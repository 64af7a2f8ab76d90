package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stega/pgque-vendor/events"
)

// doctorReport is what "doctor --json" writes.
type doctorReport struct {
	Schema        int          `json:"schema"`
	Healthy       bool         `json:"healthy"` // no finding above a note
	Database      string       `json:"database"`
	ServerVersion string       `json:"server_version"`
	InRecovery    bool         `json:"in_recovery"`
	Queues        int          `json:"queues"`
	Consumers     int          `json:"consumers"`
	ComparedWith  string       `json:"functions_compared_with"` // the vendored tag, "" when they were not
	Findings      []doctorLine `json:"findings"`
	DurationMS    int64        `json:"duration_ms"`
}

type doctorLine struct {
	Code     string   `json:"code"`
	Severity string   `json:"severity"` // critical, warning, or note
	Queue    string   `json:"queue"`
	Consumer string   `json:"consumer"`
	Text     string   `json:"text"`
	Age      float64  `json:"age_seconds"`       // for how long it has been so; 0 when unknown
	Clears   float64  `json:"clears_in_seconds"` // for how long it is still found once it is mended; 0 for not at all
	Fix      []remedy `json:"fix"`
}

func (x *examination) report(ctx context.Context) (*doctorReport, error) {
	r := &doctorReport{Schema: 1, Healthy: true, Database: x.database, ServerVersion: x.server, InRecovery: x.standby,
		Queues: len(x.queues), ComparedWith: x.compared, Findings: []doctorLine{}}
	for _, q := range x.queues {
		r.Consumers += q.Consumers
	}
	slices.SortStableFunc(x.found, func(a, b events.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Consumer, b.Consumer))
	})
	for _, f := range x.found {
		fixes, err := x.remedies(ctx, &f)
		if err != nil {
			return nil, err
		}
		r.Healthy = r.Healthy && f.Severity == events.Note
		r.Findings = append(r.Findings, doctorLine{f.Code, f.Severity.String(), f.Queue, f.Consumer, f.Text, inSeconds(f.Age), inSeconds(f.Clears), fixes})
	}
	return r, nil
}

// print writes a line for each finding, the lines that mend it below, and a
// verdict that says what was looked at.
func (r *doctorReport) print(env *environment) error {
	var b strings.Builder
	counts := map[string]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
		fmt.Fprintf(&b, "%s %s: %s\n", f.Severity, f.Code, f.Text)
		for _, fix := range f.Fix {
			when := ""
			if fix.When != "" {
				when = " (" + fix.When + ")"
			}
			fmt.Fprintf(&b, "    fix%s: %s\n", when, fix.Text)
		}
	}
	b.WriteString(r.verdict(counts))
	_, err := io.WriteString(env.stdout, printable(b.String())+"\n")
	return err
}

func (r *doctorReport) verdict(counts map[string]int) string {
	compared := "functions not compared"
	if r.ComparedWith != "" {
		compared = "functions compared with " + r.ComparedWith
	}
	looked := fmt.Sprintf("database %q, %s, %s, %s (%d ms)", r.Database, count(r.Queues, "queue"), count(r.Consumers, "consumer"), compared, r.DurationMS)
	if r.Healthy {
		return "healthy: " + looked
	}
	return fmt.Sprintf("%d critical, %s: %s", counts["critical"], count(counts["warning"], "warning"), looked)
}
