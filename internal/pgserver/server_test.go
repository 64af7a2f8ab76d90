package pgserver

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// binDir finds the programs as package pgtest does; it can't be used here, for
// it imports this package.
func binDir(t *testing.T) string {
	t.Helper()
	dir, err := Find(os.LookupEnv)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return dir
}

func start(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	cfg.BinDir = binDir(t)
	c, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func exec1(t *testing.T, c *Cluster, sql string) string {
	t.Helper()
	conn, err := c.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	c := start(t, Config{Settings: map[string]string{"application_name": "it's"}})
	ctx := t.Context()
	if got := exec1(t, c, `select current_setting('fsync') || current_setting('server_encoding') || current_setting('application_name')`); got != "offUTF8it's" {
		t.Errorf("settings = %q", got)
	}
	exec1(t, c, `create table kept()`)

	if err := c.Stop(ctx, "fast"); err != nil {
		t.Fatal(err)
	}
	if c.Running() {
		t.Error("runs after Stop")
	}
	if err := c.Launch(ctx); err != nil {
		t.Fatal(err)
	}
	c.Kill()
	if c.Running() {
		t.Error("runs after Kill")
	}
	if err := c.Launch(ctx); err != nil {
		t.Fatal(err)
	}
	if got := exec1(t, c, `select 'kept'::regclass::text`); got != "kept" {
		t.Errorf("table after a crash = %q", got)
	}
	if !strings.Contains(c.Log(), "database system was not properly shut down") {
		t.Error("the log does not tell of the crash")
	}

	c.Close()
	if _, err := os.Stat(c.Dir); !os.IsNotExist(err) {
		t.Errorf("folder after Close: %v", err)
	}
	c.Close() // again: harmless
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	c := start(t, Config{
		Auth: "scram-sha-256", Password: "it's a ⚿",
		HBA: []string{"host all rejected 127.0.0.1/32 reject"},
	})
	exec1(t, c, `select 1::text`)
	for user, want := range map[string]string{"postgres": "28P01", "rejected": "28000"} {
		_, err := pgx.Connect(t.Context(), c.URL("postgres", user, "wrong"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with a wrong password: %v, want SQLSTATE %s", user, err, want)
		}
	}
}

func TestStandby(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary := start(t, Config{})
	exec1(t, primary, `create table before(n int)`)
	standby, err := primary.Standby(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Close)

	exec1(t, primary, `create table after_it(n int)`)
	if err := primary.CatchUp(ctx, standby); err != nil {
		t.Fatal(err)
	}
	if got := exec1(t, standby, `select pg_is_in_recovery()::text || to_regclass('before') || to_regclass('after_it')`); got != "truebeforeafter_it" {
		t.Errorf("standby has %q", got)
	}
	primary.Kill()
	if err := standby.Promote(ctx); err != nil {
		t.Fatal(err)
	}
	exec1(t, standby, `create table promoted(n int)`)
}

// TestGoneWhenKilled runs itself as a child that starts a cluster, kills that
// child with SIGKILL, and waits until the server and its folder are gone.
func TestGoneWhenKilled(t *testing.T) {
	if os.Getenv("PGSERVER_TEST_CHILD") != "" {
		c, err := Start(context.Background(), Config{BinDir: os.Getenv("PGSERVER_TEST_CHILD")})
		if err != nil {
			os.Stdout.WriteString("error " + err.Error() + "\n")
			return
		}
		os.Stdout.WriteString(strconv.Itoa(c.Port) + " " + c.Dir + "\n")
		select {} // until the kill
	}
	t.Parallel()
	child := exec.Command(os.Args[0], "-test.run=^TestGoneWhenKilled$")
	child.Env = append(os.Environ(), "PGSERVER_TEST_CHILD="+binDir(t))
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	port, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
	if _, err := strconv.Atoi(port); !ok || err != nil {
		child.Process.Kill()
		t.Fatalf("the child says %q", line)
	}
	address := net.JoinHostPort("127.0.0.1", port)
	if conn, err := net.Dial("tcp", address); err != nil {
		t.Errorf("the server is not up before the kill: %v", err)
	} else {
		conn.Close()
	}

	child.Process.Kill()
	child.Wait()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		conn, dialErr := net.Dial("tcp", address)
		if dialErr == nil {
			conn.Close()
		}
		_, statErr := os.Stat(dir)
		if dialErr != nil && os.IsNotExist(statErr) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("two minutes after the kill: connect %v, folder %v", dialErr, statErr)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(bin, program(name)), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bin, err := filepath.EvalSymlinks(bin)
	if err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	lookup := func(env map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	}

	got, err := Find(lookup(map[string]string{"PGQUE_TEST_PG_BIN": bin, "PATH": empty}))
	if got != bin || err != nil {
		t.Errorf("by PGQUE_TEST_PG_BIN: %q, %v", got, err)
	}
	got, err = Find(lookup(map[string]string{"PATH": empty + string(filepath.ListSeparator) + bin}))
	if got != bin || err != nil {
		t.Errorf("by PATH: %q, %v", got, err)
	}
	_, err = Find(lookup(map[string]string{"PGQUE_TEST_PG_BIN": empty, "PATH": bin}))
	if err == nil || !strings.Contains(err.Error(), strconv.Quote(empty)) {
		t.Errorf("wrong PGQUE_TEST_PG_BIN: %v", err)
	}
}

func TestMajorOf(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]int{
		"/usr/lib/postgresql/15/bin":                              15,
		"/usr/pgsql-9.6/bin":                                      9,
		"/opt/homebrew/opt/postgresql@17/bin":                     17,
		"/opt/homebrew/opt/postgresql/bin":                        0,
		"/Applications/Postgres.app/Contents/Versions/latest/bin": 0,
		"/Applications/Postgres.app/Contents/Versions/16/bin":     16,
	} {
		if got := majorOf(filepath.FromSlash(dir)); got != want {
			t.Errorf("majorOf(%q) = %d, want %d", dir, got, want)
		}
	}
}
