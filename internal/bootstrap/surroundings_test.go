package bootstrap

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// Databases that are refused before any DDL (B016).
func TestUnsuitableDatabases(t *testing.T) {
	t.Parallel()
	f := fileOf(pgtest.Standin())
	for _, encoding := range []string{"LATIN1", "SQL_ASCII", "EUC_JP"} {
		t.Run(encoding, func(t *testing.T) {
			db := pgtest.Server(t).DatabaseWith(t, pgtest.DatabaseOptions{Encoding: encoding})
			_, err := bootstrapAs(t, db.URL, f, Options{})
			wantRefusal(t, err, fault.Policy, encoding, "ENCODING 'UTF8'")
		})
	}
	t.Run("template", func(t *testing.T) {
		db := pgtest.Database(t)
		conn := pgtest.Server(t).Connect(t)
		if _, err := conn.Exec(t.Context(), fmt.Sprintf(`alter database "%s" is_template true`, db.Name)); err != nil {
			t.Fatal(err)
		}
		defer conn.Exec(t.Context(), fmt.Sprintf(`alter database "%s" is_template false`, db.Name))
		_, err := bootstrapAs(t, db.URL, f, Options{})
		wantRefusal(t, err, fault.Policy, "template")
	})
	t.Run("foreign schema", func(t *testing.T) {
		db := pgtest.Database(t)
		db.Exec(t, "create schema pgque; create table pgque.queue (id int); create function pgque.send() returns int language sql as 'select 1'")
		_, err := bootstrapAs(t, db.URL, f, Options{})
		wantRefusal(t, err, fault.Policy, "no PgQue that this program knows")
		_, err = bootstrapAs(t, db.URL, f, Options{Reinstall: true})
		wantRefusal(t, err, fault.Policy, "no PgQue that this program knows")
	})
	t.Run("empty schema", func(t *testing.T) {
		db := pgtest.Database(t)
		db.Exec(t, "create schema pgque")
		if r := mustBootstrap(t, db.URL, f, Options{}); r.Action != Installed || r.Plan.Owner != "postgres" {
			t.Errorf("%q, owner %q", r.Action, r.Plan.Owner)
		}
	})
	t.Run("extension", func(t *testing.T) {
		db := pgtest.Database(t)
		// What pg_tle does: the schema is a member of an extension.
		db.Exec(t, "create schema pgque; create function pgque.version() returns text language sql as $$ select 'x' $$; alter extension plpgsql add function pgque.version()")
		_, err := bootstrapAs(t, db.URL, f, Options{Reinstall: true})
		wantRefusal(t, err, fault.Policy, `extension "plpgsql"`, "ALTER EXTENSION")
	})
}

// A file that ends its transaction is refused before it is sent. Where one gets
// through, nobody is told that nothing was changed (B087).
func TestFileEndsItsTransaction(t *testing.T) {
	t.Parallel()
	sql := string(pgtest.Standin().SQL)
	for _, c := range []struct{ name, text, cause string }{
		{"commit at the end", sql + "\n;commit;", ""},
		{"commit, then a failure", sql + "\n;commit; select nosuch();", "nosuch"},
		{"commit, then a failure in a transaction", sql + "\n;commit; begin; select nosuch();", "nosuch"},
		{"begin and commit around it", "begin;\n" + sql + "\n;commit;", ""},
		{"rollback, then more", sql + "\n;rollback; create schema stays;", ""},
		{"another transaction", sql + "\n;rollback; begin; create schema stays;", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := pgtest.Database(t)
			_, err := bootstrapAs(t, db.URL, fileFrom([]byte(c.text), "v9.0.0", "sql/pgque.sql"), Options{})
			wantRefusal(t, err, fault.SQL, "ended the transaction", "may have stayed", c.cause, "pgque-vendor bootstrap --plan")
			if strings.Contains(err.Error(), "nothing was changed") || strings.Contains(err.Error(), "was rolled back") {
				t.Errorf("it says what is not so: %v", err)
			}
		})
	}
	t.Run("savepoints", func(t *testing.T) {
		db := pgtest.Database(t)
		mustBootstrap(t, db.URL, fileFrom([]byte("savepoint a; rollback to a;"+sql+"\n;release a"), "v9.0.0", "sql/pgque.sql"), Options{})
	})
}

// A file that makes its roles itself, as PgQue's did before v0.2.0, and then leaves its
// functions open to everybody: the way out is a later one, since only of v0.1.0 is the
// latter known and let be (B060).
func TestFileMakesItsRoles(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	sql := string(pgtest.Standin().SQL) + "\n;do $$ begin create role pgque_writer; exception when duplicate_object then null; end $$; grant execute on all functions in schema pgque to public;"
	f := fileFrom([]byte(sql), "alpha3", "sql/pgque.sql")
	_, err := bootstrapAs(t, db.URL, f, Options{})
	wantRefusal(t, err, fault.Policy, "makes its roles itself", "pgque-vendor update --latest")
	if hints := strings.Join(hintsOf(err), "\n"); strings.Contains(hints, "CURRENT_USER") {
		t.Errorf("a hint that ends with another failure: %s", hints)
	}
	_, err = bootstrapAs(t, db.URL, f, Options{Owner: "CURRENT_USER"})
	wantRefusal(t, err, fault.SQL, "PUBLIC may execute")
}

// Settings of a role or a database that would bend the install (B081).
func TestSettingsOfTheLogin(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db := pgtest.Database(t)
		db.Exec(t, "create schema hostile; create function hostile.current_database() returns name language sql as $$ select 'x'::name $$")
		for _, setting := range []string{
			"statement_timeout = '20ms'",
			"lock_timeout = '1ms'",
			"default_transaction_isolation = 'repeatable read'",
			"idle_in_transaction_session_timeout = '50ms'",
			"search_path = hostile, pgque, pg_catalog",
			"standard_conforming_strings = off",
			"client_encoding = 'LATIN1'",
			"check_function_bodies = off",
			"default_tablespace = 'pg_default'",
			"row_security = off",
			"plpgsql.extra_errors = 'all'",
			"quote_all_identifiers = on",
			"datestyle = 'SQL, DMY'",
			"default_transaction_read_only = on", // the last: it binds the connections that set these, too
		} {
			db.Exec(t, fmt.Sprintf(`alter database "%s" set %s`, db.Name, setting))
		}
		f := fileOf(v)
		mustBootstrap(t, db.URL, f, Options{})
		if r := mustBootstrap(t, db.URL, f, Options{}); r.Action != Unchanged || !r.Plan.Empty() {
			t.Errorf("again: %q %q", r.Action, r.Plan.Lines(f))
		}
		// What was recorded under these settings is true without them.
		conn := db.Server.Connect(t)
		if _, err := conn.Exec(t.Context(), fmt.Sprintf(`alter database "%s" reset all`, db.Name)); err != nil {
			t.Fatal(err)
		}
		if r := inspectAs(t, db.URL, f, Options{}); !r.Plan.Empty() || !r.Plan.From.Confirmed {
			t.Errorf("without the settings: %q %v", r.Plan.Lines(f), r.Plan.From)
		}
	})
	t.Run("transaction_timeout", func(t *testing.T) {
		if serverVersion(t, pgtest.Server(t)) < 170000 {
			t.Skip("the setting is PostgreSQL 17's")
		}
		db := pgtest.Database(t)
		db.Exec(t, fmt.Sprintf(`alter database "%s" set transaction_timeout = '30ms'`, db.Name))
		mustBootstrap(t, db.URL, fileOf(pgtest.Standin()), Options{})
	})
}

// A login that ALTER ROLE … SET role turns into another one.
func TestLoginWithARoleSet(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	group, login := db.Role(t, "createrole"), db.Role(t)
	db.Exec(t, fmt.Sprintf(`grant "%[1]s" to "%[2]s"; alter role "%[2]s" set role = "%[1]s"; grant create, temp on database "%[3]s" to "%[1]s" with grant option`, group, login, db.Name))
	f := fileOf(pgtest.Standin())
	// On a shared cluster the group administers no role that another one made.
	db.Exec(t, fmt.Sprintf(`do $$ begin create role pgque_owner; exception when duplicate_object or unique_violation then null; end $$; grant pgque_owner to "%s"; grant pgque_owner to "%s"`, group, login))
	mustBootstrap(t, db.URLAs(login), f, Options{})
	if r := mustBootstrap(t, db.URLAs(login), f, Options{Reinstall: true}); r.Action != Installed {
		t.Errorf("%q", r.Action)
	}
}

// Eight at once on one fresh database, and on eight databases of one fresh
// cluster: all end well, one installs (B035).
func TestEightAtOnce(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		pg := newCluster(t)
		f := fileOf(v)
		app := pg.Role(t)
		var collisions atomic.Int32
		say := func(format string, _ ...any) {
			if strings.HasPrefix(format, "trying again") {
				collisions.Add(1)
			}
		}
		together := func(urls []string) map[Action]int {
			t.Helper()
			actions := make(map[Action]int)
			var mu sync.Mutex
			var wg sync.WaitGroup
			for _, url := range urls {
				wg.Go(func() {
					r, err := bootstrapAs(t, url, f, Options{Grants: admin(app), Say: say})
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Errorf("bootstrap: %v", err)
						return
					}
					actions[r.Action]++
				})
			}
			wg.Wait()
			return actions
		}
		var eight []*pgtest.DB
		var urls []string
		for range 8 {
			db := pg.Database(t)
			eight = append(eight, db)
			urls = append(urls, db.URL)
		}
		if got := together(urls); got[Installed] != 8 {
			t.Errorf("on eight databases: %v", got)
		}
		for _, db := range eight {
			worksAsApp(t, db, app)
		}
		forget(t, eight...)
		// The lock and READ COMMITTED make the seven see what the first did: there
		// is no collision to try again after, whatever the default isolation.
		db := pg.Database(t)
		db.Exec(t, fmt.Sprintf(`alter database "%s" set default_transaction_isolation = 'repeatable read'`, db.Name))
		collisions.Store(0)
		one := make([]string, 8)
		for i := range one {
			one[i] = db.URL
		}
		if got := together(one); got[Installed] != 1 || got[Unchanged] != 7 {
			t.Errorf("on one database: %v", got)
		}
		if n := collisions.Load(); n > 0 {
			t.Errorf("%d collisions on one database", n)
		}
	})
}

// PgBouncer in transaction mode: no start-up parameters, no session state (B053, B054).
func TestThroughPgBouncer(t *testing.T) {
	t.Parallel()
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		db := pgtest.Database(t)
		url := pgtest.Bouncer(t, db, "transaction")
		f := fileOf(v)
		app := db.Role(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := bootstrapAs(t, url, f, Options{Grants: admin(app)}); err != nil {
					t.Errorf("bootstrap: %v", err)
				}
			})
		}
		wg.Wait()
		mustBootstrap(t, url, f, Options{Reinstall: true})
		worksAsApp(t, db, app)
		// Nothing stays in the server's session for the next client.
		conn, err := dialer(url)(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var left string
		err = conn.QueryRow(t.Context(), `select current_user || ' ' || current_setting('statement_timeout') || ' ' || current_setting('search_path') || ' ' ||
			(select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database()))`, pgx.QueryExecModeExec).Scan(&left)
		if err != nil || left != `postgres 0 "$user", public 0` {
			t.Errorf("left in the session: %q, %v", left, err)
		}
	})
}

// On a standby a run that has nothing to do succeeds; one that has work says
// that it is a standby (B082).
func TestStandby(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	f := fileOf(pgtest.Standin())
	installed, empty := pg.Database(t), pg.Database(t)
	mustBootstrap(t, installed.URL, f, Options{})
	standby := pg.Standby(t)
	pg.CatchUp(t, standby)
	if r := mustBootstrap(t, standby.URL(installed.Name, ""), f, Options{}); r.Action != Unchanged || !r.InRecovery {
		t.Errorf("%q, in recovery %v", r.Action, r.InRecovery)
	}
	_, err := bootstrapAs(t, standby.URL(empty.Name, ""), f, Options{})
	wantRefusal(t, err, fault.Database, "standby", "in recovery")
}

// A view on a function that the file drops: explained, rolled back, not retried.
func TestDependentView(t *testing.T) {
	t.Parallel()
	v := pgtest.Real(t, "v0.2.0")
	db := pgtest.Database(t)
	f := fileOf(v)
	mustBootstrap(t, db.URL, f, Options{})
	db.Exec(t, "create schema app; create view app.q as select * from pgque.get_queue_info()")
	_, err := bootstrapAs(t, db.URL, f, Options{Reinstall: true})
	wantRefusal(t, err, fault.SQL, "2BP01", "app.q", "pgque.sql:", "drop what depends on it")
	if r := mustBootstrap(t, db.URL, f, Options{}); r.Action != Unchanged {
		t.Errorf("%q", r.Action)
	}
}

// An event trigger that forbids DDL speaks for itself.
func TestEventTrigger(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Exec(t, `create function public.no() returns event_trigger language plpgsql as $$ begin raise exception 'change freeze until Monday'; end $$;
		create event trigger no on ddl_command_start execute function public.no()`)
	_, err := bootstrapAs(t, db.URL, fileOf(pgtest.Standin()), Options{})
	wantRefusal(t, err, fault.SQL, "change freeze until Monday")
}
