package bootstrap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// Who may install, and what is missing where somebody may not. Each case runs
// on one cluster whose roles are forgotten in between (B033, B034).
func TestWhoMayInstall(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		f := fileOf(v)
		version16 := serverVersion(t, pg) >= 160000

		t.Run("owner of the database with CREATEROLE", func(t *testing.T) {
			rds := pg.Role(t, "createrole")
			db := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: rds})
			defer forget(t, db)
			app := db.Role(t)
			r := mustBootstrap(t, db.URLAs(rds), f, Options{Grants: admin(app)})
			if r.Plan.Owner != DefaultOwner {
				t.Errorf("owner %q", r.Plan.Owner)
			}
			worksAsApp(t, db, app)
			if r := mustBootstrap(t, db.URLAs(rds), f, Options{Grants: admin(app)}); !r.Plan.Empty() {
				t.Errorf("again: %q", r.Plan.Lines(f))
			}
			mustBootstrap(t, db.URLAs(rds), f, Options{Reinstall: true, Grants: admin(app)})
			worksAsApp(t, db, app)
			// A superuser's run keeps the owner; after it the owner's login still can.
			mustBootstrap(t, db.URL, f, Options{Reinstall: true})
			mustBootstrap(t, db.URLAs(rds), f, Options{Reinstall: true})
			// No grant flag: the login itself gets it.
			mustBootstrap(t, db.URLAs(rds), f, Options{GrantSelf: true})
			worksAsApp(t, db, rds)
			if version16 {
				if got := db.Value(t, fmt.Sprintf(`select bool_or(inherit_option)::text from pg_auth_members
					where roleid = '%s'::regrole and member = '"%s"'::regrole`, DefaultOwner, rds)); got != "false" {
					t.Errorf("the login inherits from %s: %s", DefaultOwner, got)
				}
			}
		})

		t.Run("login with nothing", func(t *testing.T) {
			mig := pg.Role(t)
			db := pg.Database(t)
			_, err := bootstrapAs(t, db.URLAs(mig), f, Options{Grants: admin(mig)})
			wantRefusal(t, err, fault.Policy,
				`CREATE ROLE "pgque_owner" NOLOGIN`, `GRANT CREATE, TEMP ON DATABASE`, `--owner CURRENT_USER`,
				`CREATE ROLE "pgque_reader"`, `CREATE ROLE "pgque_admin"`, `GRANT "pgque_writer" TO "pgque_admin"`)
			if n := db.Value(t, "select count(*) from pg_roles where rolname like 'pgque%'"); n != "0" {
				t.Errorf("%s roles were made", n)
			}
		})

		// The DBA's way out: everything made beforehand, nothing granted to the
		// login but the owner.
		t.Run("login with a prepared owner", func(t *testing.T) {
			mig := pg.Role(t)
			db := pg.Database(t)
			defer forget(t, db)
			app := db.Role(t)
			_, err := bootstrapAs(t, db.URLAs(mig), f, Options{Grants: admin(app)})
			if err == nil {
				t.Fatal("it was not refused")
			}
			// What the refusal says is enough: run it, and it works.
			for _, hint := range hintsOf(err) {
				if sql, _, _ := strings.Cut(hint, "   --"); !strings.HasPrefix(hint, "pgque-vendor ") {
					db.Exec(t, sql)
				}
			}
			mustBootstrap(t, db.URLAs(mig), f, Options{Grants: admin(app)})
			worksAsApp(t, db, app)
		})

		t.Run("owner CURRENT_USER without CREATEROLE", func(t *testing.T) {
			mig := pg.Role(t)
			db := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: mig})
			defer forget(t, db)
			db.Exec(t, "create role pgque_reader; create role pgque_writer; create role pgque_admin; grant pgque_reader, pgque_writer to pgque_admin")
			db.Exec(t, fmt.Sprintf(`grant pgque_admin to "%s" with admin option`, mig))
			r := mustBootstrap(t, db.URLAs(mig), f, Options{Owner: "CURRENT_USER", GrantSelf: true})
			if r.Plan.Owner != mig {
				t.Errorf("owner %q, want %q", r.Plan.Owner, mig)
			}
			worksAsApp(t, db, mig)
		})

		t.Run("roles without memberships", func(t *testing.T) {
			rds := pg.Role(t, "createrole")
			db := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: rds})
			defer forget(t, db)
			db.Exec(t, "create role pgque_reader; create role pgque_writer; create role pgque_admin")
			_, err := bootstrapAs(t, db.URLAs(rds), f, Options{})
			if version16 {
				wantRefusal(t, err, fault.Policy, `GRANT "pgque_reader" TO "pgque_admin";`, `GRANT "pgque_writer" TO "pgque_admin";`)
			} else if err != nil {
				t.Error(err)
			}
		})

		t.Run("no CREATE on the database", func(t *testing.T) {
			mig := pg.Role(t, "createrole")
			db := pg.Database(t)
			defer forget(t, db)
			_, err := bootstrapAs(t, db.URLAs(mig), f, Options{})
			wantRefusal(t, err, fault.Policy, "GRANT CREATE ON DATABASE", "superuser")
			db.Exec(t, fmt.Sprintf(`revoke temp on database "%s" from public`, db.Name))
			_, err = bootstrapAs(t, db.URLAs(mig), f, Options{})
			wantRefusal(t, err, fault.Policy, "GRANT CREATE, TEMP ON DATABASE")
			db.Exec(t, fmt.Sprintf(`grant create, temp on database "%s" to "%s" with grant option`, db.Name, mig))
			mustBootstrap(t, db.URLAs(mig), f, Options{})
		})

		t.Run("second database of another CREATEROLE login", func(t *testing.T) {
			one, two := pg.Role(t, "createrole"), pg.Role(t, "createrole")
			a := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: one})
			b := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: two})
			defer forget(t, a, b)
			app := b.Role(t)
			mustBootstrap(t, a.URLAs(one), f, Options{})
			_, err := bootstrapAs(t, b.URLAs(two), f, Options{Grants: admin(app)})
			if version16 {
				wantRefusal(t, err, fault.Policy, `GRANT "pgque_owner" TO`, `GRANT "pgque_admin" TO`)
				b.Exec(t, fmt.Sprintf(`grant pgque_owner to "%s"; grant pgque_admin to "%s"`, two, app))
				mustBootstrap(t, b.URLAs(two), f, Options{Grants: admin(app)})
			} else if err != nil {
				t.Fatal(err)
			}
			worksAsApp(t, b, app)
		})

		// What owns the schemas of other databases is no light grant, and not needed.
		t.Run("owner of another database's schema", func(t *testing.T) {
			pl := pg.Role(t)
			a, b := pg.Database(t), pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: pl})
			defer forget(t, a, b)
			mustBootstrap(t, a.URL, f, Options{})
			_, err := bootstrapAs(t, b.URLAs(pl), f, Options{GrantSelf: true})
			wantRefusal(t, err, fault.Policy, `GRANT "pgque_owner" TO "`+pl+`"`, "in all databases of the cluster")
			if h := hintsOf(err); !strings.HasPrefix(h[0], "pgque-vendor bootstrap --owner CURRENT_USER") {
				t.Errorf("hints %q", h)
			}
			o := Options{Owner: "CURRENT_USER", GrantSelf: true}
			for range 2 {
				r := mustBootstrap(t, b.URLAs(pl), f, o)
				if len(r.Plan.Warnings) != 0 || len(r.Grants) != 1 || !r.Grants[0].Effective {
					t.Errorf("warnings %q, grants %+v", r.Plan.Warnings, r.Grants)
				}
			}
			worksAsApp(t, b, pl)
		})

		t.Run("schema of somebody else", func(t *testing.T) {
			db := pg.Database(t)
			defer forget(t, db)
			mig := db.Role(t, "createrole")
			db.Install(t, v)
			if r := mustBootstrap(t, db.URLAs(mig), f, Options{}); r.Action != Unchanged {
				t.Errorf("the same version already: %q", r.Action)
			}
			_, err := bootstrapAs(t, db.URLAs(mig), f, Options{Reinstall: true})
			wantRefusal(t, err, fault.Policy, `owner is "postgres"`)
		})

		// A login that may create roles could make itself a member of another, on
		// PostgreSQL 14 and 15. It does not (B033).
		t.Run("schema of another login", func(t *testing.T) {
			mig, mig2 := pg.Role(t, "createrole"), pg.Role(t, "createrole")
			db := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: mig})
			defer forget(t, db)
			mustBootstrap(t, db.URLAs(mig), f, Options{Owner: "CURRENT_USER"})
			if r := mustBootstrap(t, db.URLAs(mig2), f, Options{}); r.Action != Unchanged {
				t.Errorf("the same version already: %q", r.Action)
			}
			db.Exec(t, "revoke execute on function pgque.ticker() from pgque_admin")
			_, err := bootstrapAs(t, db.URLAs(mig2), f, Options{Reinstall: true})
			grant := fmt.Sprintf(`GRANT "%s" TO "%s"`, mig, mig2)
			wantRefusal(t, err, fault.Policy, fmt.Sprintf(`the schema's owner is "%s", and "%s" may not act as it`, mig, mig2), grant)
			if n := db.Value(t, fmt.Sprintf(`select count(*) from pg_auth_members where roleid = '"%s"'::regrole and member = '"%s"'::regrole and not admin_option`, mig, mig2)); n != "0" {
				t.Errorf("%q became a member of %q", mig2, mig)
			}
			db.Exec(t, hintsOf(err)[0])
			mustBootstrap(t, db.URLAs(mig2), f, Options{Reinstall: true})
		})

		t.Run("roles that are too strong", func(t *testing.T) {
			db := pg.Database(t)
			defer forget(t, db)
			db.Exec(t, "create role pgque_admin superuser login")
			_, err := bootstrapAs(t, db.URL, f, Options{})
			wantRefusal(t, err, fault.Policy, `ALTER ROLE "pgque_admin" NOSUPERUSER`)
		})
	})
}

func serverVersion(t testing.TB, pg *pgtest.Postgres) int {
	t.Helper()
	var n int
	if err := pg.Connect(t).QueryRow(t.Context(), "select current_setting('server_version_num')::int").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestGrants(t *testing.T) {
	t.Parallel()
	f := fileOf(pgtest.Standin())
	db := pgtest.Database(t)
	mustBootstrap(t, db.URL, f, Options{})
	version16 := serverVersion(t, db.Server) >= 160000

	t.Run("NOINHERIT", func(t *testing.T) {
		app := db.Role(t, "noinherit")
		_, err := bootstrapAs(t, db.URL, f, Options{Grants: admin(app)})
		if version16 {
			if err != nil {
				t.Fatal(err)
			}
		} else {
			wantRefusal(t, err, fault.Policy, "NOINHERIT", "ALTER ROLE", "INHERIT;")
			db.Exec(t, fmt.Sprintf(`alter role "%s" inherit`, app))
			mustBootstrap(t, db.URL, f, Options{Grants: admin(app)})
		}
		worksAsApp(t, db, app)
	})
	t.Run("NOINHERIT that looks granted", func(t *testing.T) {
		app := db.Role(t, "noinherit")
		db.Exec(t, fmt.Sprintf(`grant pgque_admin to "%s"`, app))
		r, err := bootstrapAs(t, db.URL, f, Options{Grants: admin(app)})
		if !version16 {
			wantRefusal(t, err, fault.Policy, "NOINHERIT")
			return
		}
		if err != nil || !r.Grants[0].Effective {
			t.Fatalf("%v %+v", err, r)
		}
		worksAsApp(t, db, app)
	})
	t.Run("writer and reader", func(t *testing.T) {
		w, r := db.Role(t), db.Role(t)
		report := mustBootstrap(t, db.URL, f, Options{Grants: []Grant{{Role: Writer, To: w}, {Role: Reader, To: r}}})
		if len(report.Grants) != 2 || !report.Grants[0].Effective || !report.Grants[1].Effective {
			t.Errorf("%+v", report.Grants)
		}
		if got := db.Value(t, fmt.Sprintf(`select has_function_privilege('%s', 'pgque.ack(bigint)', 'execute')::text`, w)); got != "false" {
			t.Error("a writer can ack")
		}
	})
	t.Run("odd names", func(t *testing.T) {
		db.Exec(t, `create role "Über ""app""; drop"`)
		defer db.Exec(t, `drop role "Über ""app""; drop"`)
		if r := mustBootstrap(t, db.URL, f, Options{Grants: admin(`Über "app"; drop`)}); !r.Grants[0].Effective {
			t.Errorf("%+v", r.Grants)
		}
	})
	t.Run("all that is missing at once", func(t *testing.T) {
		_, err := bootstrapAs(t, db.URL, f, Options{Grants: append(admin("nobody one"), admin("PUBLIC")...)})
		wantRefusal(t, err, fault.Policy, "2 things are missing", `CREATE ROLE "nobody one"`, `CREATE ROLE "PUBLIC"`)
	})
	t.Run("a role above", func(t *testing.T) {
		above := db.Role(t)
		db.Exec(t, fmt.Sprintf(`grant "%s" to pgque_admin`, above))
		_, err := bootstrapAs(t, db.URL, f, Options{Grants: admin(above)})
		wantRefusal(t, err, fault.Policy, "is itself a member of", "REVOKE")
	})
	t.Run("a right that was taken away", func(t *testing.T) {
		app := db.Role(t)
		mustBootstrap(t, db.URL, f, Options{Grants: admin(app)})
		db.Exec(t, "revoke execute on function pgque.ticker() from pgque_admin")
		_, err := bootstrapAs(t, db.URL, f, Options{Grants: admin(app)})
		wantRefusal(t, err, fault.Policy, "pgque.ticker()", "--reinstall")
		mustBootstrap(t, db.URL, f, Options{Grants: admin(app), Reinstall: true})
	})
}

// A superuser's rerun of the file by hand leaves functions that are not the
// owner's: pgque_admin could become superuser through them.
func TestSplitOwnership(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		f := fileOf(v)
		rds := pg.Role(t, "createrole")
		db := pg.DatabaseWith(t, pgtest.DatabaseOptions{Owner: rds})
		defer forget(t, db)
		mustBootstrap(t, db.URLAs(rds), f, Options{})
		db.Exec(t, "alter function pgque.ticker() owner to postgres; alter function pgque.force_tick(text) owner to postgres; alter table pgque.queue owner to postgres; alter type pgque.message owner to postgres")

		_, err := bootstrapAs(t, db.URLAs(rds), f, Options{})
		wantRefusal(t, err, fault.Policy, "4 objects", `ALTER FUNCTION pgque."ticker"() OWNER TO "pgque_owner";`, `ALTER TABLE pgque."queue" OWNER TO "pgque_owner";`, `ALTER TYPE pgque."message" OWNER TO`)
		r := mustBootstrap(t, db.URL, f, Options{})
		if r.Action != Unchanged || len(r.Plan.Moves) != 4 {
			t.Errorf("%q, moves %q", r.Action, r.Plan.Moves)
		}
		if r := mustBootstrap(t, db.URLAs(rds), f, Options{}); !r.Plan.Empty() {
			t.Errorf("plan %q", r.Plan.Lines(f))
		}
	})
}

// The way from a superuser's install to pgque_owner, as docs/bootstrap.md has it.
func TestMoveFromASuperuser(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		f := fileOf(v)
		db := pgtest.Database(t)
		app := db.Role(t)
		db.Install(t, v)
		db.Exec(t, "select pgque.create_queue('before')")
		r := mustBootstrap(t, db.URL, f, Options{Grants: admin(app)})
		if r.Plan.Owner != "postgres" || !strings.Contains(strings.Join(r.Plan.Warnings, " "), "can become superuser") {
			t.Errorf("owner %q, warnings %q", r.Plan.Owner, r.Plan.Warnings)
		}
		db.Exec(t, fmt.Sprintf(`do $$ begin create role pgque_owner; exception when duplicate_object or unique_violation then null; end $$;
			grant create, temp on database "%s" to pgque_owner; alter schema pgque owner to pgque_owner`, db.Name))
		mustBootstrap(t, db.URL, f, Options{})
		if n := db.Value(t, `select count(*) from (select proowner as o from pg_proc where pronamespace = 'pgque'::regnamespace
			union all select relowner from pg_class where relnamespace = 'pgque'::regnamespace
			union all select typowner from pg_type where typnamespace = 'pgque'::regnamespace) as x where o <> 'pgque_owner'::regrole`); n != "0" {
			t.Errorf("%s objects still have another owner", n)
		}
		r = mustBootstrap(t, db.URL, f, Options{Reinstall: true})
		if len(r.Plan.Warnings) != 0 {
			t.Errorf("warnings %q", r.Plan.Warnings)
		}
		worksAsApp(t, db, app)
	})
}

// dumpedWithoutPrivileges makes a database what a dump without privileges (pg_dump
// -x) restores: nothing of schema pgque was granted to anybody.
func dumpedWithoutPrivileges(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `set allow_system_table_mods = on;
		update pg_namespace set nspacl = null where nspname = 'pgque';
		update pg_proc set proacl = null where pronamespace = 'pgque'::regnamespace;
		update pg_class set relacl = null where relnamespace = 'pgque'::regnamespace`)
}

// A grant of a role that has lost its rights is no grant. The role gets them back
// by --reinstall, and whoever is refused is told so.
func TestRoleWithoutItsRights(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		f := fileOf(v)
		db := pgtest.Database(t)
		app, later := db.Role(t), db.Role(t)
		mustBootstrap(t, db.URL, f, Options{Grants: admin(app)})
		dumpedWithoutPrivileges(t, db)
		r := inspectAs(t, db.URL, f, Options{Grants: admin(app)})
		if r.Action != Refused || len(r.Plan.Lines(f)) != 0 {
			t.Errorf("--check: %q, plan %q", r.Action, r.Plan.Lines(f))
		}
		_, err := bootstrapAs(t, db.URL, f, Options{Grants: admin(app)})
		wantRefusal(t, err, fault.Policy, "no USAGE on schema pgque", "pgque-vendor bootstrap --reinstall")
		// Of a login that is no member yet it shows when the grant is made.
		_, err = bootstrapAs(t, db.URL, f, Options{Grants: admin(later)})
		wantRefusal(t, err, fault.SQL, "no USAGE on schema pgque", "pgque-vendor bootstrap --reinstall")

		mustBootstrap(t, db.URL, f, Options{Reinstall: true, Grants: append(admin(app), Grant{Role: Writer, To: later})})
		worksAsApp(t, db, app)
		db.Exec(t, "revoke execute on function pgque.send(text, text, jsonb) from pgque_writer")
		_, err = bootstrapAs(t, db.URL, f, Options{Grants: []Grant{{Role: Writer, To: later}}})
		wantRefusal(t, err, fault.Policy, "pgque.send", "pgque-vendor bootstrap --reinstall")
	})
}

// Rights that the file takes away and somebody has given again are seen by a run
// that has nothing to do, and end with --reinstall. The first release gives them
// itself.
func TestRightsThatTheFileTakesAway(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		f := fileOf(v)
		db := pg.Database(t)
		defer forget(t, db)
		mustBootstrap(t, db.URL, f, Options{})
		for _, c := range []struct{ sql, want string }{
			{"grant execute on all functions in schema pgque to public", "PUBLIC may execute"},
			{"grant pgque_reader to pgque_writer", `"pgque_writer" is a member of "pgque_reader"`},
		} {
			db.Exec(t, c.sql)
			r := mustBootstrap(t, db.URL, f, Options{})
			if len(r.Plan.Exposed) != 1 || !strings.Contains(r.Plan.Exposed[0], c.want) || !strings.Contains(strings.Join(r.Plan.Warnings, "\n"), c.want) {
				t.Errorf("%s: %q, warnings %q", c.sql, r.Plan.Exposed, r.Plan.Warnings)
			}
			if r := mustBootstrap(t, db.URL, f, Options{Reinstall: true}); len(r.Plan.Exposed) != 0 {
				t.Errorf("%s: a reinstall warns: %q", c.sql, r.Plan.Exposed)
			}
			if r := mustBootstrap(t, db.URL, f, Options{}); len(r.Plan.Exposed) != 0 || len(r.Plan.Warnings) != 0 {
				t.Errorf("%s: after a reinstall: %q", c.sql, r.Plan.Warnings)
			}
		}
	})
	t.Run("v0.1.0", func(t *testing.T) {
		v1 := pgtest.Real(t, "v0.1.0")
		db := pg.Database(t)
		defer forget(t, db)
		db.Install(t, v1)
		if r := mustBootstrap(t, db.URL, fileOf(v1), Options{Owner: "CURRENT_USER"}); len(r.Plan.Exposed) != 0 {
			t.Errorf("%q", r.Plan.Exposed)
		}
	})
}
