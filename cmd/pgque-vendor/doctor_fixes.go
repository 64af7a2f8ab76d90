package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/events"
)

// remedy is one step that mends a finding. Steps follow one another, except that
// one with a When is for that case only.
type remedy struct {
	When string `json:"when,omitempty"`
	Kind string `json:"kind"` // command (of a shell), sql (as a member of pgque_admin, unless the text says otherwise), advice
	Text string `json:"text"`
}

func sqlFix(format string, args ...any) remedy {
	return remedy{Kind: "sql", Text: strings.TrimSuffix(fmt.Sprintf(format, args...), ";") + ";"}
}

func (x *examination) commandFix(format string, args ...any) remedy {
	return remedy{Kind: "command", Text: x.again("pgque-vendor " + fmt.Sprintf(format, args...))}
}

func adviceFix(text string) remedy { return remedy{Kind: "advice", Text: text} }

func (r remedy) inCase(when string) remedy {
	r.When = when
	return r
}

// remedies says how to mend a finding here: what is right depends on the server.
func (x *examination) remedies(ctx context.Context, f *events.Finding) ([]remedy, error) {
	queue, consumer := sqlText(f.Queue), sqlText(f.Consumer)
	switch f.Code {
	case events.CodeNoTick, events.CodeRotation, events.CodeRetries:
		return []remedy{x.commandFix("ticker").inCase("keep one running")}, nil
	case events.CodeStep2:
		return []remedy{sqlFix("select pgque.maint_rotate_tables_step2()"), x.commandFix("ticker").inCase("keep one running, it never forgets")}, nil
	case events.CodePinned, events.CodeNotReceiving, events.CodeBatchOpen:
		return []remedy{
			adviceFix(fmt.Sprintf("start the process of consumer %q again", f.Consumer)),
			sqlFix("select pgque.unsubscribe(%s, %s)", queue, consumer).inCase("if it is gone for good; what it has not done is lost, its retries too"),
		}, nil
	case events.CodeTickOrder:
		return x.oneTicker(ctx, f)
	case events.CodeRestored:
		return x.catchUp(ctx, f)
	case events.CodeDeadLetters:
		which := fmt.Sprintf(" --queue %s --consumer %s", shellQuote(f.Queue), shellQuote(f.Consumer))
		return []remedy{
			x.commandFix("dlq list%s", which),
			x.commandFix("dlq replay%s --yes", which).inCase("when the cause is mended"),
			x.commandFix("dlq purge%s --yes", which).inCase("if nobody needs them"),
		}, nil
	case events.CodeSuperuserOwned:
		return x.ownership(ctx)
	case events.CodeNotVisible:
		return []remedy{sqlFix("grant pgque_reader to %s", pgx.Identifier{x.login}.Sanitize())}, nil
	case codeFunctions, codeRelease:
		var fixes []remedy
		for hint := range strings.Lines(f.Fix) {
			if hint = strings.TrimSpace(hint); strings.HasPrefix(hint, "pgque-vendor ") {
				fixes = append(fixes, remedy{Kind: "command", Text: x.again(hint)})
			} else {
				fixes = append(fixes, adviceFix(hint))
			}
		}
		return fixes, nil
	case codeVendored:
		return []remedy{x.commandFix("status")}, nil
	}
	if command, ok := strings.CutPrefix(f.Fix, "pgque-vendor "); ok {
		return []remedy{x.commandFix("%s", command)}, nil
	}
	return []remedy{sqlFix("%s", f.Fix)}, nil
}

// oneTicker: whoever ticks without our lock has to stop. Who that is can be told from
// sessions that this login may see, and that have just ticked.
func (x *examination) oneTicker(ctx context.Context, f *events.Finding) ([]remedy, error) {
	if f.Severity == events.Note {
		return []remedy{adviceFix(f.Fix)}, nil
	}
	fixes := []remedy{adviceFix("stop every ticker that is not pgque-vendor's, such as a loop that calls pgque.ticker()")}
	for _, f := range x.found {
		if f.Code == events.CodeScheduler {
			fixes = append(fixes, sqlFix("%s", f.Fix))
		}
	}
	rows, err := x.conn.Query(ctx, `
		select format('session %s, application %s, login %s, from %s', pid, to_json(application_name), to_json(usename::text), coalesce(client_addr::text, 'a local socket'))
		  from pg_stat_activity
		 where datname = current_database() and pid <> pg_backend_pid() and query_start > now() - interval '1 minute'
		   and query ~* '(ticker|force_tick) *[(]' and query !~* 'pg_try_advisory_xact_lock|application_name'
		 order by pid limit 10`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, err
	}
	sessions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, session := range sessions {
		fixes = append(fixes, adviceFix(session).inCase("one that ticks without the lock"))
	}
	return append(fixes, adviceFix(fmt.Sprintf("look again after %s; when no other tick came out of order, it is over", (f.Clears+time.Second).Truncate(time.Second)))), err
}

// maxCatchUp is the most transactions that a restored queue is helped with: about
// twenty-five minutes.
const maxCatchUp = 100_000_000

// catchUp mends queues whose state is from another cluster. Their snapshots hold
// that cluster's transaction numbers, which are ahead of this one's, so that no tick
// can follow. Using up the numbers in between loses nothing: from there on the old
// snapshots are right again. Events that were sent here meanwhile have numbers that
// the old snapshots take for done, and get a new one. That is one fix for all queues:
// once the numbers are used up none of them looks restored any more.
func (x *examination) catchUp(ctx context.Context, f *events.Finding) ([]remedy, error) {
	var ahead int64
	var renumber strings.Builder
	for _, other := range x.found {
		if other.Code != events.CodeRestored {
			continue
		}
		n, sql, err := x.restoredQueue(ctx, other.Queue)
		if err != nil {
			return nil, err
		}
		ahead = max(ahead, n)
		renumber.WriteString(sql)
	}
	drop := sqlFix("select pgque.drop_queue(%s, true)", sqlText(f.Queue))
	if ahead > maxCatchUp {
		return []remedy{drop.inCase("its undelivered events and dead letters are lost"), x.commandFix("bootstrap --no-grant --queue %s", shellQuote(f.Queue))}, nil
	}
	takes := max(time.Duration(ahead)*15*time.Microsecond, time.Second).Round(time.Second)
	return []remedy{
		sqlFix("do $$ begin for i in 1..%d loop perform pg_current_xact_id(); commit; end loop;%s end $$", ahead, renumber.String()).
			inCase(fmt.Sprintf("for all queues at once, nothing is lost; as the owner of schema pgque or a superuser, about %s", inWords(takes))),
		drop.inCase("or, if it may be lost with its events and dead letters"),
	}, nil
}

// restoredQueue says how many transactions a restored queue is ahead, and gives the
// SQL that renumbers the events that came into it since: those above its last tick,
// and retries, which keep their event number; both were written by the transaction
// whose number they have, not by the one that restored the dump.
func (x *examination) restoredQueue(ctx context.Context, name string) (ahead int64, renumber string, err error) {
	var queue, tick, newest int64
	var table string
	err = x.conn.QueryRow(ctx, `
		select q.queue_id, q.queue_data_pfx, t.tick_id,
		       greatest(pg_snapshot_xmax(t.tick_snapshot)::text::bigint, q.queue_switch_step1, q.queue_switch_step2)
		       - pg_snapshot_xmax(pg_current_snapshot())::text::bigint
		  from pgque.queue q join lateral (
		       select * from pgque.tick where tick_queue = q.queue_id
		        order by pg_snapshot_xmax(tick_snapshot)::text::bigint desc, tick_id desc limit 1) t on true
		 where q.queue_name = $1`, pgx.QueryExecModeSimpleProtocol, name).Scan(&queue, &table, &tick, &ahead)
	if err != nil {
		return 0, "", err
	}
	if !regexp.MustCompile(`^pgque\.event_[0-9]+$`).MatchString(table) {
		return 0, "", fmt.Errorf("queue %q has its events in %q, which is no table of PgQue's", name, table)
	}
	// An event that came after the last tick can be further ahead.
	err = x.conn.QueryRow(ctx, "select coalesce((select ev_txid::text::bigint from "+table+" order by ev_txid desc limit 1), 0) - pg_snapshot_xmax(pg_current_snapshot())::text::bigint",
		pgx.QueryExecModeSimpleProtocol).Scan(&newest)
	return max(ahead, newest) + 1, fmt.Sprintf(` update %s e set ev_txid = pg_current_xact_id() from pgque.tick where tick_queue = %d and tick_id = %d and pg_visible_in_snapshot(ev_txid, tick_snapshot) `+
		`and (ev_id > tick_event_seq or e.xmin::text::bigint = (ev_txid::text::bigint & 4294967295));`, table, queue, tick), err
}

// ownership gives an install that belongs to a superuser an owner who cannot log
// in. A superuser's bootstrap then moves all that is in the schema.
func (x *examination) ownership(ctx context.Context) ([]remedy, error) {
	var exists bool
	err := x.conn.QueryRow(ctx, "select exists (select from pg_roles where rolname = 'pgque_owner')", pgx.QueryExecModeSimpleProtocol).Scan(&exists)
	var fixes []remedy
	if !exists {
		fixes = append(fixes, sqlFix("create role pgque_owner nologin"))
	}
	return append(fixes,
		sqlFix("grant create, temporary on database %s to pgque_owner", pgx.Identifier{x.database}.Sanitize()),
		sqlFix("alter schema pgque owner to pgque_owner"),
		x.commandFix("bootstrap --no-grant").inCase("as a superuser")), err
}

// sqlText writes a string as SQL does.
func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
