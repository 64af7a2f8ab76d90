package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
	"github.com/stega/pgque-vendor/internal/standin"
)

// fileOf is a variant as bootstrap gets it.
func fileOf(v pgtest.Variant) File {
	return fileFrom(v.SQL, v.Tag, v.Path)
}

func fileFrom(sql []byte, tag, path string) File {
	sum := sha256.Sum256(sql)
	return File{SQL: sql, SHA256: hex.EncodeToString(sum[:]), Repository: "NikolayS/PgQue", Tag: tag,
		Commit: strings.Repeat("c0ffee01", 5), Path: path}
}

func olderStandin(t testing.TB) pgtest.Variant {
	t.Helper()
	sql, err := standin.Release(standin.Older)
	if err != nil {
		t.Fatal(err)
	}
	return pgtest.Variant{Name: "standin-older", SQL: sql, Tag: standin.Older, Path: "sql/pgque.sql"}
}

func dialer(url string) Dial {
	return func(ctx context.Context) (*pgx.Conn, error) {
		config, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		return pgx.ConnectConfig(ctx, config)
	}
}

// bootstrapAs runs a bootstrap with a generous limit.
func bootstrapAs(t testing.TB, url string, f File, o Options) (*Report, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if o.LockTimeout == 0 {
		o.LockTimeout = 3 * time.Second
	}
	return Run(ctx, dialer(url), f, o)
}

func mustBootstrap(t testing.TB, url string, f File, o Options) *Report {
	t.Helper()
	r, err := bootstrapAs(t, url, f, o)
	if err != nil {
		t.Fatalf("bootstrap: %v\n%s", err, strings.Join(hintsOf(err), "\n"))
	}
	return r
}

// wantRefusal checks the class of a failure and that its text and hints have
// all the given pieces.
func wantRefusal(t testing.TB, err error, class fault.Class, pieces ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no failure, want class %d", class)
	}
	if !fault.Is(err, class) {
		t.Errorf("class %d, want %d: %v", fault.ClassOf(err), class, err)
	}
	text := err.Error() + "\n" + strings.Join(hintsOf(err), "\n")
	for _, piece := range pieces {
		if !strings.Contains(text, piece) {
			t.Errorf("%q is not in:\n%s", piece, text)
		}
	}
}

func hintsOf(err error) []string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Hints
	}
	return nil
}

// inspectAs is what --check and --plan look at.
func inspectAs(t testing.TB, url string, f File, o Options) *Report {
	t.Helper()
	ctx := context.Background()
	conn, err := dialer(url)(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	r, err := Inspect(ctx, conn, f, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func admin(to string) []Grant { return []Grant{{Role: Admin, To: to}} }

// newCluster is a server whose roles are this test's alone.
func newCluster(t testing.TB) *pgtest.Postgres {
	t.Helper()
	return pgtest.NewServer(t, pgtest.Options{})
}

// forget drops databases and then PgQue's roles, so that the next case of one
// server starts with neither.
func forget(t testing.TB, dbs ...*pgtest.DB) {
	t.Helper()
	ctx := context.Background()
	conn := dbs[0].Server.Connect(t)
	for _, db := range dbs {
		if _, err := conn.Exec(ctx, fmt.Sprintf(`drop database "%s" with (force)`, db.Name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []string{Admin, Writer, Reader, DefaultOwner} {
		if _, err := conn.Exec(ctx, "drop role if exists "+role); err != nil {
			t.Fatal(err)
		}
	}
}

// worksAsApp goes once round: the calls that an application's login makes.
func worksAsApp(t testing.TB, db *pgtest.DB, role string) {
	t.Helper()
	conn := db.ConnectAs(t, role)
	ctx := context.Background()
	queue := fmt.Sprintf("works_%d", time.Now().UnixNano())
	for _, sql := range []string{
		"select pgque.create_queue('%s')",
		"select pgque.subscribe('%s', 'c')",
		"select pgque.send('%s', 't', '{\"n\": 1}'::jsonb)",
	} {
		if _, err := conn.Exec(ctx, fmt.Sprintf(sql, queue)); err != nil {
			t.Fatalf(sql+": %v", queue, err)
		}
	}
	// The ticker is asked until it makes a tick: it declines while the last is young.
	deadline := time.Now().Add(2 * time.Minute)
	for time.Now().Before(deadline) {
		if _, err := conn.Exec(ctx, "select pgque.force_tick('"+queue+"')"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(ctx, "select pgque.ticker()"); err != nil {
			t.Fatal(err)
		}
		rows, err := conn.Query(ctx, "select batch_id from pgque.receive($1, 'c', 10)", pgx.QueryExecModeExec, queue)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		if len(batches) == 0 {
			continue
		}
		if _, err := conn.Exec(ctx, "select pgque.ack($1)", pgx.QueryExecModeExec, batches[0]); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("the event was never received")
}
