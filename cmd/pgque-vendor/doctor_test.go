package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// patient is a system that doctor looks at: a database on a server of the test's
// own, since memberships in PgQue's roles are the whole server's.
type patient struct {
	*pgtest.DB
	t   *testing.T
	dir string // the vendored folder
	url string // whom doctor connects as; the superuser at first
}

// newPatient bootstraps a database as a user does.
func newPatient(t *testing.T, server *pgtest.Postgres, v pgtest.Variant, bootstrap ...string) *patient {
	t.Helper()
	p := emptyPatient(t, server, v)
	p.shell("pgque-vendor bootstrap --no-grant --dir " + shellQuote(p.dir) + " " + strings.Join(bootstrap, " "))
	p.idlePeriod("10 minutes") // so that no tick gets late because the machine is slow
	return p
}

func (p *patient) idlePeriod(period string) {
	p.t.Helper()
	p.Exec(p.t, "select pgque.set_queue_config(queue_name, 'ticker_idle_period', '"+period+"') from pgque.queue")
}

func emptyPatient(t *testing.T, server *pgtest.Postgres, v pgtest.Variant) *patient {
	t.Helper()
	db := server.Database(t)
	p := &patient{DB: db, t: t, dir: filepath.Join(t.TempDir(), "vendor", "pgque"), url: db.URL}
	writeVendored(t, p.dir, v.SQL, v.Tag)
	return p
}

// command is a shell's, run in the patient's environment.
func (p *patient) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+text)
	cmd.Env = append(os.Environ(), "PGQUE_VENDOR_DATABASE_URL="+p.url, "PGQUE_VENDOR_ALLOW_STANDIN=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 3 * time.Minute
	return cmd
}

func (p *patient) shell(text string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Minute)
	defer cancel()
	if out, err := p.command(ctx, text).CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", text, err, out)
	}
}

// during runs a command that goes on, as long as do takes.
func (p *patient) during(text string, do func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	cmd := p.command(ctx, text)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	do()
	cancel()
	_ = cmd.Wait()
	if p.t.Failed() {
		p.t.Logf("%s\n%s", text, out.String())
	}
}

func (p *patient) doctor(flags ...string) *doctorReport {
	p.t.Helper()
	out, talk, code := runCommand(p.t, map[string]string{"PGQUE_VENDOR_DATABASE_URL": p.url, "PGQUE_VENDOR_ALLOW_STANDIN": "1"},
		append([]string{"doctor", "--json", "--timeout", "3m", "--dir", p.dir}, flags...)...)
	var r doctorReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		p.t.Fatalf("doctor: exit %d, %v\n%s%s", code, err, out, talk)
	}
	if r.Schema != 1 || r.Healthy != (code == 0) || code > 1 {
		p.t.Errorf("doctor: schema %d, healthy %t, exit %d", r.Schema, r.Healthy, code)
	}
	for _, f := range r.Findings {
		if f.Text == "" || len(f.Fix) == 0 {
			p.t.Errorf("a finding without text or fix: %+v", f)
		}
	}
	return &r
}

// finding is the one of a code, or nil.
func (r *doctorReport) finding(code string) *doctorLine {
	for i := range r.Findings {
		if r.Findings[i].Code == code {
			return &r.Findings[i]
		}
	}
	return nil
}

// summary is severity and code of each finding.
func (r *doctorReport) summary() string {
	var list []string
	for _, f := range r.Findings {
		list = append(list, strings.TrimRight(f.Severity+" "+f.Code+" "+f.Queue+" "+f.Consumer, " "))
	}
	return strings.Join(list, "; ")
}

// mend runs steps of a finding's fix as they were printed, until doctor finds it
// no more: SQL as the superuser, commands in a shell.
func (p *patient) mend(code string, flags []string, steps ...int) {
	p.t.Helper()
	f := p.doctor(flags...).finding(code)
	if f == nil {
		p.t.Fatalf("no finding %s", code)
	}
	gone := func() bool { return p.doctor(flags...).finding(code) == nil }
	for _, i := range steps {
		fix := f.Fix[i]
		switch {
		case fix.Kind == "sql":
			p.Exec(p.t, fix.Text)
		case fix.Kind == "command" && strings.HasPrefix(fix.Text, "pgque-vendor ticker"):
			p.during(fix.Text, func() {
				p.within("end of "+code, func() bool { return gone() && p.doctor(flags...).finding("no-tick") == nil })
			})
		case fix.Kind == "command":
			p.shell(fix.Text)
		default:
			p.t.Fatalf("step %d of %+v cannot be run", i, f)
		}
	}
	if !gone() {
		p.t.Errorf("%s is still there after its fix: %s", code, p.doctor(flags...).summary())
	}
}

// within waits for what must come about, for longer than a busy machine takes.
func (p *patient) within(what string, done func() bool) {
	p.t.Helper()
	const patience = 3 * time.Minute
	for end := time.Now().Add(patience); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Errorf("%s: not within %s", what, patience)
			return
		}
	}
}

func (p *patient) wantHealthy(flags ...string) {
	p.t.Helper()
	if got := p.doctor(flags...).summary(); got != "" {
		p.t.Errorf("findings on a healthy system: %s", got)
	}
}

// A system that was just installed, is idle, or is at work has no finding.
func TestDoctorHealthy(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{})
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		p := newPatient(t, server, v)
		p.wantHealthy()
		p = newPatient(t, server, v, "--queue q --queue r --subscribe q/c")
		r := p.doctor()
		if got := r.summary(); got != "" || r.Queues != 2 || r.Consumers != 1 || r.ComparedWith != v.Tag {
			t.Errorf("just installed: %+v", r)
		}
		p.during("pgque-vendor ticker", func() {
			p.shell("pgque-vendor publish q t 1")
			p.shell("pgque-vendor publish q t 2")
			p.within("health", func() bool { return p.doctor("--max-latency", "200ms").summary() == "" })
		})
		// A slow ticker: whenever one looks, events wait and the last tick is old.
		p.Exec(t, `select pgque.set_queue_config('q', 'ticker_max_lag', '1 ms')`)
		p.during("pgque-vendor ticker --every 1s", func() {
			ctx, stop := context.WithCancel(t.Context())
			conn := p.Connect(t)
			var sender sync.WaitGroup
			sender.Go(func() {
				for ctx.Err() == nil {
					_, _ = conn.Exec(ctx, `select pgque.send('q', 't', '{}'::jsonb), pg_sleep(0.001)`)
				}
			})
			for range 2 {
				p.within("health with a slow ticker", func() bool { return p.doctor("--tick-every", "1s").Healthy })
			}
			stop()
			sender.Wait()
		})
		p.Exec(t, `select pgque.unsubscribe('q', 'c'), pgque.subscribe('q', 'c')`)
		p.tick("q")
		// An hour of nothing: a tick each minute.
		p.idlePeriod("1 minute")
		p.Exec(t, `update pgque.tick set tick_time = now() - interval '20 seconds' - (select max(tick_id) - tick.tick_id from pgque.tick m where m.tick_queue = tick.tick_queue) * interval '1 minute'`)
		p.Exec(t, `update pgque.subscription set sub_active = now() - interval '20 seconds'`)
		p.wantHealthy()
	})
}

// It works with the least privilege, says what it could not see, and what to do.
func TestDoctorSeesWhatItMay(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{})
	p := newPatient(t, server, pgtest.Standin(), "--queue q --subscribe q/c")
	login := p.Role(t)
	p.url = p.URLAs(login)
	if got := p.doctor().summary(); got != "warning missing-grant; note not-visible; note not-visible" {
		t.Errorf("without a role: %s", got)
	}
	p.shell("true") // publishing needs a role; the superuser sends
	p.Exec(t, `select pgque.send('q', 't', '1'::jsonb), pgque.send('q', 't', '2'::jsonb)`)
	if p.doctor().finding("no-tick") == nil {
		t.Error("without a role it does not see that nobody ticks")
	}
	p.mend("missing-grant", nil, 0)
	p.Exec(t, "revoke pgque_admin from "+login)
	p.mend("not-visible", nil, 0)
	p.Exec(t, "revoke pgque_reader from "+login+"; revoke select on pgque.queue from public")
	if got := p.doctor(); got.finding("not-visible") == nil || got.Queues != 0 {
		t.Errorf("with nothing to see: %+v", got)
	}

	p.url = p.URL
	app := p.Role(t, "noinherit")
	p.Exec(t, "grant pgque_admin to "+app)
	p.mend("missing-grant", []string{"--role", app}, 0)

	// Restored from a dump without privileges, where the role itself has no rights.
	p.Exec(t, `set allow_system_table_mods = on; update pg_namespace set nspacl = null where nspname = 'pgque'`)
	app = p.Role(t)
	p.Exec(t, "grant pgque_admin to "+app)
	p.mend("missing-grant", []string{"--role", app}, 0)

	out, talk, code := runCommand(t, map[string]string{"DATABASE_URL": p.URL}, "doctor", "--role", "nobody_here")
	if code != 2 || !strings.Contains(talk, `role "nobody_here" does not exist`) {
		t.Errorf("unknown role: exit %d: %s%s", code, out, talk)
	}
}

// As a health check it ends, whatever the network does (B041): at its limit where
// nothing answers, and after one try where the answer is no.
func TestDoctorEndsInTime(t *testing.T) {
	t.Parallel()
	p := newPatient(t, pgtest.Server(t), pgtest.Standin())
	proxy := pgtest.Proxy(t, p.Server.Address())
	proxy.Silence(pgtest.Both)
	for _, test := range []struct{ timeout, url, want string }{
		{"1s", proxy.URL(t, p.URL), "the time limit (--timeout 1s) was over"},
		{"1h", "postgres://u@127.0.0.1:1/d", "refused"},
	} {
		_, talk, code := runCommand(t, map[string]string{"DATABASE_URL": test.url}, "doctor", "--timeout", test.timeout)
		if code != 4 || !strings.Contains(talk, test.want) {
			t.Errorf("exit %d: %s", code, talk)
		}
	}
}

func TestDoctorOnAStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.Options{})
	p := newPatient(t, server, pgtest.Standin(), "--queue q --subscribe q/c")
	standby := server.Standby(t)
	p.send("q", 2)
	server.CatchUp(t, standby)
	p.url = standby.URL(p.Name, "")
	if r := p.doctor(); r.summary() != "" || !r.InRecovery || r.Queues != 1 {
		t.Errorf("%+v", r)
	}
}
