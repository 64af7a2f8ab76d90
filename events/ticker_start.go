package events

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// start waits for the database and checks that the ticker can do its work there.
func (t *Ticker) start(ctx context.Context) error {
	for {
		err := t.check(ctx)
		if ctx.Err() != nil || permanent(err) {
			return err
		}
		t.done(ctx, "start", err)
		if err == nil {
			return nil
		}
		sleep(ctx, t.pause("start", t.config.Every))
	}
}

// permanent says that a ticker that starts should not try again: somebody has to
// do something first.
func permanent(err error) bool {
	state := sqlState(err)
	return errors.Is(err, ErrPermission) || errors.Is(err, ErrNotInstalled) || errors.Is(err, ErrQueueNotFound) || errors.Is(err, ErrInvalid) ||
		strings.HasPrefix(state, "28") || state == "3D000"
}

// tickerNeeds lists the functions that a ticker calls, with whether they are
// there and whether we may call them. It asks the catalog, which needs no right, and
// for types by number, 25 for text: how their names are written is a setting.
const tickerNeeds = `
select current_user, current_database(), format('pgque.%s(%s)', w.name, w.args), p.oid is not null,
       coalesce(has_schema_privilege(n.oid, 'usage') and has_function_privilege(p.oid, 'execute'), false)
  from (values ('ticker', 'text', '25'), ('maint', '', ''), ('maint_retry_events', '', ''),
               ('maint_rotate_tables_step1', 'text', '25'), ('maint_rotate_tables_step2', '', '')) w (name, args, types)
  left join pg_namespace n on n.nspname = 'pgque'
  left join pg_proc p on p.pronamespace = n.oid and p.proname = w.name and p.proargtypes = w.types::oidvector`

func (t *Ticker) check(ctx context.Context) error {
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	rows, err := t.pool.Query(ctx, tickerNeeds, exec)
	if err != nil {
		return wrap(err, "connect")
	}
	var role, database, function string
	var there, allowed bool
	_, err = pgx.ForEachRow(rows, []any{&role, &database, &function, &there, &allowed}, func() error {
		switch {
		case !there:
			return fmt.Errorf("database %q has no function %s: %w", database, function, ErrNotInstalled)
		case !allowed:
			return fmt.Errorf("role %q may not call %s: %w; it needs: %s", role, function, ErrPermission, grantSQL("pgque_admin", role))
		}
		return nil
	})
	if err != nil {
		return wrap(err, "check what the ticker needs")
	}
	if err := t.checkQueues(ctx); err != nil {
		return err
	}
	return t.settle(ctx)
}

func grantSQL(role, to string) string {
	return fmt.Sprintf("grant %s to %s", role, quoteName(to))
}

// checkQueues refuses names in Queues that are no queue.
func (t *Ticker) checkQueues(ctx context.Context) error {
	rows, err := t.pool.Query(ctx, `select name from unnest($1::text[]) name
		where not exists (select from pgque.queue where queue_name = name)`, exec, t.queues())
	if err != nil {
		return wrap(err, "look for the queues to tick")
	}
	missing, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(missing) > 0 {
		return fmt.Errorf("queue %q to tick: %w", missing[0], ErrQueueNotFound)
	}
	return wrap(err, "look for the queues to tick")
}

// settle looks at what may change while the ticker runs and bears on it: other
// schedulers, and the queues' ticker_max_lag.
func (t *Ticker) settle(ctx context.Context) error {
	ctx, cancel := withTimeout(ctx, 2*callTimeout)
	defer cancel()
	if err := t.lookForScheduler(ctx); err != nil {
		return wrap(err, "look for other schedulers")
	}
	if t.config.MaxLag > 0 {
		return wrap(t.setMaxLag(ctx), "set ticker_max_lag")
	}
	return wrap(t.warnOfMaxLag(ctx), "look at ticker_max_lag")
}

// lookForScheduler warns when PgQue's own schedule ticks this database too.
func (t *Ticker) lookForScheduler(ctx context.Context) error {
	name, err := scheduler(ctx, t.pool)
	if err != nil {
		return err
	}
	was := t.standing.Swap(name != "" && t.config.StandBy)
	switch {
	case name == "" && was:
		t.log.Info("ticker: no other scheduler any more, ticking")
	case name != "" && !t.warned["scheduler"]:
		t.warned["scheduler"] = true
		t.log.Warn("ticker: "+name+" is scheduled to tick this database too (see pgque.status()); run one of the two",
			"standing_by", t.config.StandBy, "fix", stopSQL(name))
	}
	return nil
}

// scheduler names what pgque.start() or pgque.start_timetable() has scheduled to
// tick the database, or "". The column came after PgQue 0.1.
func scheduler(ctx context.Context, db DB) (string, error) {
	var name string
	err := db.QueryRow(ctx, `select coalesce(to_jsonb(c) ->> 'scheduler', 'pg_cron')
		from pgque.config c where ticker_job_id is not null`, exec).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return name, err
}

func stopSQL(scheduler string) string {
	if scheduler == "pg_timetable" {
		return "select pgque.stop_timetable()"
	}
	return "select pgque.stop()"
}

// setMaxLag gives MaxLag to the queues that have another, one after the other.
func (t *Ticker) setMaxLag(ctx context.Context) error {
	lag := fmt.Sprintf("%d microseconds", max(t.config.MaxLag.Microseconds(), 1))
	rows, err := t.pool.Query(ctx, `select queue_name from pgque.queue
		where ($1::text[] is null or queue_name = any ($1)) and queue_ticker_max_lag <> $2::text::interval
		order by queue_name`, exec, t.queues(), lag)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		err := t.act(ctx, func(ctx context.Context, tx pgx.Tx) error {
			_, err := changeSetting(ctx, tx, name, "ticker_max_lag", lag)
			return err
		})
		if err != nil {
			return err
		}
		t.log.Info("ticker: ticker_max_lag set", "queue", name, "to", t.config.MaxLag)
	}
	return nil
}

// warnOfMaxLag names each queue whose own lag makes the ticker's period useless.
func (t *Ticker) warnOfMaxLag(ctx context.Context) error {
	rows, err := t.pool.Query(ctx, `select queue_name, extract(epoch from queue_ticker_max_lag)::numeric from pgque.queue
		where ($1::text[] is null or queue_name = any ($1)) and extract(epoch from queue_ticker_max_lag) > $2::float8
		order by queue_name`, exec, t.queues(), (t.config.Every / 2).Seconds())
	if err != nil {
		return err
	}
	var name string
	var lag float64
	_, err = pgx.ForEachRow(rows, []any{&name, &lag}, func() error {
		if key := "max_lag " + name; !t.warned[key] {
			t.warned[key] = true
			t.log.Warn("ticker: events wait longer for a tick than the ticker's period: set ticker_max_lag to half of it",
				"queue", name, "ticker_max_lag", seconds(lag), "period", t.config.Every)
		}
		return nil
	})
	return err
}
