package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/bootstrap"
)

// Codes of findings that the library has none of: it knows no vendored file.
const (
	codeFunctions = "functions-differ" // the database has not the vendored SQL
	codeVendored  = "vendored-files"   // the vendored SQL cannot be read
)

// examination is one run of doctor on one connection. Later parts heed what
// earlier ones have found.
type examination struct {
	conn    *pgx.Conn
	flags   string // for the commands that remedies are
	dirFlag string

	database string
	server   string // its version
	login    string
	standby  bool
	ticks    bool // a ticker of ours is connected
	queues   []events.QueueInfo
	found    []events.Finding
	compared string // the tag that the functions were compared with, or ""
}

func (x *examination) health(ctx context.Context, config events.HealthConfig) error {
	err := x.conn.QueryRow(ctx, `select current_database(), current_setting('server_version'), pg_is_in_recovery(), current_user,
		exists (select from pg_stat_activity where datname = current_database() and application_name like 'pgque-vendor ticker%')`,
		pgx.QueryExecModeSimpleProtocol).Scan(&x.database, &x.server, &x.standby, &x.login, &x.ticks)
	if err != nil {
		return err
	}
	config.Ticks = x.ticks
	x.found, err = events.Health(ctx, x.conn, config)
	return err
}

// has says whether there is a finding for the queue, or for all.
func (x *examination) has(code, queue string) bool {
	return slices.ContainsFunc(x.found, func(f events.Finding) bool { return f.Code == code && (f.Queue == "" || f.Queue == queue) })
}

// unticked sees within seconds that no ticker runs. From one look nobody can tell
// when the events that wait for a tick were sent; but a ticker gives a queue with
// new events and an old tick its next one at once.
func (x *examination) unticked(ctx context.Context, tickEvery time.Duration) error {
	queues, err := events.Queues(ctx, x.conn)
	if errors.Is(err, events.ErrPermission) {
		return nil // Health has said what it could not see
	}
	if err != nil {
		return err
	}
	x.queues = queues
	waiting := queues
	for patience := time.Now().Add(2*time.Second + 2*tickEvery); ; {
		waiting = slices.DeleteFunc(slices.Clone(waiting), func(was events.QueueInfo) bool {
			return !slices.ContainsFunc(queues, func(q events.QueueInfo) bool { return q.Name == was.Name && x.overdue(&q, &was) })
		})
		if x.standby || len(waiting) == 0 {
			return nil
		}
		if time.Now().After(patience) {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		if queues, err = events.Queues(ctx, x.conn); err != nil {
			return err
		}
	}
	for _, q := range waiting {
		x.found = append(x.found, events.Finding{Code: events.CodeNoTick, Severity: events.Critical, Queue: q.Name, Age: q.TickAge,
			Text: fmt.Sprintf("%s events of queue %q wait for a tick and none comes, the last one was %s: no ticker runs", thousands(q.NewEvents), q.Name, ago(q.TickAge))})
	}
	return nil
}

// overdue says that a ticker would have ticked the queue since an earlier look.
func (x *examination) overdue(q, before *events.QueueInfo) bool {
	known := x.has(events.CodeNoTick, q.Name) || x.has(events.CodeRestored, q.Name)
	return !known && !q.Paused && !q.External && !q.LastTick.IsZero() &&
		q.NewEvents > 0 && q.TickAge > q.MaxLag && q.LastTick.Equal(before.LastTick)
}

// cronJobs looks for jobs of pg_cron that did not come by pgque.start, whose are
// known already.
func (x *examination) cronJobs(ctx context.Context) error {
	var visible bool
	err := x.conn.QueryRow(ctx, `select coalesce(has_schema_privilege(to_regnamespace('cron'), 'usage') and has_table_privilege(to_regclass('cron.job'), 'select'), false)`,
		pgx.QueryExecModeSimpleProtocol).Scan(&visible)
	if err != nil || !visible || x.has(events.CodeScheduler, "") {
		return err
	}
	rows, err := x.conn.Query(ctx, `select jobid from cron.job where active and database = current_database() and command ~* 'pgque\.(ticker|force_tick)' order by jobid`,
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return err
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(jobs) == 0 {
		return err
	}
	var stop []string
	for _, id := range jobs {
		stop = append(stop, fmt.Sprintf("select cron.unschedule(%d)", id))
	}
	f := events.Finding{Code: events.CodeScheduler, Severity: events.Note, Fix: strings.Join(stop, "; "),
		Text: fmt.Sprintf("pg_cron has %s that tick this database", count(len(jobs), "job"))}
	if x.ticks {
		f.Severity = events.Warning
		f.Text += ", and pgque-vendor's ticker does too: they share no lock, so now and then an event comes twice"
	}
	x.found = append(x.found, f)
	return nil
}

// functions compares what the database runs with the vendored SQL, where that is.
func (x *examination) functions(ctx context.Context, env *environment, dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		env.sayf("there is no %q here: the functions in the database are not compared", dir)
		return nil
	}
	quiet := *env
	quiet.stderr = io.Discard // what else is wrong with the folder is status's to say
	file, err := (&bootstrapOptions{dir: dir}).readFile(&quiet)
	if err != nil {
		x.found = append(x.found, events.Finding{Code: codeVendored, Severity: events.Note,
			Text: fmt.Sprintf("the functions are not compared with the vendored SQL: %s", err)})
		return nil
	}
	report, err := bootstrap.Inspect(ctx, x.conn, file, bootstrap.Options{AllowDrift: true})
	if err != nil {
		return err
	}
	x.compared = file.Tag
	plan := report.Plan
	has := "an unknown release"
	if plan.From != nil && plan.From.Tag != "" {
		has = plan.From.Tag
	}
	f := events.Finding{Code: codeFunctions, Severity: events.Warning}
	switch {
	case plan.Refusal != nil && len(plan.Drift) > 0:
		f.Text, f.Fix = plan.Refusal.Text, strings.Join(plan.Refusal.Hints, "\n")
	case plan.Upgrade:
		f.Text = fmt.Sprintf("the database has %s and the vendored SQL is %s", has, file.Tag)
		f.Fix = "pgque-vendor bootstrap --no-grant"
	case len(plan.Drift) > 0:
		f.Text = fmt.Sprintf("%d functions are not those of the vendored %s: %s", len(plan.Drift), file.Tag, someOf(plan.Drift, 5))
		f.Fix = "pgque-vendor bootstrap --no-grant --reinstall"
	default:
		return nil
	}
	x.found = append(x.found, f)
	return nil
}

// someOf is the head of a list, and how many more there are.
func someOf(list []string, n int) string {
	if len(list) <= n {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:n], "; "), len(list)-n)
}
