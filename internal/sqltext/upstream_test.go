package sqltext_test

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stega/pgque-vendor/internal/sqltext"
)

// upstreamSQL reads a file of PgQue at a tag, when a clone is at hand.
func upstreamSQL(t testing.TB, tag, path string) []byte {
	dir := os.Getenv("PGQUE_UPSTREAM_GIT")
	if dir == "" {
		t.Skip("PGQUE_UPSTREAM_GIT is not set")
	}
	if _, err := os.Stat(dir + "/.git"); err == nil {
		dir += "/.git"
	}
	sql, err := exec.CommandContext(context.Background(), "git", "--git-dir="+dir, "cat-file", "blob", "refs/tags/"+tag+":"+path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return sql
}

// What a database has after running each file: the results it sends, and the
// functions and procedures in its catalog. A comparison with the catalog of
// PostgreSQL 15, bodies and all, found no difference either.
func TestUpstream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tag, path                     string
		statements, definitions, live int
		version                       string
	}{
		{"alpha1", "sql/pgque.sql", 0, 0, 0, "1.0.0-dev"},
		{"alpha2", "sql/pgque.sql", 0, 0, 0, "1.0.0-dev"},
		{"alpha3", "sql/pgque.sql", 0, 0, 0, "1.0.0-dev"},
		{"v0.1.0", "sql/pgque.sql", 153, 74, 73, "1.0.0-dev"},
		{"v0.2.0-rc.1", "sql/pgque.sql", 0, 0, 0, "0.2.0-rc.1"},
		{"v0.2.0-rc.2", "sql/pgque.sql", 0, 0, 0, "0.2.0-rc.1"},
		{"v0.2.0", "sql/pgque.sql", 236, 97, 91, "0.2.0"},
		{"v0.3.0-alpha.1", "sql/pgque.sql", 236, 97, 91, "0.2.0"},
		{"v0.3.0-alpha.1", "devel/sql/pgque.sql", 305, 114, 108, "0.3.0-alpha.1"},
	} {
		sql := upstreamSQL(t, tt.tag, tt.path)
		if got := sqltext.Version(sql); got != tt.version {
			t.Errorf("%s %s: Version = %q, want %q", tt.tag, tt.path, got, tt.version)
		}
		if line, text, found := sqltext.MetaCommand(sql); found {
			t.Errorf("%s %s: meta-command %q on line %d, want none", tt.tag, tt.path, text, line)
		}
		if line, text, found := sqltext.TransactionControl(sql); found {
			t.Errorf("%s %s: %q on line %d, want no transaction control", tt.tag, tt.path, text, line)
		}
		if tt.statements == 0 {
			continue
		}
		statements, definitions := sqltext.Statements(sql), 0
		for _, s := range statements {
			definitions += functions(sql[s.Start:s.End])
		}
		if live := functions(sql); len(statements) != tt.statements || definitions != tt.definitions || live != tt.live {
			t.Errorf("%s %s: %d statements, %d definitions, %d live; want %d, %d, %d",
				tt.tag, tt.path, len(statements), definitions, live, tt.statements, tt.definitions, tt.live)
		}
	}
}

// functions counts the functions and procedures that a text leaves behind.
func functions(sql []byte) int {
	n := 0
	for _, o := range sqltext.Objects(sql) {
		if o.Kind == sqltext.Function || o.Kind == sqltext.Procedure {
			n++
		}
	}
	return n
}

func BenchmarkObjects(b *testing.B) {
	sql := upstreamSQL(b, "v0.2.0", "sql/pgque.sql")
	b.SetBytes(int64(len(sql)))
	for b.Loop() {
		sqltext.Objects(sql)
	}
}

func BenchmarkVersion(b *testing.B) {
	sql := upstreamSQL(b, "v0.2.0", "sql/pgque.sql")
	b.SetBytes(int64(len(sql)))
	for b.Loop() {
		sqltext.Version(sql)
	}
}
