package bootstrap

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// with makes a variant's SQL another release: the same, with one function more.
func with(v pgtest.Variant, tag, body string) File {
	sql := append(bytes.Clone(v.SQL), fmt.Sprintf(`
create or replace function pgque.version() returns text language sql security definer set search_path = pgque, pg_catalog as $$ select '%[1]s' $$;
revoke all on function pgque.version() from public;
grant execute on function pgque.version() to pgque_reader;
`, body)...)
	return fileFrom(sql, tag, v.Path)
}

// Every row of the direction table that our own record decides, with releases
// that the program does not know.
func TestDirectionByProvenance(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		older, newer := with(v, "v7.0.0", "seven"), with(v, "v8.0.0-rc.1", "eight")
		db := pgtest.Database(t)
		mustBootstrap(t, db.URL, older, Options{})

		if r := inspectAs(t, db.URL, newer, Options{}); r.Action != WouldUpgrade || r.Plan.From.Tag != "v7.0.0" || len(r.Plan.Drift) != 0 {
			t.Errorf("newer file: %q from %+v, drift %q", r.Action, r.Plan.From, r.Plan.Drift)
		}
		if r := mustBootstrap(t, db.URL, newer, Options{}); r.Action != Upgraded {
			t.Errorf("newer file: %q", r.Action)
		}
		_, err := bootstrapAs(t, db.URL, older, Options{})
		wantRefusal(t, err, fault.Policy, "v8.0.0-rc.1", "older v7.0.0", "update v8.0.0-rc.1")
		elsewhere := older
		elsewhere.Path = "elsewhere.sql"
		_, err = bootstrapAs(t, db.URL, elsewhere, Options{})
		wantRefusal(t, err, fault.Policy, "pgque-vendor update v8.0.0-rc.1 --sql-path "+v.Path)
		_, err = bootstrapAs(t, db.URL, older, Options{Reinstall: true})
		wantRefusal(t, err, fault.Policy, "older v7.0.0")

		_, err = bootstrapAs(t, db.URL, with(v, "v8.0.0-rc.1", "eight again"), Options{})
		wantRefusal(t, err, fault.Policy, "same tag v8.0.0-rc.1", "pgque.version()", "--reinstall")
		_, err = bootstrapAs(t, db.URL, with(v, "alpha9", "nine"), Options{})
		wantRefusal(t, err, fault.Policy, "no order")

		// The same bytes under a newer tag: nothing to install, a new record.
		same := newer
		same.Tag = "v8.0.0"
		if r := mustBootstrap(t, db.URL, same, Options{}); r.Action != Unchanged || len(r.Plan.AsOwner) != 1 {
			t.Errorf("same SQL, newer tag: %q, plan %q", r.Action, r.Plan.Lines(same))
		}
		if r := inspectAs(t, db.URL, same, Options{}); r.Plan.From.Tag != "v8.0.0" || !r.Plan.Empty() {
			t.Errorf("the record says %q, plan %q", r.Plan.From.Tag, r.Plan.Lines(same))
		}

		// Edited after it was installed: an upgrade would lose the edit.
		db.Exec(t, "create or replace function pgque.version() returns text language sql security definer set search_path = pgque, pg_catalog as $$ select 'mine' $$")
		next := with(v, "v9.0.0", "nine")
		_, err = bootstrapAs(t, db.URL, next, Options{})
		wantRefusal(t, err, fault.Policy, "after v8.0.0 was installed", "--reinstall")
		if r := mustBootstrap(t, db.URL, next, Options{Reinstall: true}); r.Action != Upgraded {
			t.Errorf("--reinstall: %q", r.Action)
		}
	})
}

// An upgrade from a first release like v0.1.0, with its role that a writer
// inherits from and its open functions.
func TestUpgradeFromOlderStandin(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	db := pg.Database(t)
	older := olderStandin(t)
	db.Install(t, older)
	f := fileOf(pgtest.Standin())
	_, err := bootstrapAs(t, db.URL, f, Options{})
	wantRefusal(t, err, fault.Policy, "no PgQue that this program knows")

	// Our own record makes it a release.
	live := inspectAs(t, db.URL, fileOf(older), Options{}).Plan.From.Fingerprint
	p := fileOf(older).provenance(live, "test")
	db.Exec(t, commentSQL(p, ""))
	app := db.Role(t)
	r := mustBootstrap(t, db.URL, f, Options{Grants: admin(app)})
	if r.Action != Upgraded || !strings.Contains(strings.Join(r.Plan.Before, " "), "REVOKE") {
		t.Errorf("%q, before %q", r.Action, r.Plan.Before)
	}
	if got := db.Value(t, "select pg_has_role('pgque_writer', 'pgque_reader', 'member')::text"); got != "false" {
		t.Error("a writer is still a reader")
	}
	worksAsApp(t, db, app)
	_, err = bootstrapAs(t, db.URL, fileOf(older), Options{})
	wantRefusal(t, err, fault.Policy, "going back is refused")
}

// The releases of the real PgQue, installed by hand and recognised by their
// functions (B060).
func TestDirectionOfRealReleases(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	v1, v2, v3 := pgtest.Real(t, "v0.1.0"), pgtest.Real(t, "v0.2.0"), pgtest.Real(t, "v0.3.0-alpha.1")
	for _, c := range []struct {
		have, file pgtest.Variant
		action     Action
		pieces     []string
	}{
		{v1, v1, Unchanged, nil},
		{v1, v2, Upgraded, nil},
		{v1, v3, Upgraded, nil},
		{v2, v3, Upgraded, nil},
		{v2, v1, Refused, []string{"older v0.1.0"}},
		{v3, v1, Refused, []string{"older v0.1.0"}},
		{v3, v2, Refused, []string{"older v0.2.0"}},
	} {
		t.Run(c.have.Tag+" to "+c.file.Tag, func(t *testing.T) {
			db := pg.Database(t)
			defer forget(t, db)
			app := db.Role(t)
			db.Install(t, c.have)
			if c.action == Unchanged {
				r := mustBootstrap(t, db.URL, fileOf(c.file), Options{Grants: admin(app)})
				if r.Action != Unchanged {
					t.Errorf("%q", r.Action)
				}
				return
			}
			r, err := bootstrapAs(t, db.URL, fileOf(c.file), Options{Grants: admin(app)})
			if c.action == Refused {
				wantRefusal(t, err, fault.Policy, c.pieces...)
				return
			}
			if err != nil || r.Action != c.action || r.Plan.From.Tag != c.have.Tag {
				t.Fatalf("%v %+v", err, r)
			}
			if got := db.Value(t, "select pg_has_role('pgque_writer', 'pgque_reader', 'member')::text"); got != "false" {
				t.Error("a writer is still a reader")
			}
			if n := db.Value(t, "select count(*) from pg_proc where pronamespace = 'pgque'::regnamespace and has_function_privilege('public', oid, 'execute')"); n != "0" {
				t.Errorf("%s functions are executable by PUBLIC", n)
			}
			worksAsApp(t, db, app)
		})
	}
	// The tag v0.3.0-alpha.1 has two SQL files, of which one is that of v0.2.0.
	for _, record := range []bool{true, false} {
		t.Run(fmt.Sprintf("two files of one tag, recorded %t", record), func(t *testing.T) {
			db := pg.Database(t)
			defer forget(t, db)
			stable := fileFrom(v2.SQL, v3.Tag, v2.Path)
			mustBootstrap(t, db.URL, stable, Options{})
			if r := mustBootstrap(t, db.URL, fileOf(v3), Options{}); r.Action != Upgraded || r.Plan.From.Tag != v3.Tag || r.Plan.From.Path != v2.Path {
				t.Errorf("%q from %+v", r.Action, r.Plan.From)
			}
			if !record {
				db.Exec(t, "comment on schema pgque is null")
			}
			_, err := bootstrapAs(t, db.URL, stable, Options{})
			wantRefusal(t, err, fault.Policy, `"sql/pgque.sql" of v0.3.0-alpha.1, is the older v0.2.0`, "pgque-vendor update v0.3.0-alpha.1 --sql-path devel/sql/pgque.sql")
		})
	}
	// Installed by one login, upgraded by another: on 16 and later the file's
	// own REVOKE hits nothing and only warns.
	t.Run("v0.1.0 of another grantor", func(t *testing.T) {
		rds := pg.Role(t, "createrole")
		db := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: rds})
		defer forget(t, db)
		db.InstallAs(t, v1, rds)
		mustBootstrap(t, db.URL, fileOf(v2), Options{})
		if got := db.Value(t, "select pg_has_role('pgque_writer', 'pgque_reader', 'member')::text"); got != "false" {
			t.Error("a writer is still a reader")
		}
		mustBootstrap(t, db.URLAs(rds), fileOf(v2), Options{Reinstall: true, GrantSelf: true})
		worksAsApp(t, db, rds)
	})
	// Fresh with v0.1.0, whose file makes its roles itself.
	t.Run("v0.1.0 fresh", func(t *testing.T) {
		db := pg.Database(t)
		defer forget(t, db)
		_, err := bootstrapAs(t, db.URL, fileOf(v1), Options{})
		wantRefusal(t, err, fault.Policy, "--owner CURRENT_USER")
		r := mustBootstrap(t, db.URL, fileOf(v1), Options{Owner: "CURRENT_USER"})
		if r.Action != Installed || len(r.Plan.Warnings) == 0 {
			t.Errorf("%q %q", r.Action, r.Plan.Warnings)
		}
		mustBootstrap(t, db.URL, fileOf(v2), Options{})
	})
	// Two dead letters for one event, which v0.1.0 allows and v0.2.0 does not.
	t.Run("v0.1.0 with doubled dead letters", func(t *testing.T) {
		db := pg.Database(t)
		defer forget(t, db)
		db.Install(t, v1)
		db.Exec(t, `select pgque.create_queue('q'), pgque.subscribe('q', 'c');
			insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, dl_reason, ev_id, ev_time, ev_txid, ev_retry, ev_type, ev_data)
			select q.queue_id, c.co_id, 'r', 1, now(), null, 0, 't', 'd' from pgque.queue as q, pgque.consumer as c, generate_series(1, 2)`)
		if r := inspectAs(t, db.URL, fileOf(v2), Options{}); r.Action != Refused || !strings.Contains(r.Plan.Refusal.Text, "has 1 events twice") {
			t.Errorf("--plan: %q, %v", r.Action, r.Plan.Refusal)
		}
		if r := inspectAs(t, db.URLAs(db.Role(t)), fileOf(v2), Options{}); r.Action != Refused || strings.Contains(r.Plan.Refusal.Text, "twice") {
			t.Errorf("--plan of a login that cannot look: %q, %v", r.Action, r.Plan.Refusal)
		}
		_, err := bootstrapAs(t, db.URL, fileOf(v2), Options{})
		wantRefusal(t, err, fault.Policy, "pgque.dead_letter has 1 events twice", "DELETE FROM")
		for _, hint := range hintsOf(err) {
			_, sql, _ := strings.Cut(hint, ": ")
			db.Exec(t, sql)
		}
		mustBootstrap(t, db.URL, fileOf(v2), Options{})
	})
}

// liveFunctions are the functions of schema pgque.
func liveFunctions(t *testing.T, url string, f File) []function {
	t.Helper()
	ctx := context.Background()
	conn, err := dialer(url)(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := begin(ctx, conn, "read only", 0)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := read(ctx, tx, f, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Functions
}

func sortedBodies(functions map[string][]overload) map[string][]string {
	sorted := map[string][]string{}
	for name, overloads := range functions {
		for _, o := range overloads {
			sorted[name] = append(sorted[name], o.body)
		}
		slices.Sort(sorted[name])
	}
	return sorted
}

// The table of known releases against the files themselves.
func TestKnownReleases(t *testing.T) {
	t.Parallel()
	for _, tag := range []string{"v0.1.0", "v0.2.0", "v0.3.0-alpha.1"} {
		v := pgtest.Real(t, tag)
		f := fileOf(v)
		known, ok := releaseByFile(f.SHA256)
		if !ok || known.tag != tag {
			t.Errorf("%s is known as %q", tag, known.tag)
			continue
		}
		db := pgtest.NewServer(t, pgtest.Options{}).Database(t)
		db.Install(t, v)
		r := inspectAs(t, db.URL, f, Options{})
		if r.Plan.From.Fingerprint != known.fingerprint {
			t.Errorf("%s has the fingerprint %s", tag, r.Plan.From.Fingerprint)
		}
		live := liveFunctions(t, db.URL, f)
		want := sortedBodies(fileFunctions(v.SQL))
		if got := sortedBodies(File{SHA256: f.SHA256}.functions(live)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: without its text the file's functions are %v, want %v", tag, got, want)
		}
		live[0].Definer = !live[0].Definer
		if got := (File{SHA256: f.SHA256}).functions(live); len(got) != 0 {
			t.Errorf("%s: a changed function is taken for the file's", tag)
		}
	}
}
