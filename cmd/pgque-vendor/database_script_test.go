package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// scriptDatabase is the database of a script, once it asked for one.
type scriptDatabase struct {
	test testing.TB
	real bool // PgQue itself in it, not the stand-in
	db   *pgtest.DB
}

func databaseOf(ts *testscript.TestScript) *scriptDatabase {
	d := ts.Value("database").(*scriptDatabase)
	if d.db == nil {
		ts.Fatalf("this script has started no database yet")
	}
	return d
}

// cmdDatabase: "database" makes a database with PgQue in it, "database empty" one
// without; PGQUE_VENDOR_DATABASE_URL names it, as the superuser.
func cmdDatabase(ts *testscript.TestScript, _ bool, args []string) {
	d := ts.Value("database").(*scriptDatabase)
	d.db = pgtest.Database(d.test)
	if len(args) == 0 {
		v := pgtest.Standin()
		if d.real {
			v = pgtest.Real(d.test, "v0.2.0")
		}
		d.db.Install(d.test, v)
	}
	ts.Setenv("PGQUE_VENDOR_DATABASE_URL", d.db.URL)
}

// cmdLogin: "login [ROLE…]" makes a login with these roles, which
// PGQUE_VENDOR_DATABASE_URL uses from then on, and $LOGIN names.
func cmdLogin(ts *testscript.TestScript, _ bool, args []string) {
	d := databaseOf(ts)
	login := d.db.Role(d.test)
	for _, role := range args {
		d.db.Exec(d.test, "grant "+role+" to "+login)
	}
	ts.Setenv("LOGIN", login)
	ts.Setenv("PGQUE_VENDOR_DATABASE_URL", d.db.URLAs(login))
}

// cmdSQL: "sql STATEMENTS" runs statements as the superuser; "sql QUERY WANT" waits
// up to 20 seconds for a query to give this value.
func cmdSQL(ts *testscript.TestScript, _ bool, args []string) {
	d := databaseOf(ts)
	conn, err := pgx.Connect(context.Background(), d.db.URL)
	ts.Check(err)
	defer conn.Close(context.Background())
	if len(args) == 1 {
		_, err := conn.Exec(context.Background(), args[0])
		ts.Check(err)
		return
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		var got *string
		ts.Check(conn.QueryRow(context.Background(), "select ("+args[0]+")::text").Scan(&got))
		if got != nil && *got == args[1] {
			return
		}
		if time.Now().After(deadline) {
			value := "NULL"
			if got != nil {
				value = *got
			}
			ts.Fatalf("%s is %q, want %q", strings.TrimSpace(args[0]), value, args[1])
		}
		time.Sleep(20 * time.Millisecond)
	}
}
