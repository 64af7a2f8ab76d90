package bootstrap

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

func TestInstallThenNothingToDo(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db := pgtest.Database(t)
		app := db.Role(t)
		f := fileOf(v)
		db.Exec(t, "create schema other; comment on schema other is 'not ours'")

		r := mustBootstrap(t, db.URL, f, Options{Grants: admin(app), Tool: "test"})
		if r.Action != Installed || r.Plan.From != nil || r.Plan.Owner != DefaultOwner {
			t.Errorf("action %q, from %v, owner %q", r.Action, r.Plan.From, r.Plan.Owner)
		}
		if len(r.Grants) != 1 || !r.Grants[0].Effective {
			t.Errorf("grants %+v, want one that is effective", r.Grants)
		}
		if owners := db.Value(t, `select string_agg(distinct o.rolname, ',') from (
			select proowner as owner from pg_proc where pronamespace = 'pgque'::regnamespace
			union select relowner from pg_class where relnamespace = 'pgque'::regnamespace
			union select typowner from pg_type where typnamespace = 'pgque'::regnamespace
			union select nspowner from pg_namespace where nspname = 'pgque') as x join pg_roles as o on o.oid = x.owner`); owners != DefaultOwner {
			t.Errorf("owners %q, want %q alone", owners, DefaultOwner)
		}
		p, _ := parseProvenance(db.Value(t, "select obj_description('pgque'::regnamespace)"))
		if p == nil || p.Tag != f.Tag || p.SHA256 != f.SHA256 || len(p.Fingerprint) != 64 {
			t.Errorf("provenance %+v", p)
		}
		worksAsApp(t, db, app)

		again := mustBootstrap(t, db.URL, f, Options{Grants: admin(app), Tool: "test"})
		if again.Action != Unchanged || !again.Plan.Empty() || !again.Plan.From.Confirmed {
			t.Errorf("the second run: %q, plan %q, confirmed %v", again.Action, again.Plan.Lines(f), again.Plan.From.Confirmed)
		}
		// A newer tool alone is no reason to write.
		if r := mustBootstrap(t, db.URL, f, Options{Grants: admin(app), Tool: "newer"}); !r.Plan.Empty() {
			t.Errorf("another tool's run writes %q", r.Plan.Lines(f))
		}
	})
}

// The no-op run assigns no transaction id and takes no lock beyond AccessShare,
// and a login that may only connect can do it (B033).
func TestNothingToDoOnlyReads(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	app, stranger := db.Role(t), db.Role(t)
	f := fileOf(pgtest.Standin())
	mustBootstrap(t, db.URL, f, Options{Grants: admin(app)})

	ctx := context.Background()
	tx, err := begin(ctx, db.ConnectAs(t, stranger), "read only", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	o := Options{Grants: admin(app)}
	s, functions, err := read(ctx, tx, f, o)
	if err != nil {
		t.Fatal(err)
	}
	if plan := makePlan(s, f, functions, o); plan.Refusal != nil || !plan.Empty() {
		t.Errorf("plan %q, refusal %v", plan.Lines(f), plan.Refusal)
	}
	var xid *string
	var modes string
	if err := tx.QueryRow(ctx, `select pg_current_xact_id_if_assigned()::text,
		(select string_agg(distinct mode, ',') from pg_locks where pid = pg_backend_pid() and locktype <> 'virtualxid')`).Scan(&xid, &modes); err != nil {
		t.Fatal(err)
	}
	if xid != nil || modes != "AccessShareLock" {
		t.Errorf("transaction id %v, locks %q", xid, modes)
	}
	if r := mustBootstrap(t, db.URLAs(stranger), f, Options{Grants: admin(app)}); r.Action != Unchanged {
		t.Errorf("a login without rights: %q", r.Action)
	}
}

func TestHandEditedFunction(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		f := fileOf(v)
		for _, edit := range []struct{ name, sql, names string }{
			{"body", "create or replace function pgque.version() returns text language sql as $$ select 'mine' $$; alter function pgque.version() set search_path = pgque, pg_catalog", "pgque.version()"},
			{"dropped", "drop function pgque.force_tick(text)", "pgque.force_tick"},
			{"settings", "alter function pgque.create_queue(text) reset search_path", "settings"},
		} {
			t.Run(edit.name, func(t *testing.T) {
				db := pgtest.Database(t)
				app := db.Role(t)
				mustBootstrap(t, db.URL, f, Options{})
				db.Exec(t, edit.sql)

				_, err := bootstrapAs(t, db.URL, f, Options{Grants: admin(app)})
				wantRefusal(t, err, fault.Policy, edit.names, "--reinstall", "--allow-drift")
				if r := inspectAs(t, db.URL, f, Options{}); len(r.Plan.Drift) == 0 || r.Action != Refused {
					t.Errorf("inspect: %q, drift %q", r.Action, r.Plan.Drift)
				}

				r := mustBootstrap(t, db.URL, f, Options{Grants: admin(app), AllowDrift: true})
				if r.Action != Unchanged || !r.Grants[0].Effective && edit.name != "dropped" {
					t.Errorf("--allow-drift: %q, grants %+v", r.Action, r.Grants)
				}
				if r := inspectAs(t, db.URL, f, Options{}); r.Action != Refused {
					t.Errorf("--allow-drift took the drift away: %q", r.Action)
				}
				if r := mustBootstrap(t, db.URL, f, Options{Reinstall: true}); r.Action != Installed {
					t.Errorf("--reinstall: %q", r.Action)
				}
				if r := inspectAs(t, db.URL, f, Options{}); !r.Plan.Empty() {
					t.Errorf("after --reinstall there is still work: %q", r.Plan.Lines(f))
				}
			})
		}
	})
}

// An install by hand is recognised by its functions and gets its record; a
// comment that somebody wrote stays.
func TestAdoptHandMade(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db := pgtest.Database(t)
		db.Install(t, v)
		db.Exec(t, "comment on schema pgque is 'ask Ann before touching'")
		r := mustBootstrap(t, db.URL, fileOf(v), Options{})
		if r.Action != Unchanged || len(r.Plan.AsOwner) != 1 {
			t.Errorf("action %q, plan %q", r.Action, r.Plan.Lines(fileOf(v)))
		}
		if len(r.Plan.Warnings) == 0 || !strings.Contains(r.Plan.Warnings[0], "superuser") {
			t.Errorf("warnings %q, want one about the superuser that owns the schema", r.Plan.Warnings)
		}
		comment := db.Value(t, "select obj_description('pgque'::regnamespace)")
		p, rest := parseProvenance(comment)
		if p == nil || rest != "ask Ann before touching" {
			t.Errorf("comment %q", comment)
		}
		if r := mustBootstrap(t, db.URL, fileOf(v), Options{}); !r.Plan.Empty() {
			t.Errorf("a second adoption: %q", r.Plan.Lines(fileOf(v)))
		}
	})
}

// An install by hand with one function edited is named as such; one with
// another version() may be a release that we do not know, and is not.
func TestHandMadeAndEdited(t *testing.T) {
	t.Parallel()
	f := fileOf(pgtest.Standin())
	db := pgtest.Database(t)
	db.Install(t, pgtest.Standin())
	db.Exec(t, "create or replace function pgque.force_tick(i_queue_name text) returns bigint language sql as $$ select 1::bigint $$")
	_, err := bootstrapAs(t, db.URL, f, Options{})
	wantRefusal(t, err, fault.Policy, "pgque.force_tick", "--reinstall")
	db.Exec(t, "create or replace function pgque.version() returns text language sql as $$ select '0.2.1' $$")
	for _, o := range []Options{{}, {Reinstall: true}} {
		_, err := bootstrapAs(t, db.URL, f, o)
		wantRefusal(t, err, fault.Policy, "no PgQue that this program knows")
	}
}

// What is not the file's own is told, not touched.
func TestExtraFunction(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	f := fileOf(pgtest.Standin())
	mustBootstrap(t, db.URL, f, Options{})
	db.Exec(t, "create function pgque.ours(n int) returns int language sql as 'select n'")
	r := mustBootstrap(t, db.URL, f, Options{})
	if !r.Plan.Empty() || len(r.Plan.Extra) != 1 || r.Plan.Extra[0] != "pgque.ours(n integer)" || len(r.Plan.Warnings) == 0 {
		t.Errorf("plan %q, extra %q, warnings %q", r.Plan.Lines(f), r.Plan.Extra, r.Plan.Warnings)
	}
}

// The file is one message in one transaction (B087), and a failure names the
// line, in characters, and shows a few lines (B087), never the file.
func TestFailureInTheFile(t *testing.T) {
	t.Parallel()
	good := pgtest.Standin().SQL
	lines := bytes.Count(good, []byte("\n"))
	for _, c := range []struct {
		name, add string
		class     fault.Class
		line      int
		pieces    []string
	}{
		{"runtime", "-- ü → ≤\n\nselect 1/0;\nselect 2;\n", fault.SQL, lines + 3, []string{"division by zero", "22012", "select 1/0"}},
		{"parse", "-- " + strings.Repeat("→", 60) + "\nselect 'é' 'x' frm nothing(;\n", fault.SQL, lines + 2, []string{"42601", "frm nothing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := pgtest.Database(t)
			f := fileFrom(append(bytes.Clone(good), c.add...), "v0.2.0", "sql/pgque.sql")
			_, err := bootstrapAs(t, db.URL, f, Options{})
			wantRefusal(t, err, c.class, append(c.pieces, "pgque.sql:"+strconv.Itoa(c.line)+":", "rolled back")...)
			if len(err.Error()) > 2000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			if n := db.Value(t, "select count(*) from pg_namespace where nspname = 'pgque'"); n != "0" {
				t.Error("something was left behind")
			}
		})
	}
}
