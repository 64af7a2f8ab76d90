package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// Each trap is set up in a real database; only time is helped along. Doctor sees
// it, and the fix that it prints, run as printed, ends it.
func TestDoctorTraps(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{})
	traps := []struct {
		name string
		trap func(t *testing.T, p *patient)
	}{
		{"no ticker", func(t *testing.T, p *patient) {
			p.send("q", 2)
			if got := p.doctor().summary(); got != "critical no-tick q" {
				t.Fatal(got)
			}
			p.mend("no-tick", nil, 0)
			p.wantHealthy()
		}},
		{"no ticker, and nothing sent", func(t *testing.T, p *patient) {
			p.later("tick", "tick_time", "15 minutes")
			if got := p.doctor().summary(); got != "critical no-tick" {
				t.Fatal(got)
			}
			p.mend("no-tick", nil, 0)
		}},
		{"step 2 forgotten", func(t *testing.T, p *patient) {
			p.later("queue", "queue_switch_time", "3 hours")
			p.Exec(t, `select pgque.unsubscribe('q', 'c')`)
			p.Exec(t, `select pgque.maint()`)
			p.tick("q") // a rotation may take all ticks of a queue, as far as transactions
			p.tick("r") // elsewhere on the server let it
			p.later("queue", "queue_switch_time", "3 minutes")
			if got := p.doctor().summary(); got != "critical step2-overdue q; critical step2-overdue r" {
				t.Fatal(got)
			}
			p.mend("step2-overdue", nil, 0)
		}},
		{"a consumer never receives and pins rotation", func(t *testing.T, p *patient) {
			p.send("q", 2)
			p.tick("q")
			p.later("queue", "queue_switch_time", "3 hours")
			p.later("subscription", "sub_active", "3 hours")
			p.Exec(t, `select pgque.maint()`)
			p.Exec(t, `select pgque.maint_rotate_tables_step2()`)
			p.tick("r")
			if got := p.doctor().summary(); got != "critical rotation-pinned q c" {
				t.Fatal(got)
			}
			p.mend("rotation-pinned", nil, 1)
			p.mend("rotation-overdue", nil, 0)
			p.tick("q") // the rotation may have taken the last tick just before the ticker ended
			p.tick("r")
			p.wantHealthy()
		}},
		{"a batch is never acked", func(t *testing.T, p *patient) {
			p.send("q", 2)
			p.tick("q")
			p.Exec(t, `select pgque.next_batch('q', 'c')`)
			p.later("subscription", "sub_active", "20 minutes")
			if got := p.doctor().summary(); got != "warning batch-open q c" {
				t.Fatal(got)
			}
			p.during("pgque-vendor consume q c --print", func() {
				p.within("a consumer to go on", func() bool { return p.doctor().finding("batch-open") == nil })
			})
		}},
		{"nobody receives", func(t *testing.T, p *patient) {
			p.later("tick", "tick_time", "20 minutes")
			p.later("subscription", "sub_active", "20 minutes")
			p.send("q", 2)
			p.tick("q")
			p.tick("r")
			if got := p.doctor().summary(); got != "warning not-receiving q c" {
				t.Fatal(got)
			}
			p.mend("not-receiving", nil, 1)
			p.wantHealthy()
		}},
		{"retries are not moved", func(t *testing.T, p *patient) {
			p.nack(0)
			p.later("retry_queue", "ev_retry_after", "5 minutes")
			if got := p.doctor().summary(); got != "critical retry-backlog q" {
				t.Fatal(got)
			}
			p.mend("retry-backlog", nil, 0)
			p.wantHealthy()
		}},
		{"dead letters", func(t *testing.T, p *patient) {
			p.Exec(t, `select pgque.set_queue_config('q', 'max_retries', '0')`)
			p.nack(0)
			if got := p.doctor().summary(); got != "warning dead-letters q c" {
				t.Fatal(got)
			}
			p.mend("dead-letters", nil, 0, 1)
			if got := p.Value(t, "select count(*) from pgque.retry_queue"); got != "1" {
				t.Errorf("%s events came back", got)
			}
			p.Exec(t, `insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, ev_id, ev_time) select sub_queue, sub_consumer, 7, now() from pgque.subscription`)
			p.mend("dead-letters", nil, 2)
			p.wantHealthy()
		}},
		{"ticker_max_lag", func(t *testing.T, p *patient) {
			p.Exec(t, `select pgque.set_queue_config('q', 'ticker_max_lag', '3 s')`)
			if r := p.doctor(); r.summary() != "note max-lag q" || !r.Healthy {
				t.Errorf("without --max-latency: %s", r.summary())
			}
			latency := []string{"--max-latency", "500ms"}
			if got := p.doctor(latency...).summary(); got != "warning max-lag q" {
				t.Fatal(got)
			}
			p.mend("max-lag", latency, 0)
			p.wantHealthy(latency...)
		}},
		{"a changed function", func(t *testing.T, p *patient) {
			p.Exec(t, `do $$ begin execute replace(pg_get_functiondef('pgque.ticker(text)'::regprocedure), 'begin', 'begin perform 1;'); end $$`)
			r := p.doctor()
			if f := r.finding("functions-differ"); r.summary() != "warning functions-differ" || !strings.Contains(f.Text, "pgque.ticker(i_queue_name text) differs from the file") {
				t.Fatalf("%+v", r)
			}
			p.mend("functions-differ", nil, 0)
			p.wantHealthy()
		}},
		{"functions open to all", func(t *testing.T, p *patient) {
			p.Exec(t, `grant execute on all functions in schema pgque to public`)
			r := p.doctor()
			if f := r.finding("open-rights"); r.summary() != "warning open-rights" || !strings.Contains(f.Text, "PUBLIC may execute pgque.") {
				t.Fatalf("%+v", r)
			}
			p.mend("open-rights", nil, 0)
			p.wantHealthy()
		}},
		{"two tickers", twoTickers},
		{"pg_cron beside us", cronBesideUs},
	}
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		for _, trap := range traps {
			t.Run(trap.name, func(t *testing.T) {
				t.Parallel()
				p := newPatient(t, server, v, "--queue q --queue r --subscribe q/c")
				trap.trap(t, p)
			})
		}
	})
}

// later makes what a column says older.
func (p *patient) later(table, column, age string) {
	p.t.Helper()
	p.Exec(p.t, "update pgque."+table+" set "+column+" = "+column+" - interval '"+age+"'")
}

func (p *patient) send(queue string, n int) {
	p.t.Helper()
	for range n {
		p.Exec(p.t, "select pgque.send('"+queue+"', 't', '{}'::jsonb)")
	}
}

func (p *patient) tick(queue string) {
	p.t.Helper()
	p.Exec(p.t, "select pgque.force_tick('"+queue+"')")
	p.Exec(p.t, "select pgque.ticker('"+queue+"')")
}

// nack has consumer c of q fail one event.
func (p *patient) nack(seconds int) {
	p.t.Helper()
	p.send("q", 1)
	p.tick("q")
	p.Exec(p.t, `do $$ declare m pgque.message; begin
		select * into m from pgque.receive('q', 'c', 10);
		perform pgque.nack(m.batch_id, m, make_interval(secs => `+string(rune('0'+seconds))+`), 'no');
		perform pgque.ack(m.batch_id); end $$`)
}

// twoTickers is the users' own loop, run twice: each calls pgque.ticker() without a
// lock, so snapshots get into the ticks in the wrong order.
func twoTickers(t *testing.T, p *patient) {
	p.Exec(t, `select pgque.set_queue_config('q', 'ticker_max_lag', '1 ms'), pgque.set_queue_config('q', 'ticker_max_count', '1'), pgque.set_queue_config('r', 'ticker_paused', 'true')`)
	ctx, stop := context.WithCancel(t.Context())
	var loops sync.WaitGroup
	loop := func(sql string) {
		conn := p.Connect(t)
		loops.Go(func() {
			for ctx.Err() == nil {
				_, _ = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
			}
		})
	}
	for range 4 {
		loop("select pgque.ticker()")
		loop("select pgque.send('q', 't', '{}'::jsonb)")
	}
	p.within("ticks out of order", func() bool { return p.doctor().finding("tick-order") != nil })
	f := p.doctor().finding("tick-order")
	var named bool
	for _, fix := range f.Fix {
		named = named || strings.Contains(fix.Text, "from 127.0.0.1")
	}
	if f.Severity != "critical" || !strings.Contains(f.Fix[0].Text, "stop every ticker that is not pgque-vendor's") || !named {
		t.Errorf("%+v", f)
	}
	stop() // which is the fix
	loops.Wait()
	// One that has the lock may go on meanwhile.
	p.during("pgque-vendor ticker --queue q", func() {
		f := p.doctor().finding("tick-order")
		if f == nil || f.Severity != "critical" || f.Clears <= 0 || f.Clears > 60 && f.Age < 1 {
			t.Fatalf("right after the fix: %+v", f)
		}
		p.later("tick", "tick_time", fmt.Sprintf("%f seconds", f.Clears))
		r := p.doctor()
		if f := r.finding("tick-order"); !r.Healthy || f == nil || f.Severity != "note" || !strings.Contains(f.Text, "none since") {
			t.Errorf("after the time that was said: %+v", r)
		}
		p.later("tick", "tick_time", "1 hour")
		p.within("the end of the note", func() bool { return p.doctor().summary() == "note paused r" })
	})
}

// cronBesideUs: pg_cron itself is not on every machine, so its schema is made here,
// with the functions that PgQue calls (B095). What doctor reads, PgQue's own start()
// has written; the stand-in has none, so there the job is made by hand.
func cronBesideUs(t *testing.T, p *patient) {
	p.Exec(t, `create schema cron; create table cron.job (jobid bigserial, jobname text, schedule text, command text, database text, active boolean default true);
		create function cron.schedule_in_database(n text, s text, c text, d text) returns bigint language sql as $$ insert into cron.job (jobname, schedule, command, database) values (n, s, c, d) returning jobid $$;
		create function cron.unschedule(id bigint) returns boolean language sql as $$ delete from cron.job where jobid = id; select true $$;
		create function cron.unschedule(n text) returns boolean language sql as $$ delete from cron.job where jobname = n; select true $$;
		grant usage on schema cron to public; grant all on cron.job to public; grant all on sequence cron.job_jobid_seq to public`)
	if strings.Contains(p.t.Name(), "standin") {
		p.Exec(t, `select cron.schedule_in_database('tick', '1 second', 'select pgque.ticker()', current_database())`)
	} else {
		p.Exec(t, `set allow_system_table_mods = on; insert into pg_extension values (99999, 'pg_cron', 10, 'cron'::regnamespace, false, '1.6')`)
		p.Exec(t, `select pgque.start()`)
	}
	if r := p.doctor(); r.summary() != "note other-scheduler" || !r.Healthy {
		t.Errorf("pg_cron alone is a healthy system: %s", r.summary())
	}
	p.during("pgque-vendor ticker", func() {
		p.within("warning", func() bool { return p.doctor().summary() == "warning other-scheduler" })
		plain := *p
		plain.url = p.URLAs(p.Role(t))
		if f := plain.doctor().finding("other-scheduler"); f == nil || f.Severity != "warning" {
			t.Errorf("a login without a role does not see both: %+v", f)
		}
		p.mend("other-scheduler", nil, 0)
		p.wantHealthy()
	})
	if got := p.Value(t, "select count(*) from cron.job"); got != "0" {
		t.Errorf("%s jobs are still scheduled", got)
	}
}

// An install that a superuser owns gets an owner who cannot log in. Who is a member
// of pgque_admin is the whole server's.
func TestDoctorInstalls(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		server := pgtest.NewServer(t, pgtest.Options{})
		p := emptyPatient(t, server, v)
		p.Install(t, v)
		p.wantHealthy()
		app := p.Role(t)
		p.Exec(t, "grant pgque_admin to "+app)
		if got := p.doctor().summary(); got != "warning superuser-owned" {
			t.Fatal(got)
		}
		p.mend("superuser-owned", nil, 0, 1, 2, 3)
		p.wantHealthy()
	})
}

// A database that is behind the vendored SQL is brought up; one that is ahead of it
// is not taken back.
func TestDoctorReleases(t *testing.T) {
	t.Parallel()
	v := pgtest.Standin()
	p := newPatient(t, pgtest.NewServer(t, pgtest.Options{}), v)
	newer := bytes.ReplaceAll(v.SQL, []byte("'"+v.Version+"'"), []byte("'0.9.0'"))
	if bytes.Equal(newer, v.SQL) {
		t.Fatal("the stand-in does not say its version")
	}
	writeVendored(t, p.dir, newer, "v0.9.0")
	r := p.doctor()
	if f := r.finding("functions-differ"); r.summary() != "warning functions-differ" || f.Text != "the database has v0.2.0 and the vendored SQL is v0.9.0" {
		t.Fatalf("%+v", r)
	}
	p.mend("functions-differ", nil, 0)
	p.wantHealthy()
	writeVendored(t, p.dir, v.SQL, v.Tag)
	r = p.doctor()
	if f := r.finding("functions-differ"); f == nil || !strings.Contains(f.Text, "the file is the older v0.2.0") || !strings.HasPrefix(f.Fix[0].Text, "pgque-vendor update v0.9.0 --dir ") {
		t.Errorf("%+v", r)
	}

	// A command with a comment has its flags before that.
	writeVendored(t, p.dir, bytes.ReplaceAll(newer, []byte("'0.9.0'"), []byte("'0.9.1'")), "v0.9.1")
	p.Exec(t, `create or replace function pgque.version() returns text language sql security definer set search_path = pgque, pg_catalog as $$ select 'mine' $$`)
	p.mend("functions-differ", nil, 1)
	p.wantHealthy()

	// Two SQL files of one tag are told apart by their paths.
	if os.Getenv("PGQUE_UPSTREAM_GIT") != "" {
		stable, devel := pgtest.Real(t, "v0.2.0"), pgtest.Real(t, "v0.3.0-alpha.1")
		q := emptyPatient(t, pgtest.NewServer(t, pgtest.Options{}), stable)
		writeVendored(t, q.dir, stable.SQL, devel.Tag)
		q.shell("pgque-vendor bootstrap --no-grant --dir " + shellQuote(q.dir))
		writeVendored(t, q.dir, devel.SQL, devel.Tag)
		source := filepath.Join(q.dir, "SOURCE.json")
		data, err := os.ReadFile(source)
		if err == nil {
			err = os.WriteFile(source, bytes.ReplaceAll(data, []byte(stable.Path), []byte(devel.Path)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := `the database has "sql/pgque.sql" of v0.3.0-alpha.1 and the vendored SQL is "devel/sql/pgque.sql"`
		if f := q.doctor().finding("functions-differ"); f == nil || f.Text != want {
			t.Errorf("%+v", f)
		}
	}

	// What cannot be compared is said, and no finding.
	if err := os.Remove(filepath.Join(p.dir, "pgque.sql")); err != nil {
		t.Fatal(err)
	}
	if r := p.doctor(); !r.Healthy || r.summary() != "note vendored-files" || r.ComparedWith != "" {
		t.Errorf("without the file: %+v", r)
	}
	p.dir = filepath.Join(p.dir, "nowhere")
	if r := p.doctor(); !r.Healthy || r.summary() != "" || r.ComparedWith != "" {
		t.Errorf("without the folder: %+v", r)
	}
}
