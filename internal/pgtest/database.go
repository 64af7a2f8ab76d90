package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is a database of a test's own.
type DB struct {
	Name   string
	URL    string // as the superuser
	Server *Postgres
}

// DatabaseOptions are those of CREATE DATABASE.
type DatabaseOptions struct {
	Owner    string // default: the superuser
	Template string // default: template1, or template0 with an Encoding
	Encoding string // default: the server's
	Locale   string // default: "C" with an Encoding, else the server's
}

// Database creates an empty database on the shared server, and drops it with
// the test.
func Database(t testing.TB) *DB {
	t.Helper()
	return Server(t).Database(t)
}

// Database creates an empty database, and drops it with the test.
func (pg *Postgres) Database(t testing.TB) *DB {
	t.Helper()
	return pg.DatabaseWith(t, DatabaseOptions{})
}

// DatabaseWith creates a database with options, and drops it with the test.
func (pg *Postgres) DatabaseWith(t testing.TB, o DatabaseOptions) *DB {
	t.Helper()
	if o.Encoding != "" {
		if o.Template == "" {
			o.Template = "template0"
		}
		if o.Locale == "" {
			o.Locale = "C"
		}
	}
	name := uniqueName(t)
	sql := "create database " + quote(name)
	if o.Owner != "" {
		sql += " owner " + quote(o.Owner)
	}
	if o.Template != "" {
		sql += " template " + quote(o.Template)
	}
	if o.Encoding != "" {
		sql += fmt.Sprintf(" encoding '%s'", o.Encoding)
	}
	if o.Locale != "" {
		sql += fmt.Sprintf(" locale '%s'", o.Locale)
	}
	exec(t, pg.URL("", ""), sql)
	t.Cleanup(func() {
		if pg.cluster != nil && !pg.cluster.Running() {
			return // the test left its server stopped; the folder goes anyway
		}
		if err := tryExec(pg.URL("", ""), "drop database if exists "+quote(name)+" with (force)"); err != nil {
			t.Logf("drop database %q: %v", name, err)
		}
	})
	return &DB{Name: name, URL: pg.URL(name, ""), Server: pg}
}

// Connect opens a connection as the superuser, closed with the test.
func (db *DB) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	return connect(t, db.URL)
}

// ConnectAs opens a connection as a role that Role made, closed with the test.
func (db *DB) ConnectAs(t testing.TB, role string) *pgx.Conn {
	t.Helper()
	return connect(t, db.URLAs(role))
}

// Pool opens a pool as the superuser, closed with the test.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pool(t, db.URL)
}

// PoolAs opens a pool as a role that Role made, closed with the test.
func (db *DB) PoolAs(t testing.TB, role string) *pgxpool.Pool {
	t.Helper()
	return pool(t, db.URLAs(role))
}

func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// URLAs returns a connection string to this database for a role that Role
// made.
func (db *DB) URLAs(role string) string { return db.Server.URL(db.Name, role) }

// Role creates a login with a unique name and a password; with the test, what
// it owns in this database and the login itself are dropped.
func (db *DB) Role(t testing.TB, attributes ...string) string {
	t.Helper()
	name := db.Server.Role(t, attributes...)
	t.Cleanup(func() { _ = tryExec(db.URL, "drop owned by "+quote(name)+" cascade") })
	return name
}

// Exec runs statements without arguments as the superuser.
func (db *DB) Exec(t testing.TB, sql string) {
	t.Helper()
	exec(t, db.URL, sql)
}

// Value returns the one value of a query, as text; NULL and no row are "".
func (db *DB) Value(t testing.TB, sql string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", firstLine(sql), err)
	}
	if last := results[len(results)-1]; len(last.Rows) > 0 {
		return string(last.Rows[0][0])
	}
	return ""
}

// Install runs a variant's SQL as one message, as the superuser.
func (db *DB) Install(t testing.TB, v Variant) {
	t.Helper()
	db.InstallAs(t, v, "")
}

// InstallAs runs a variant's SQL as one message, as a role that Role made.
func (db *DB) InstallAs(t testing.TB, v Variant, role string) {
	t.Helper()
	db.Server.install.Lock()
	defer db.Server.install.Unlock()
	for try := 1; ; try++ {
		err := tryExec(db.URLAs(role), string(v.SQL))
		if err == nil {
			return
		}
		if try == 10 || !rolesCollided(err) {
			t.Fatalf("install %s: %v", v.Name, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// rolesCollided recognises what the install lock can't prevent: another
// process that installs on the same server at the same moment.
func rolesCollided(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	return pgErr.Code == "23505" && strings.HasPrefix(pgErr.ConstraintName, "pg_auth") ||
		pgErr.Code == "XX000" && strings.Contains(pgErr.Message, "concurrently updated")
}
