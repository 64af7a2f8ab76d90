package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A dump restored into another cluster brings snapshots of transactions that this
// one has not had yet: no queue can be ticked. The fix loses nothing: neither what
// nobody had received before the dump, nor what was sent since the restore.
func TestDoctorRestored(t *testing.T) {
	t.Parallel()
	pgDump, psql := clientProgram(t, "pg_dump"), clientProgram(t, "psql")
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		old := newPatient(t, pgtest.NewServer(t, pgtest.Options{}), v, "--queue q --queue r --subscribe q/c --subscribe r/d")
		old.Exec(t, `do $$ begin for i in 1..20000 loop perform pg_current_xact_id(); commit; end loop; end $$`)
		old.sendNumbered("done")
		old.tick("q")
		old.Exec(t, `select pgque.finish_batch(pgque.next_batch('q', 'c'))`)
		old.nack(0) // it comes back on the new cluster
		old.sendNumbered("ticked")
		old.tick("q")
		old.tick("r")
		old.sendNumbered("not ticked")

		p := newPatient(t, pgtest.NewServer(t, pgtest.Options{}), v) // for the roles
		restored := p.Server.Database(t)
		dump := filepath.Join(t.TempDir(), "dump.sql")
		run := func(name string, args ...string) {
			t.Helper()
			if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
		}
		run(pgDump, "--file", dump, old.URL)
		run(psql, "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--file", dump, restored.URL)
		p.DB, p.url = restored, restored.URL
		p.wantHealthyBut("restored", "critical restored q; critical restored r")
		if _, err := p.Connect(t).Exec(t.Context(), "select pgque.ticker()"); err == nil || !strings.Contains(err.Error(), "Invalid PgQ state") {
			t.Errorf("ticker() = %v: this is no restored database", err)
		}
		p.sendNumbered("since the restore")
		p.Exec(t, `select pgque.maint_retry_events()`)
		p.send("r", 3)

		p.mend("restored", nil, 0)
		p.wantHealthyBut("restored", "")
		got := p.receiveAll("q", "c")
		slices.Sort(got)
		want := []string{`{}`}
		for _, when := range []string{"not ticked", "since the restore", "ticked"} {
			for _, n := range []string{"1", "2", "3"} {
				want = append(want, `{"n": "`+when+" "+n+`"}`)
			}
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("after the fix these came:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got := p.receiveAll("r", "d"); len(got) != 3 {
			t.Errorf("of the other queue's 3 events came %q", got)
		}
	})
}

// Numbers of an old cluster that was far ahead would take too long to use up: the
// queue is dropped and made again, and the finding says what that loses.
func TestDoctorRestoredFromFarAhead(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		t.Parallel()
		p := newPatient(t, pgtest.NewServer(t, pgtest.Options{}), v, "--queue q --subscribe q/c")
		p.send("q", 3)
		p.tick("q")
		p.Exec(t, `update pgque.tick set tick_snapshot = '300000000:300000000:'`) // as a dump brings it
		p.wantHealthyBut("restored", "critical restored q")
		f := p.doctor().finding("restored")
		if len(f.Fix) != 2 || f.Fix[0].When == "" {
			t.Fatalf("fix: %+v, want to drop the queue, with what that costs, and to make it again", f.Fix)
		}
		p.mend("restored", nil, 0, 1)
		p.Exec(t, `select pgque.subscribe('q', 'c')`)
		p.send("q", 3)
		if got := p.receiveAll("q", "c"); len(got) != 3 {
			t.Errorf("of 3 events sent since came %q", got)
		}
	})
}

// receiveAll ticks a queue and gives the payloads of all that its consumer gets.
func (p *patient) receiveAll(queue, consumer string) (payloads []string) {
	p.t.Helper()
	p.tick(queue)
	for {
		batch := p.Value(p.t, "select pgque.next_batch('"+queue+"', '"+consumer+"')")
		if batch == "" {
			return payloads
		}
		if all := p.Value(p.t, "select string_agg(ev_data, '|') from pgque.get_batch_events("+batch+")"); all != "" {
			payloads = append(payloads, strings.Split(all, "|")...)
		}
		p.Exec(p.t, "select pgque.finish_batch("+batch+")")
	}
}

// wantHealthyBut compares the findings of one code.
func (p *patient) wantHealthyBut(code, want string) {
	p.t.Helper()
	var got []string
	for _, f := range p.doctor().Findings {
		if f.Code == code {
			got = append(got, strings.TrimRight(f.Severity+" "+f.Code+" "+f.Queue, " "))
		}
	}
	if s := strings.Join(got, "; "); s != want {
		p.t.Fatalf("%s: %q, want %q", code, s, want)
	}
}

// sendNumbered sends three events to q that say when they were sent.
func (p *patient) sendNumbered(when string) {
	p.t.Helper()
	for _, n := range []string{"1", "2", "3"} {
		p.Exec(p.t, `select pgque.send('q', 't', '{"n": "`+when+" "+n+`"}'::jsonb)`)
	}
}

// clientProgram finds a program that comes with PostgreSQL.
func clientProgram(t *testing.T, name string) string {
	t.Helper()
	if dir := os.Getenv("PGQUE_TEST_PG_BIN"); dir != "" {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatalf("%s is missing: %v", name, err)
	}
	t.Skipf("%s is missing, so no dump can be restored: %v", name, err)
	return ""
}
