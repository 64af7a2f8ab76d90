package bootstrap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// An application that has pgque_admin must not become superuser, neither by its
// own calls nor by what it lays out for the next bootstrap, which usually runs as
// one. What it lays out tries each way back from the owner's role.
func TestApplicationCannotBecomeSuperuser(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	pgtest.EachVariant(t, func(t *testing.T, v pgtest.Variant) {
		for _, trap := range []struct{ name, sql, named string }{
			{"deferred trigger", `create constraint trigger trap after insert or update on pgque.queue
				deferrable initially deferred for each row execute function pgque.rise()`, "trap on pgque.queue"},
			{"trigger", `create trigger trap before insert or update on pgque.config for each row execute function pgque.rise()`, "trap on pgque.config"},
			// A function of PgQue's that the application shadows writes to a table
			// of the application's, whose trigger waits for COMMIT.
			{"shadowed function", `create table public.bait (n int); grant insert on public.bait to public;
				create constraint trigger trap after insert on public.bait deferrable initially deferred for each row execute function pgque.rise();
				create function pgque.format(text, variadic text[]) returns text language plpgsql as 'begin insert into public.bait values (1); return pg_catalog.format($1, variadic $2); end';
				create function pgque.now() returns timestamptz language plpgsql as 'begin insert into public.bait values (1); return pg_catalog.now(); end'`, "pgque.now()"},
			{"shadowed table", "create view pgque.pg_class as select * from pg_catalog.pg_class", "pgque.pg_class"},
			{"operator", `create function pgque.same(text, text) returns boolean language sql as 'select true';
				create operator pgque.= (function = pgque.same, leftarg = text, rightarg = text)`, "operator pgque.=(text,text)"},
		} {
			t.Run(trap.name, func(t *testing.T) {
				db := pg.Database(t)
				defer forget(t, db)
				app := db.Role(t)
				db.Exec(t, "grant create on schema public to public")
				f, o := fileOf(v), Options{Grants: admin(app)}
				mustBootstrap(t, db.URL, f, o)
				conn := db.ConnectAs(t, app)
				for _, sql := range []string{
					fmt.Sprintf(`create function pgque.rise() returns trigger language plpgsql security invoker as $$ begin
						begin execute 'reset role'; exception when others then null; end;
						begin execute 'alter role "%s" superuser'; exception when others then null; end;
						begin execute 'set role pgque_owner'; exception when others then null; end;
						return new; end $$`, app), trap.sql,
				} {
					if _, err := conn.Exec(t.Context(), sql); err != nil {
						t.Fatal(err)
					}
				}
				r := mustBootstrap(t, db.URL, f, o)
				if r.Plan.Install || !strings.Contains(strings.Join(r.Plan.Warnings, "\n"), trap.named) {
					t.Errorf("a run with nothing to do: %q, warnings %q", r.Plan.Lines(f), r.Plan.Warnings)
				}
				queue := queueMaker{}
				for _, change := range []Options{{Reinstall: true}, {Provisioner: queue}} {
					_, err := bootstrapAs(t, db.URL, f, change)
					if got := db.Value(t, fmt.Sprintf("select rolsuper::text from pg_roles where rolname = '%s'", app)); got != "false" {
						t.Errorf("the application is superuser after %+v", change)
						db.Exec(t, fmt.Sprintf(`alter role "%s" nosuperuser`, app))
					}
					if err == nil {
						t.Errorf("%+v is not refused", change)
						continue
					}
					wantRefusal(t, err, fault.Policy, trap.named, "DROP ")
				}
				_, err := bootstrapAs(t, db.URL, f, Options{Reinstall: true})
				for _, hint := range hintsOf(err) {
					sql, _, _ := strings.Cut(hint, "   --")
					db.Exec(t, sql)
				}
				mustBootstrap(t, db.URL, f, Options{Reinstall: true})
				mustBootstrap(t, db.URL, f, Options{Provisioner: queue})
			})
		}
	})
}

// The probe looks for the names of built-in relations among the types alone.
func TestBuiltinRelationsAreTypes(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if names := db.Value(t, `select coalesce(string_agg(c.relname, ', '), '') from pg_class as c
		where c.relnamespace = 'pg_catalog'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
		  and not exists (select from pg_type as t where t.typnamespace = c.relnamespace and t.typname = c.relname)`); names != "" {
		t.Errorf("no types of their own: %s", names)
	}
}
