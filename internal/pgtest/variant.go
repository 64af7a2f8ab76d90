package pgtest

import (
	"bytes"
	"os"
	osexec "os/exec"
	"testing"

	"github.com/stega/pgque-vendor/internal/standin"
)

// Variant is an SQL file to test with: the stand-in, or the real PgQue.
type Variant struct {
	Name    string // of the subtest: "standin", "v0.2.0", "v0.3.0-alpha.1"
	SQL     []byte
	Real    bool
	Tag     string // upstream's tag, or that of the stand-in's release
	Path    string // of the file in that tag
	Version string // what pgque.version() says
}

// Variants returns the stand-in and, where PGQUE_UPSTREAM_GIT names a git
// directory of PgQue, the real releases that are supported.
func Variants(t testing.TB) []Variant {
	t.Helper()
	variants := []Variant{Standin()}
	if Upstream() {
		variants = append(variants, Real(t, "v0.2.0"), Real(t, "v0.3.0-alpha.1"))
	}
	return variants
}

// EachVariant runs a subtest with each of Variants.
func EachVariant(t *testing.T, f func(t *testing.T, v Variant)) {
	t.Helper()
	for _, v := range Variants(t) {
		t.Run(v.Name, func(t *testing.T) { f(t, v) })
	}
}

// Standin returns the newer release of the stand-in.
func Standin() Variant {
	return Variant{Name: "standin", SQL: standin.SQL(), Tag: standin.Newer, Path: "sql/pgque.sql", Version: "0.2.0"}
}

// OlderStandin returns the older release of the stand-in, to upgrade from.
// Like v0.1.0 it makes pgque_writer a member of pgque_reader in the whole
// cluster, so it belongs on a server of the test's own.
func OlderStandin(t testing.TB) Variant {
	t.Helper()
	sql, err := standin.Release(standin.Older)
	if err != nil {
		t.Fatal(err)
	}
	return Variant{Name: "standin-older", SQL: sql, Tag: standin.Older, Path: "sql/pgque.sql", Version: "0.1.0"}
}

// Upstream reports whether PGQUE_UPSTREAM_GIT is set.
func Upstream() bool { return os.Getenv("PGQUE_UPSTREAM_GIT") != "" }

// Real returns a release of the real PgQue: v0.1.0, v0.2.0 or v0.3.0-alpha.1.
// Without PGQUE_UPSTREAM_GIT the test is skipped. For v0.1.0 the same holds as
// for OlderStandin.
func Real(t testing.TB, tag string) Variant {
	t.Helper()
	dir := os.Getenv("PGQUE_UPSTREAM_GIT")
	if dir == "" {
		t.Skip("this test needs the real PgQue, and PGQUE_UPSTREAM_GIT is not set")
	}
	v := Variant{Name: tag, Real: true, Tag: tag, Path: "sql/pgque.sql"}
	switch tag {
	case "v0.1.0":
		v.Version = "1.0.0-dev"
	case "v0.2.0":
		v.Version = "0.2.0"
	case "v0.3.0-alpha.1": // its sql/pgque.sql is that of v0.2.0
		v.Version, v.Path = "0.3.0-alpha.1", "devel/sql/pgque.sql"
	default:
		t.Fatalf("no variant is known for the tag %q", tag)
	}
	cmd := osexec.CommandContext(t.Context(), "git", "--git-dir="+dir, "show", tag+":"+v.Path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	sql, err := cmd.Output()
	if err != nil {
		t.Fatalf("read %s of %s from %q: %v: %s", v.Path, tag, dir, err, stderr.String())
	}
	v.SQL = sql
	return v
}
