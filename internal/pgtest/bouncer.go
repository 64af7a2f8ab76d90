package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/internal/pgserver"
)

// Bouncer starts a pgbouncer in front of the database's server and returns a
// connection string through it, as the superuser; BouncerURL makes one for
// another role. mode is transaction, session or statement. It ends with the
// test. Where pgbouncer is missing the test is skipped, or fails when CI=true.
func Bouncer(t testing.TB, db *DB, mode string) string {
	t.Helper()
	program, err := osexec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // where Debian puts it, outside many a PATH
		if _, err := os.Stat(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal("no pgbouncer for this test")
			}
			t.Skip("no pgbouncer for this test")
		}
	}
	port, err := pgserver.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	auth := "trust"
	if db.Server.cluster != nil && db.Server.cluster.Auth() != "trust" {
		auth = db.Server.cluster.Auth()
	}
	var log string
	stop, err := pgserver.Companion(func(dir string) (*osexec.Cmd, error) {
		log = filepath.Join(dir, "log")
		users := fmt.Sprintf("%q %q\n", db.Server.base.User.Username(), db.Server.Password())
		if err := os.WriteFile(filepath.Join(dir, "users"), []byte(users), 0o644); err != nil {
			return nil, err
		}
		ini := filepath.Join(dir, "ini")
		return osexec.CommandContext(t.Context(), program, ini), os.WriteFile(ini, []byte(bouncerConfig(db.Server, port, auth, mode, dir)), 0o644)
	})
	if err != nil {
		t.Fatalf("start pgbouncer: %v", err)
	}
	t.Cleanup(stop)

	through, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	through.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, through.String())
		if err == nil {
			conn.Close(ctx)
			return through.String()
		}
		if ctx.Err() != nil {
			text, _ := os.ReadFile(log)
			t.Fatalf("connect through pgbouncer: %v; its log:\n%s", err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// bouncerConfig lets every role in that the server knows, also those that a
// test creates later: the query looks their passwords up.
func bouncerConfig(pg *Postgres, port int, auth, mode, dir string) string {
	return fmt.Sprintf(`[databases]
* = host=%s port=%d auth_user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = %s
auth_file = %s
auth_query = select rolname::text, rolpassword from pg_catalog.pg_authid where rolname = $1
pool_mode = %s
default_pool_size = 20
max_client_conn = 200
logfile = %s
`, pg.Host(), pg.Port(), pg.base.User.Username(), port, auth, filepath.Join(dir, "users"), mode, filepath.Join(dir, "log"))
}

// BouncerURL makes the connection string of Bouncer one for another role of
// the database's server.
func BouncerURL(t testing.TB, bouncer string, db *DB, role string) string {
	t.Helper()
	through, err := url.Parse(bouncer)
	if err != nil {
		t.Fatal(err)
	}
	as, err := url.Parse(db.URLAs(role))
	if err != nil {
		t.Fatal(err)
	}
	as.Host = through.Host
	return as.String()
}
