// Package pgtest gives a test a real PostgreSQL without any set-up: a server
// for the test process, a database for each test, PgQue or its stand-in in it,
// and the things that stand between a program and its database (pgbouncer, a
// network that falls silent).
//
// The server's programs come from PGQUE_TEST_PG_BIN, PATH, the usual places,
// or a download. TEST_DATABASE_URL names a server to use instead; its login
// must be a superuser. Where no server can be had, the test is skipped, or
// fails when CI=true, so that a green CI never means "no database".
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stega/pgque-vendor/internal/pgserver"
)

// startLimit bounds the start of a server on a busy machine.
const startLimit = 60 * time.Second

// Postgres is a server that tests may use.
type Postgres struct {
	base    url.URL           // of the superuser, without a database
	cluster *pgserver.Cluster // nil for a server of TEST_DATABASE_URL

	mu        sync.Mutex
	passwords map[string]string // of the roles made here

	// install is held while roles are made: PgQue's three roles belong to the
	// cluster, and two installs at once collide on them.
	install sync.Mutex
}

// Options are the settings of a server of a test's own.
type Options struct {
	BinDir   string            // default: as found
	Auth     string            // "trust" (default) or "scram-sha-256"
	Password string            // the superuser's; default "postgres"
	HBA      []string          // lines of pg_hba.conf before ours
	Settings map[string]string // of postgresql.conf
	Fsync    bool              // default off
	Locale   string            // default C.UTF-8
	Encoding string            // default UTF8
}

// shared is the server of this test process. It has no cleanup: the guard of
// pgserver ends it when the process does.
var shared = sync.OnceValues(func() (*Postgres, error) {
	if external := os.Getenv("TEST_DATABASE_URL"); external != "" {
		base, err := url.Parse(external)
		if err != nil || base.Scheme == "" {
			return nil, fmt.Errorf("TEST_DATABASE_URL must be a postgres:// URL")
		}
		return newPostgres(*base, nil), nil
	}
	return startPostgres(Options{})
})

// Server returns the one server of this test process, started at the first
// call: trust authentication, fsync off, 200 connections, UTF8.
func Server(t testing.TB) *Postgres {
	t.Helper()
	pg, err := shared()
	if err != nil {
		noServer(t, err)
	}
	return pg
}

// NewServer starts a server for this test alone, for tests that stop it,
// crash it or need other settings. It ends with the test.
func NewServer(t testing.TB, o Options) *Postgres {
	t.Helper()
	if os.Getenv("TEST_DATABASE_URL") != "" {
		t.Skip("this test needs a server of its own, and TEST_DATABASE_URL is set")
	}
	pg, err := startPostgres(o)
	if err != nil {
		noServer(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() && testing.Verbose() {
			log := strings.Split(strings.TrimSpace(pg.Log()), "\n")
			t.Logf("the end of the server's log:\n%s", strings.Join(log[max(0, len(log)-50):], "\n"))
		}
		pg.cluster.Close()
	})
	return pg
}

func noServer(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("no PostgreSQL for this test: %v", err)
	}
	t.Skipf("no PostgreSQL for this test: %v", err)
}

func startPostgres(o Options) (*Postgres, error) {
	if o.BinDir == "" {
		dir, err := binDir()
		if err != nil {
			return nil, err
		}
		o.BinDir = dir
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	cluster, err := pgserver.Start(ctx, pgserver.Config{
		BinDir: o.BinDir, Auth: o.Auth, Password: o.Password, HBA: o.HBA,
		Settings: o.Settings, Fsync: o.Fsync, Locale: o.Locale, Encoding: o.Encoding,
	})
	if err != nil {
		return nil, err
	}
	return ofCluster(cluster)
}

func ofCluster(cluster *pgserver.Cluster) (*Postgres, error) {
	base, err := url.Parse(cluster.URL("", "", ""))
	if err != nil {
		return nil, err
	}
	return newPostgres(*base, cluster), nil
}

func newPostgres(base url.URL, cluster *pgserver.Cluster) *Postgres {
	return &Postgres{base: base, cluster: cluster, passwords: map[string]string{}}
}

// binDir finds the server's programs, and downloads them where there are none.
var binDir = sync.OnceValues(func() (string, error) {
	dir, err := pgserver.Find(os.LookupEnv)
	if !errors.Is(err, pgserver.ErrNotFound) {
		return dir, err
	}
	// The user that root hands the server to can't enter root's own cache.
	cache := filepath.Join(os.TempDir(), "pgque-embedded-postgres-"+strconv.Itoa(os.Getuid()))
	if runtime.GOOS != "windows" && os.Geteuid() != 0 {
		if home, err := os.UserCacheDir(); err == nil {
			cache = filepath.Join(home, "pgque-embedded-postgres")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, downloadErr := pgserver.Download(ctx, cache, "", os.Stderr)
	if downloadErr != nil {
		return "", fmt.Errorf("%w; %w", err, downloadErr)
	}
	return dir, nil
})

// External reports whether the server is that of TEST_DATABASE_URL, which a
// test can neither stop nor restart.
func (pg *Postgres) External() bool { return pg.cluster == nil }

// own returns the cluster of a server that is ours to stop.
func (pg *Postgres) own(t testing.TB) *pgserver.Cluster {
	t.Helper()
	if pg.cluster == nil {
		t.Skip("this test stops its server, and that of TEST_DATABASE_URL is not ours")
	}
	return pg.cluster
}

// Host, Port and Password are the superuser's way in, for tests that put
// connection settings together themselves.
func (pg *Postgres) Host() string { return pg.base.Hostname() }

// Port returns the server's TCP port.
func (pg *Postgres) Port() int {
	port, err := strconv.Atoi(pg.base.Port())
	if err != nil {
		return 5432
	}
	return port
}

// Password returns the superuser's password.
func (pg *Postgres) Password() string {
	password, _ := pg.base.User.Password()
	return password
}

// Address returns host:port.
func (pg *Postgres) Address() string { return net.JoinHostPort(pg.Host(), strconv.Itoa(pg.Port())) }

// SocketDir returns the folder of the unix socket, or "" where there is none.
func (pg *Postgres) SocketDir() string {
	if pg.cluster == nil || runtime.GOOS == "windows" {
		return ""
	}
	return pg.cluster.Dir
}

// URL returns a connection string: an empty database means "postgres", an
// empty role the superuser. The password is that of a role made by Role.
func (pg *Postgres) URL(database, role string) string {
	u := pg.base
	if database == "" {
		database = "postgres"
	}
	u.Path = "/" + database
	if role != "" {
		pg.mu.Lock()
		u.User = url.UserPassword(role, pg.passwords[role])
		pg.mu.Unlock()
	}
	return u.String()
}

// Connect opens a connection to the database "postgres" as the superuser, and
// closes it with the test.
func (pg *Postgres) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	return connect(t, pg.URL("", ""))
}

// Role creates a login with a unique name and a password, and drops it with
// the test. attributes are those of CREATE ROLE: "createrole", "noinherit".
func (pg *Postgres) Role(t testing.TB, attributes ...string) string {
	t.Helper()
	name, password := uniqueName(t), "pw-"+randomHex(8)
	exec(t, pg.URL("", ""), fmt.Sprintf("create role %s login password '%s' %s",
		quote(name), password, strings.Join(attributes, " ")))
	pg.mu.Lock()
	pg.passwords[name] = password
	pg.mu.Unlock()
	t.Cleanup(func() {
		// What the role still holds elsewhere keeps it: its name is unique, so
		// that disturbs nobody.
		_ = tryExec(pg.URL("", ""), "drop owned by "+quote(name))
		_ = tryExec(pg.URL("", ""), "drop role "+quote(name))
	})
	return name
}

// Stop ends the server: mode is smart, fast or immediate.
func (pg *Postgres) Stop(t testing.TB, mode string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := pg.own(t).Stop(ctx, mode); err != nil {
		t.Fatal(err)
	}
}

// Start starts a server that was stopped or killed, on the same port.
func (pg *Postgres) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := pg.own(t).Launch(ctx); err != nil {
		t.Fatal(err)
	}
}

// Restart is a fast stop and a start.
func (pg *Postgres) Restart(t testing.TB) {
	t.Helper()
	pg.Stop(t, "fast")
	pg.Start(t)
}

// Kill crashes the server with SIGKILL.
func (pg *Postgres) Kill(t testing.TB) {
	t.Helper()
	pg.own(t).Kill()
}

// Log returns what the server has logged, or "" for that of
// TEST_DATABASE_URL.
func (pg *Postgres) Log() string {
	if pg.cluster == nil {
		return ""
	}
	return pg.cluster.Log()
}

// Standby starts a hot standby that streams from this server. It ends with
// the test.
func (pg *Postgres) Standby(t testing.TB) *Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	cluster, err := pg.own(t).Standby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	standby, err := ofCluster(cluster)
	if err != nil {
		t.Fatal(err)
	}
	pg.mu.Lock()
	defer pg.mu.Unlock()
	for role, password := range pg.passwords {
		standby.passwords[role] = password
	}
	return standby
}

// CatchUp waits until a standby has all that this server has written.
func (pg *Postgres) CatchUp(t testing.TB, standby *Postgres) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := pg.own(t).CatchUp(ctx, standby.own(t)); err != nil {
		t.Fatal(err)
	}
}

// Promote turns a standby into a primary.
func (pg *Postgres) Promote(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	if err := pg.own(t).Promote(ctx); err != nil {
		t.Fatal(err)
	}
}

// connect opens a connection that the test's end closes.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// exec runs statements without arguments on a connection of their own.
func exec(t testing.TB, url, sql string) {
	t.Helper()
	if err := tryExec(url, sql); err != nil {
		t.Fatalf("%s: %v", firstLine(sql), err)
	}
}

func tryExec(url, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// uniqueName makes an identifier that tells which test made it.
func uniqueName(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, t.Name())
	return "t_" + name[:min(len(name), 44)] + "_" + randomHex(6)
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func quote(identifier string) string { return pgx.Identifier{identifier}.Sanitize() }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
