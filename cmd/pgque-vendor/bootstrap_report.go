package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stega/pgque-vendor/internal/bootstrap"
	"github.com/stega/pgque-vendor/internal/fault"
)

// bootstrapDocument is what "bootstrap --json" writes.
type bootstrapDocument struct {
	Schema        int                  `json:"schema"`
	Action        bootstrap.Action     `json:"action"`
	Database      string               `json:"database"`
	ServerVersion string               `json:"server_version"`
	From          *bootstrapFrom       `json:"from"` // null where the database had no PgQue
	To            bootstrapTo          `json:"to"`
	Owner         string               `json:"owner"`
	Grants        []bootstrapGrant     `json:"grants"`
	Queues        []queueResult        `json:"queues"`
	Subscriptions []subscriptionResult `json:"subscriptions"`
	Plan          []string             `json:"plan"`
	Drift         []string             `json:"drift"`
	Warnings      []string             `json:"warnings"`
	Error         string               `json:"error"` // why it was refused or failed, "" otherwise
	Hints         []string             `json:"hints"`
	DurationMS    int64                `json:"duration_ms"`
}

// bootstrapFrom is what the database had. Tag and commit are empty when they
// are not known; sql_version is only what the SQL says of itself.
type bootstrapFrom struct {
	Tag         string `json:"tag"`
	Commit      string `json:"commit"`
	SHA256      string `json:"sha256"`
	SQLVersion  string `json:"sql_version"`
	Fingerprint string `json:"fingerprint"`
}

type bootstrapTo struct {
	Tag    string `json:"tag"`
	Commit string `json:"commit"`
	SHA256 string `json:"sha256"`
}

type bootstrapGrant struct {
	Role      string `json:"role"`
	To        string `json:"to"`
	Effective bool   `json:"effective"`
}

// finish reports, on both streams, and decides the exit code.
func (o *bootstrapOptions) finish(env *environment, r *bootstrap.Report, f bootstrap.File, provision *provisioner, took time.Duration, err error) error {
	for _, w := range r.Plan.Warnings {
		env.warnf("%s", w)
	}
	for _, line := range r.Plan.Lines(f) {
		env.log.Debug("step", "do", line)
	}
	if o.json {
		if writeErr := writeJSON(env.stdout, describeBootstrap(r, f, provision, took, env.withHints(err))); writeErr != nil {
			return writeErr
		}
	}
	drifted := o.check && r.Plan.Drifted
	if drifted {
		err = nil // what --check is there to find
	}
	if err != nil {
		return err
	}
	if !o.json {
		if writeErr := o.print(env, r, f, provision, took); writeErr != nil {
			return writeErr
		}
		if drifted {
			for _, hint := range r.Plan.Refusal.Hints {
				env.hintf("%s", hint)
			}
		}
	}
	if o.check && (drifted || !r.Plan.Empty()) {
		return errFinding
	}
	return nil
}

// failed reports a run that ended before anything was known of the database.
func (o *bootstrapOptions) failed(env *environment, f bootstrap.File, took time.Duration, err error) error {
	if !o.json {
		return err
	}
	nothing := &bootstrap.Report{Plan: &bootstrap.Plan{}}
	return cmp.Or(writeJSON(env.stdout, describeBootstrap(nothing, f, nil, took, env.withHints(err))), err)
}

func describeBootstrap(r *bootstrap.Report, f bootstrap.File, provision *provisioner, took time.Duration, err error) *bootstrapDocument {
	doc := &bootstrapDocument{
		Schema: 1, Action: r.Action, Database: r.Database, ServerVersion: r.ServerVersion,
		To: bootstrapTo{f.Tag, f.Commit, f.SHA256}, Owner: r.Plan.Owner,
		Grants: []bootstrapGrant{}, Queues: []queueResult{}, Subscriptions: []subscriptionResult{},
		Plan: append([]string{}, r.Plan.Lines(f)...), Drift: append([]string{}, r.Plan.Drift...),
		Warnings: append([]string{}, r.Plan.Warnings...), Hints: []string{}, DurationMS: took.Milliseconds(),
	}
	if err != nil {
		doc.Action, doc.Error = bootstrap.Failed, err.Error()
		if fault.Is(err, fault.Policy) {
			doc.Action = bootstrap.Refused
		}
	}
	var failure *fault.Error
	if errors.As(err, &failure) {
		doc.Hints = append(doc.Hints, failure.Hints...)
	}
	if v := r.Plan.From; v != nil {
		doc.From = &bootstrapFrom{v.Tag, v.Commit, v.SHA256, v.SQLVersion, v.Fingerprint}
	}
	for _, g := range r.Grants {
		doc.Grants = append(doc.Grants, bootstrapGrant(g))
	}
	if provision != nil {
		doc.Queues = append(doc.Queues, provision.queueResults...)
		doc.Subscriptions = append(doc.Subscriptions, provision.subscriptionResults...)
	}
	return doc
}

// print writes the report for people.
func (o *bootstrapOptions) print(env *environment, r *bootstrap.Report, f bootstrap.File, provision *provisioner, took time.Duration) error {
	var lines []string
	if o.check || o.plan {
		lines = append(lines, r.Plan.Drift...)
		if !r.Plan.Empty() {
			lines = append(lines, r.Plan.Lines(f)...)
		}
	} else if provision != nil {
		lines = provision.lines()
	}
	lines = append(lines, o.verdict(r, f, took))
	_, err := fmt.Fprintln(env.stdout, printable(strings.Join(lines, "\n")))
	return err
}

func (o *bootstrapOptions) verdict(r *bootstrap.Report, f bootstrap.File, took time.Duration) string {
	to := describeTag(f.Tag, f.Commit)
	install, from := "install", "what it had"
	if r.Plan.From != nil {
		install = "reinstall"
	}
	if v := r.Plan.From; v != nil && v.Tag != "" {
		from = describeTag(v.Tag, v.Commit)
		if v.Tag == f.Tag && v.Path != f.Path { // two files of one tag
			from, to = fmt.Sprintf("%q of %s", v.Path, from), fmt.Sprintf("%q of %s", f.Path, to)
		}
	}
	ms := took.Round(time.Millisecond)
	switch r.Action {
	case bootstrap.Installed:
		return fmt.Sprintf("%sed PgQue %s in database %q, owned by %q%s (%s)", install, to, r.Database, r.Plan.Owner, grantWords(r), ms)
	case bootstrap.Upgraded:
		return fmt.Sprintf("upgraded PgQue in database %q from %s to %s%s (%s)", r.Database, from, to, grantWords(r), ms)
	case bootstrap.WouldInstall:
		return fmt.Sprintf("would %s PgQue %s in database %q", install, to, r.Database)
	case bootstrap.WouldUpgrade:
		return fmt.Sprintf("would upgrade PgQue in database %q from %s to %s", r.Database, from, to)
	case bootstrap.Refused:
		return fmt.Sprintf("database %q has functions that are not those of %s", r.Database, to)
	}
	if !r.Plan.Empty() {
		done := "completed"
		if o.check || o.plan {
			done = "to be completed"
		}
		return fmt.Sprintf("database %q has PgQue %s; %s%s (%s)", r.Database, to, done, stepWords(r.Plan.Lines(f)), ms)
	}
	return fmt.Sprintf("database %q has PgQue %s, nothing to do%s (%s)", r.Database, to, grantWords(r), ms)
}

// stepWords keeps a verdict of many steps to one line; --plan and --verbose have all.
func stepWords(steps []string) string {
	if len(steps) > 3 {
		return fmt.Sprintf(" in %d steps", len(steps))
	}
	var words []string
	for _, step := range steps {
		words = append(words, strings.TrimSuffix(step, ";"))
	}
	return ": " + strings.Join(words, "; ")
}

func grantWords(r *bootstrap.Report) string {
	var words []string
	for _, g := range r.Grants {
		if g.Effective {
			words = append(words, fmt.Sprintf("%s works for %q", g.Role, g.To))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return ", " + strings.Join(words, ", ")
}
