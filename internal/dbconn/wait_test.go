package dbconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

func settingsFor(t testing.TB, connString string) *Settings {
	t.Helper()
	s, err := Resolve(input(map[string]string{"DATABASE_URL": connString}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// change makes another connection string of one.
func change(t testing.TB, connString string, edit func(*url.URL)) string {
	t.Helper()
	u, err := url.Parse(connString)
	if err != nil {
		t.Fatal(err)
	}
	edit(u)
	return u.String()
}

// What waiting cannot mend ends at once, with exit 4 and the server's words (B029).
func TestRefusedLoginEndsAtOnce(t *testing.T) {
	pg := pgtest.NewServer(t, pgtest.Options{Auth: "scram-sha-256", HBA: []string{"host all outsider 127.0.0.1/32 reject"}})
	db := pg.Database(t)
	app := pg.Role(t)
	db.Exec(t, fmt.Sprintf(`create role outsider login; create role nologin; create role "limited" login password 'pw-limited' connection limit 0; revoke connect on database "%s" from public`, db.Name))
	good := db.URLAs(app)
	user := func(name, password string) string {
		return change(t, good, func(u *url.URL) { u.User = url.UserPassword(name, password) })
	}
	for _, c := range []struct {
		name, url string
		pieces    []string
	}{
		{"wrong password", user(app, "zQ7wXj9vKp3YmB"), []string{"28P01", "password authentication failed", "the password came from DATABASE_URL"}},
		{"no password", user(app, ""), []string{"28P01", "no password is set", "PGPASSWORD_FILE", "PGPASSWORD,", "PGPASSFILE"}},
		{"odd password", user(app, "zQ7wXj9vKp3YmB "), []string{"28P01", "begins or ends with white space"}},
		{"unknown role", user("nobody", "zQ7wXj9vKp3YmB"), []string{"28P01"}},
		{"no entry in pg_hba.conf", user("outsider", ""), []string{"28000", "pg_hba.conf"}},
		{"no CONNECT", good, []string{"42501", "GRANT CONNECT ON DATABASE"}},
		{"no TLS", change(t, db.URL, func(u *url.URL) { u.RawQuery = "sslmode=require" }), []string{"no TLS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			_, err := settingsFor(t, c.url).Wait(t.Context(), WaitOptions{Limit: 10 * time.Minute})
			if time.Since(start) > 5*time.Minute {
				t.Errorf("it took %s", time.Since(start))
			}
			checkFailure(t, err, c.pieces...)
			if err != nil && strings.Contains(fmt.Sprint(err, hintsOf(err)), "zQ7w") {
				t.Errorf("the password is shown: %v %v", err, hintsOf(err))
			}
		})
	}
}

func hintsOf(err error) []string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Hints
	}
	return nil
}

func checkFailure(t *testing.T, err error, pieces ...string) {
	t.Helper()
	if !fault.Is(err, fault.Database) {
		t.Fatalf("class of %v is not that of exit 4", err)
	}
	text := err.Error() + "\n" + strings.Join(hintsOf(err), "\n")
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("%q is not in %s", piece, text)
		}
	}
}

// A server that is not there yet: waited for, said once per reason, and given
// up with the last reason and the number of tries (B052, B084).
func TestServerThatIsNotThereYet(t *testing.T) {
	pg := pgtest.NewServer(t, pgtest.Options{})
	db := pg.Database(t)
	pg.Stop(t, "fast")
	s := settingsFor(t, db.URL)

	_, err := s.Wait(t.Context(), WaitOptions{})
	checkFailure(t, err, "connection refused")
	_, err = s.Wait(t.Context(), WaitOptions{Limit: 500 * time.Millisecond})
	checkFailure(t, err, "connection refused", "tries", "not reachable within")

	var mu sync.Mutex
	var said []string
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
		if len(said) == 1 {
			go pg.Start(t) // only once it is being waited for
		}
	}
	conn, err := s.Wait(t.Context(), WaitOptions{Limit: time.Minute, Say: say})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	mu.Lock()
	defer mu.Unlock()
	if len(said) == 0 || len(said) > 5 || !strings.Contains(said[0], "connection refused") {
		t.Errorf("said %q", said)
	}
}

// A database that is created while we wait; and one that never is.
func TestDatabaseThatIsNotThereYet(t *testing.T) {
	pg := pgtest.Server(t)
	name := fmt.Sprintf("late_%d", time.Now().UnixNano())
	conn := pg.Connect(t)
	s := settingsFor(t, pg.URL(name, ""))
	_, err := s.Wait(t.Context(), WaitOptions{Limit: 300 * time.Millisecond})
	checkFailure(t, err, "3D000", "CREATE DATABASE")

	created := make(chan error, 1)
	var once sync.Once
	late, err := s.Wait(t.Context(), WaitOptions{Limit: time.Minute, Say: func(string, ...any) {
		once.Do(func() {
			go func() {
				_, err := conn.Exec(context.Background(), "create database "+name)
				created <- err
			}()
		})
	}})
	if err != nil {
		t.Fatal(err)
	}
	late.Close(t.Context())
	if err := <-created; err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "drop database "+name+" with (force)"); err != nil {
		t.Error(err)
	}
}

// A name that does not resolve at first (B084), with the resolver injected.
func TestNameThatDoesNotResolveYet(t *testing.T) {
	pg := pgtest.Server(t)
	s := settingsFor(t, change(t, pg.URL("", ""), func(u *url.URL) { u.Host = fmt.Sprintf("events.internal:%d", pg.Port()) }))
	tries := 0
	s.config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		if tries++; tries < 3 {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return []string{"::1", "127.0.0.1"}, nil // the first address refuses
	}
	var said []string
	conn, err := s.Wait(t.Context(), WaitOptions{Limit: time.Minute, Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	if len(said) != 1 || !strings.Contains(said[0], `"events.internal" cannot be resolved`) {
		t.Errorf("said %q", said)
	}
	s.config.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	_, err = s.Wait(t.Context(), WaitOptions{Limit: 300 * time.Millisecond})
	checkFailure(t, err, "events.internal", "same network", "tries")
}

func TestStopsAtASignal(t *testing.T) {
	errSignal := errors.New("signal")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := settingsFor(t, "postgres://u@127.0.0.1:1/d?sslmode=disable")
	_, err := s.Wait(ctx, WaitOptions{Limit: time.Minute, Say: func(string, ...any) { cancel(errSignal) }})
	if !errors.Is(err, errSignal) {
		t.Errorf("%v", err)
	}
}

// A server that accepts and says nothing is no server yet.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := settingsFor(t, "postgres://u@"+l.Addr().String()+"/d?sslmode=disable")
	s.config.ConnectTimeout = 200 * time.Millisecond
	_, err = s.Wait(t.Context(), WaitOptions{Limit: 500 * time.Millisecond})
	checkFailure(t, err, "no answer in time")
}

func TestAccept(t *testing.T) {
	s := settingsFor(t, pgtest.Server(t).URL("", ""))
	calls := 0
	conn, err := s.Wait(t.Context(), WaitOptions{Limit: time.Minute, Accept: func(context.Context, *pgx.Conn) (string, error) {
		if calls++; calls < 2 {
			return "not yet", nil
		}
		return "", nil
	}})
	if err != nil || calls != 2 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	conn.Close(t.Context())
}

// Several hosts: the primary is preferred whatever the order (B082).
func TestPrefersThePrimary(t *testing.T) {
	pg := pgtest.NewServer(t, pgtest.Options{})
	standby := pg.Standby(t)
	for _, hosts := range []string{standby.Address() + "," + pg.Address(), pg.Address() + "," + standby.Address()} {
		conn, err := settingsFor(t, change(t, pg.URL("", ""), func(u *url.URL) { u.Host = hosts })).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.PgConn().ParameterStatus("in_hot_standby"); got != "off" {
			t.Errorf("%s: connected to a standby", hosts)
		}
		conn.Close(t.Context())
	}
	conn, err := settingsFor(t, change(t, pg.URL("", ""), func(u *url.URL) { u.Host = standby.Address() + ",127.0.0.1:1" })).Connect(t.Context())
	if err != nil {
		t.Fatalf("only a standby is there: %v", err)
	}
	conn.Close(t.Context())
	_, err = settingsFor(t, change(t, pg.URL("", ""), func(u *url.URL) {
		u.Host = standby.Address()
		u.RawQuery += "&target_session_attrs=read-write"
	})).Connect(t.Context())
	checkFailure(t, err, "in recovery")
}

// PgBouncer knows no options= (B054).
func TestStartupParameterThroughPgBouncer(t *testing.T) {
	db := pgtest.Database(t)
	bouncer := pgtest.Bouncer(t, db, "transaction")
	conn, err := settingsFor(t, bouncer).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	_, err = settingsFor(t, change(t, bouncer, func(u *url.URL) { u.RawQuery += "&options=-c%20statement_timeout%3D1" })).Connect(t.Context())
	checkFailure(t, err, "unsupported startup parameter", "ignore_startup_parameters")
}

// Settings of the login must not garble text, nor turn a month into a day, directly
// and behind a pooler (B016).
func TestTextOfTheConnection(t *testing.T) {
	db := pgtest.Database(t)
	role := db.Role(t)
	db.Exec(t, fmt.Sprintf(`alter role "%[1]s" set client_encoding = 'LATIN1'; alter role "%[1]s" set datestyle = 'SQL, DMY'`, role))
	for name, connString := range map[string]string{
		"directly": db.URLAs(role),
		"pooler":   pgtest.BouncerURL(t, pgtest.Bouncer(t, db, "transaction"), db, role),
	} {
		conn, err := settingsFor(t, connString).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(t.Context())
		var characters int
		var day string
		if err := conn.QueryRow(t.Context(), "select length($1::text), '2026-02-01'::date::text", "aé€").Scan(&characters, &day); err != nil {
			t.Fatal(err)
		}
		if characters != 3 || day != "2026-02-01" {
			t.Errorf("%s: the server got %d characters and says %q", name, characters, day)
		}
	}
}
