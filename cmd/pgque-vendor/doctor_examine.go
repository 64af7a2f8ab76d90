package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/events"
)

// examination is one run of doctor on one connection. Later parts heed what
// earlier ones have found.
type examination struct {
	conn  *pgx.Conn
	again func(command string) string // makes it one for this database and folder

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
	tag, f, err := compareFunctions(ctx, env, x.conn, dir)
	if err != nil {
		return err
	}
	if tag == "" && f == nil {
		env.sayf("there is no %q here: the functions in the database are not compared", dir)
	}
	x.compared = tag
	if f != nil {
		x.found = append(x.found, *f)
	}
	old, err := oldRelease(ctx, x.conn, dir)
	if old != nil {
		x.found = append(x.found, *old)
	}
	return err
}
