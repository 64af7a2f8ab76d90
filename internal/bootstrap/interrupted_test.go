package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A lock that somebody holds: named at once, waited for, never for ever (B040, B083).
func TestLocks(t *testing.T) {
	t.Parallel()
	f := fileOf(pgtest.Standin())
	// The time limit is over once this was said so many times.
	until := func(url, what string, times int, o Options) error {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		var n atomic.Int32
		o.Say = func(format string, args ...any) {
			if strings.Contains(fmt.Sprintf(format, args...), what) && int(n.Add(1)) == times {
				cancel(context.DeadlineExceeded)
			}
		}
		limited, stop := context.WithTimeout(ctx, 2*time.Minute)
		defer stop()
		_, err := Run(limited, dialer(url), f, o)
		if int(n.Load()) < times {
			t.Errorf("%q was said %d times, want %d", what, n.Load(), times)
		}
		return err
	}
	t.Run("install lock", func(t *testing.T) {
		db := pgtest.Database(t)
		holder := db.Connect(t)
		if _, err := holder.Exec(t.Context(), "set application_name = 'somebody'"); err != nil {
			t.Fatal(err)
		}
		if _, err := holder.Exec(t.Context(), fmt.Sprintf("select pg_advisory_lock(%d)", lockKey)); err != nil {
			t.Fatal(err)
		}
		err := until(db.URL, "waiting for the install lock, held by pid", 1, Options{LockTimeout: 100 * time.Millisecond})
		wantRefusal(t, err, fault.Database, fmt.Sprintf("pid %d (somebody", holder.PgConn().PID()), fmt.Sprintf("SELECT pg_terminate_backend(%d);", holder.PgConn().PID()))
		if n := db.Value(t, "select count(*) from pg_namespace where nspname = 'pgque'"); n != "0" {
			t.Error("something was installed")
		}
	})
	t.Run("table", func(t *testing.T) {
		db := pgtest.Database(t)
		mustBootstrap(t, db.URL, f, Options{})
		holder := db.Connect(t)
		tx, err := holder.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), "select from pgque.subscription"); err != nil {
			t.Fatal(err)
		}
		pid := fmt.Sprintf("pid %d", holder.PgConn().PID())
		err = until(db.URL, pid, 2, Options{Reinstall: true, LockTimeout: 100 * time.Millisecond})
		wantRefusal(t, err, fault.Database, pid, fmt.Sprintf("SELECT pg_terminate_backend(%d);", holder.PgConn().PID()))
		tx.Rollback(t.Context())
		mustBootstrap(t, db.URL, f, Options{Reinstall: true, LockTimeout: 100 * time.Millisecond})
	})
}

// Interrupted in the middle: nothing is left, and the error is the signal's.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	f := fileOf(pgtest.Standin())
	db := pgtest.Database(t)
	errSignal := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	_, err := Run(ctx, dialer(db.URL), f, Options{beforeCommit: func(ctx context.Context, tx pgx.Tx) error {
		cancel(errSignal)
		_, err := tx.Exec(ctx, "select pg_sleep(60)")
		return err
	}})
	if !errors.Is(err, errSignal) {
		t.Errorf("error %v, want the signal", err)
	}
	if n := db.Value(t, "select count(*) from pg_namespace where nspname = 'pgque'"); n != "0" {
		t.Error("something was left behind")
	}
	// The server has ended the transaction before the run returned, so a next
	// run does not wait for its locks.
	if n := db.Value(t, "select count(*) from pg_locks where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())"); n != "0" {
		t.Error("the install lock is still held")
	}
}

// A server that goes away during the install, and comes back.
func TestServerRestartsDuringInstall(t *testing.T) {
	t.Parallel()
	pg := newCluster(t)
	db := pg.Database(t)
	f := fileOf(pgtest.Standin())
	restarted := false
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dial := func(ctx context.Context) (*pgx.Conn, error) {
		for {
			conn, err := dialer(db.URL)(ctx)
			if err == nil || ctx.Err() != nil {
				return conn, err
			}
		}
	}
	r, err := Run(ctx, dial, f, Options{LockTimeout: time.Second, beforeCommit: func(ctx context.Context, tx pgx.Tx) error {
		if restarted {
			return nil
		}
		restarted = true
		pg.Stop(t, "immediate")
		pg.Start(t)
		_, err := tx.Exec(ctx, "select 1")
		return err
	}})
	if err != nil || r.Action != Installed {
		t.Fatalf("%v %+v", err, r)
	}
}

// A server that goes away during the install, and does not come back.
func TestServerGoesAwayDuringInstall(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	first := true
	errGone := fault.New(fault.Database, "no server")
	dial := func(ctx context.Context) (*pgx.Conn, error) {
		if !first {
			return nil, errGone
		}
		first = false
		return dialer(db.URL)(ctx)
	}
	_, err := Run(t.Context(), dial, fileOf(pgtest.Standin()), Options{LockTimeout: time.Second, beforeCommit: func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
		return err
	}})
	if !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
	if n := db.Value(t, "select count(*) from pg_namespace where nspname = 'pgque'"); n != "0" {
		t.Error("something was left behind")
	}
}

// The answer to COMMIT is lost: the database is asked what became of it.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	f := fileOf(pgtest.Standin())
	lose := func(t *testing.T, db *pgtest.DB, direction pgtest.Direction, dialAgain bool) (*Report, error) {
		proxy := pgtest.Proxy(t, db.Server.Address())
		first := true
		dial := func(ctx context.Context) (*pgx.Conn, error) {
			if first {
				first = false
				return dialer(proxy.URL(t, db.URL))(ctx)
			}
			if !dialAgain {
				return nil, errors.New("no server")
			}
			return dialer(db.URL)(ctx)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return Run(ctx, dial, f, Options{LockTimeout: time.Second, beforeCommit: func(ctx context.Context, tx pgx.Tx) error {
			if proxy.Conns() == 0 {
				return nil // the second try goes directly
			}
			proxy.Silence(direction)
			go func() {
				deadline := time.Now().Add(2 * time.Minute)
				for direction == pgtest.ToClient && time.Now().Before(deadline) && db.Value(t, "select count(*) from pg_namespace where nspname = 'pgque'") == "0" {
					time.Sleep(5 * time.Millisecond)
				}
				proxy.CutAll()
			}()
			return nil
		}})
	}
	t.Run("committed", func(t *testing.T) {
		db := pgtest.Database(t)
		r, err := lose(t, db, pgtest.ToClient, true)
		if err != nil || r.Action != Installed {
			t.Fatalf("%v %+v", err, r)
		}
	})
	t.Run("not committed", func(t *testing.T) {
		db := pgtest.Database(t)
		r, err := lose(t, db, pgtest.ToServer, true)
		if err != nil || r.Action != Installed {
			t.Fatalf("%v %+v", err, r)
		}
		if n := db.Value(t, "select count(*) from pg_namespace where nspname = 'pgque'"); n != "1" {
			t.Error("it says installed, and the database has nothing")
		}
	})
	t.Run("unknown", func(t *testing.T) {
		db := pgtest.Database(t)
		_, err := lose(t, db, pgtest.ToClient, false)
		wantRefusal(t, err, fault.SQL, "unknown", "bootstrap --check")
	})
}

// Another session that grants and revokes on the same objects all the time
// (B080): the collision is tried again.
func TestGrantsByOthersMeanwhile(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	app := db.Role(t)
	f := fileOf(pgtest.Standin())
	mustBootstrap(t, db.URL, f, Options{Grants: admin(app)})
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for range 2 {
		conn := db.Connect(t)
		others.Go(func() {
			for ctx.Err() == nil {
				for _, sql := range []string{
					`grant usage on schema pgque to "%s"`, `revoke usage on schema pgque from "%s"`,
					`grant execute on function pgque.version() to "%s"`, `revoke execute on function pgque.version() from "%s"`,
				} {
					conn.Exec(context.Background(), fmt.Sprintf(sql, app)) // these collide with each other, too
				}
			}
		})
	}
	for range 5 {
		if _, err := bootstrapAs(t, db.URL, f, Options{Grants: admin(app), Reinstall: true}); err != nil {
			t.Errorf("bootstrap: %v", err)
		}
	}
	cancel()
	others.Wait()
}

// A server that goes down between our connecting and our first look.
func TestLostBeforeTheFirstLook(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	dials := 0
	dial := func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := dialer(db.URL)(ctx)
		if dials++; dials == 1 && err == nil {
			db.Value(t, fmt.Sprintf("select pg_terminate_backend(%d, 10000)", conn.PgConn().PID()))
		}
		return conn, err
	}
	r, err := Run(t.Context(), dial, fileOf(pgtest.Standin()), Options{LockTimeout: time.Second})
	if err != nil || r.Action != Installed || dials != 2 {
		t.Errorf("%v, %d connections", err, dials)
	}
}

// A login's time limit may hit the statement that lifts it, on a busy machine.
// That is tried again; one within the transaction is not.
func TestTimeLimitBeforeTheTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	limits := []string{"statement_timeout"}
	if serverVersion(t, db.Server) >= 170000 {
		limits = append(limits, "transaction_timeout")
	}
	for _, limit := range limits {
		conn := db.Connect(t)
		if _, err := conn.Exec(t.Context(), "set "+limit+" = '20ms'"); err != nil {
			t.Fatal(err)
		}
		// A sleep takes the place of the other things that the machine does.
		if _, err := begin(t.Context(), conn, "read only; select pg_sleep(600)", 0); !retryable(err) {
			t.Errorf("%s: not tried again: %v", limit, err)
		}
	}
	_, err := db.Connect(t).Exec(t.Context(), "set statement_timeout = '20ms'; select pg_sleep(600)")
	if err == nil || retryable(err) {
		t.Errorf("tried again: %v", err)
	}
}
