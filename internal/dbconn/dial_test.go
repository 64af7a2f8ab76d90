package dbconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// listen starts a server on a free port. serve gets each connection, in a
// goroutine of its own; accepted counts them.
func listen(t *testing.T, serve func(net.Conn)) (address string, accepted *atomic.Int64) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted = new(atomic.Int64)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go serve(conn)
		}
	}()
	return l.Addr().String(), accepted
}

// relay passes connections on to another server.
func relay(t *testing.T, to string) (address string, accepted *atomic.Int64) {
	t.Helper()
	return listen(t, func(client net.Conn) {
		defer client.Close()
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", to)
		if err != nil {
			return
		}
		go func() {
			defer server.Close()
			_, _ = io.Copy(server, client)
		}()
		_, _ = io.Copy(client, server)
	})
}

// mute takes connections and never says a word.
func mute(t *testing.T) (address string, accepted *atomic.Int64) {
	t.Helper()
	return listen(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
}

// preferring has the default sslmode and finds the server at these addresses.
func preferring(t *testing.T, db *pgtest.DB, timeout time.Duration, addresses ...string) *Settings {
	t.Helper()
	u, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := settingsFor(t, "host=server.test sslmode=prefer dbname="+u.Database+" user="+u.User)
	s.config.ConnectTimeout = timeout
	s.config.LookupFunc = func(context.Context, string) ([]string, error) { return addresses, nil }
	return s
}

func serverAddress(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	u, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	return address("127.0.0.1", u.Port)
}

// A server without TLS gets one connection, not one for each kind. A cancel
// request, later, has its own.
func TestOneConnectionWithoutTLS(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	server, accepted := relay(t, serverAddress(t, db))
	conn, err := preferring(t, db, 2*time.Minute, server).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if n := accepted.Load(); n != 1 {
		t.Errorf("%d connections for one", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, "select pg_sleep(600)")
		ended <- err
	}()
	until(t, "the statement runs", func() bool {
		return db.Value(t, fmt.Sprintf("select state from pg_stat_activity where pid = %d", conn.PgConn().PID())) == "active"
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("a cancelled statement succeeded")
	}
	until(t, "the cancel request has its own connection", func() bool { return accepted.Load() == 2 })
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 2 minutes it does not hold that %s", what)
		}
	}
}

// Of a name with two addresses, one that does not answer is waited for once, not
// for TLS and again for plain text.
func TestSilentAddressIsAskedOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	silent, accepted := mute(t)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		before := accepted.Load()
		conn, err := preferring(t, db, 2*time.Second, silent, serverAddress(t, db)).Connect(t.Context())
		if asked := accepted.Load() - before; asked > 1 {
			t.Errorf("the silent address was asked %d times", asked)
		}
		if err == nil {
			conn.Close(context.Background())
			return
		}
		if time.Now().After(deadline) { // the other one had as little time
			t.Fatal(err)
		}
	}
}

// What plain text was not tried on is closed, and later dialling is plain dialling.
func TestAttemptEnds(t *testing.T) {
	t.Parallel()
	closed := make(chan error, 1)
	server, accepted := listen(t, func(conn net.Conn) {
		if _, err := conn.Write([]byte("N")); err != nil {
			t.Error(err)
		}
		_, err := conn.Read(make([]byte, 1))
		closed <- err
	})
	config, err := pgx.ParseConfig("host=127.0.0.1 user=u sslmode=prefer")
	if err != nil {
		t.Fatal(err)
	}
	end := preferTLS(config)
	conn, err := config.DialFunc(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	select {
	case err := <-closed:
		t.Errorf("a connection that waits for plain text was closed: %v", err)
	default:
	}
	end()
	if err := <-closed; !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	later, err := config.DialFunc(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	if _, wrapped := later.(*negotiation); wrapped || accepted.Load() > 2 {
		t.Errorf("after the end: %T", later)
	}
}

// An address that was silent is not dialled again in the same attempt.
func TestSilentAddress(t *testing.T) {
	t.Parallel()
	silent, _ := mute(t)
	config, err := pgx.ParseConfig("host=127.0.0.1 user=u sslmode=prefer")
	if err != nil {
		t.Fatal(err)
	}
	defer preferTLS(config)()
	conn, err := config.DialFunc(t.Context(), "tcp", silent)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	conn.Close()
	if _, err := config.DialFunc(t.Context(), "tcp", silent); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("dialled again: %v", err)
	}
}
