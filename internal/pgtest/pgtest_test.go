package pgtest

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestDatabaseIsEmptyAndGoes(t *testing.T) {
	t.Parallel()
	var name string
	t.Run("use", func(t *testing.T) {
		db := Database(t)
		name = db.Name
		if got := db.Value(t, `select current_database() || current_setting('server_encoding')`); got != name+"UTF8" {
			t.Errorf("database and encoding = %q", got)
		}
		role := db.Role(t, "createrole")
		conn := db.ConnectAs(t, role)
		var got string
		if err := conn.QueryRow(t.Context(), `select current_user::text`).Scan(&got); err != nil || got != role {
			t.Errorf("current_user = %q, %v", got, err)
		}
	})
	conn := Server(t).Connect(t)
	var left int
	err := conn.QueryRow(t.Context(), `select (select count(*) from pg_database where datname = $1)
		+ (select count(*) from pg_roles where rolname like 't_testdatabaseisempty%')`, name).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d databases and roles are left, %v", left, err)
	}
}

func TestDatabaseOptions(t *testing.T) {
	t.Parallel()
	pg := Server(t)
	owner := pg.Role(t)
	db := pg.DatabaseWith(t, DatabaseOptions{Encoding: "LATIN1", Owner: owner})
	got := db.Value(t, `select pg_encoding_to_char(encoding) || pg_get_userbyid(datdba) from pg_database where datname = current_database()`)
	if got != "LATIN1"+owner {
		t.Errorf("encoding and owner = %q", got)
	}
}

func TestEachVariantInstallsTwice(t *testing.T) {
	t.Parallel()
	EachVariant(t, func(t *testing.T, v Variant) {
		db := Database(t)
		db.Install(t, v)
		db.Install(t, v)
		if got := db.Value(t, `select pgque.version()`); got != v.Version {
			t.Errorf("version = %q, want %q", got, v.Version)
		}
	})
}

func TestServerOfItsOwn(t *testing.T) {
	t.Parallel()
	pg := NewServer(t, Options{Auth: "scram-sha-256", Settings: map[string]string{"max_connections": "33"}})
	db := pg.Database(t)
	if got := db.Value(t, `show max_connections`); got != "33" {
		t.Errorf("max_connections = %q", got)
	}
	role := db.Role(t)
	db.ConnectAs(t, role)
	pg.Restart(t)
	pg.Kill(t)
	pg.Start(t)
	standby := pg.Standby(t)
	db.Exec(t, `create table t()`)
	pg.CatchUp(t, standby)
	there := connect(t, standby.URL(db.Name, role))
	var table string
	if err := there.QueryRow(t.Context(), `select 't'::regclass::text`).Scan(&table); err != nil {
		t.Errorf("table on the standby: %v", err)
	}
	pg.Stop(t, "immediate")
	standby.Promote(t)
	exec(t, standby.URL(db.Name, ""), `create table u()`)
	if !strings.Contains(pg.Log(), "immediate shutdown") {
		t.Error("the log does not tell of the stop")
	}
}

func TestBouncer(t *testing.T) {
	t.Parallel()
	for _, auth := range []string{"trust", "scram-sha-256"} {
		t.Run(auth, func(t *testing.T) {
			t.Parallel()
			db := NewServer(t, Options{Auth: auth}).Database(t)
			through := Bouncer(t, db, "transaction")
			role := db.Role(t)
			conn := connect(t, BouncerURL(t, through, db, role))
			var got string
			err := conn.QueryRow(t.Context(), `select current_user::text`, pgx.QueryExecModeSimpleProtocol).Scan(&got)
			if err != nil || got != role {
				t.Errorf("current_user = %q, %v", got, err)
			}
			// What makes it a pooler: unknown startup parameters are refused.
			_, err = pgx.Connect(t.Context(), through+"&statement_timeout=1000")
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "08P01" {
				t.Errorf("a startup parameter: %v, want 08P01", err)
			}
		})
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	db := Database(t)
	p := Proxy(t, db.Server.Address())
	conn := connect(t, p.URL(t, db.URL))
	ask := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_, err := conn.PgConn().Exec(ctx, `select 1`).ReadAll()
		return err
	}
	if err := ask(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	p.Delay(30 * time.Millisecond)
	begin := time.Now()
	if err := ask(10 * time.Second); err != nil || time.Since(begin) < 60*time.Millisecond {
		t.Errorf("with a delay: %v after %v", err, time.Since(begin))
	}
	p.Delay(0)
	if p.Conns() != 1 {
		t.Errorf("%d connections, want 1", p.Conns())
	}

	p.Silence(ToClient)
	if err := ask(100 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("in silence: %v, want a timeout", err)
	}
	p.Resume()

	conn = connect(t, p.URL(t, db.URL))
	p.CutAll()
	err := ask(10 * time.Second)
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("after the cut: %v, want a reset", err)
	}
}
