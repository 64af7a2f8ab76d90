package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

// ErrNotFound says that no PostgreSQL server programs are on this machine.
var ErrNotFound = errors.New("no PostgreSQL server programs found (looked in PGQUE_TEST_PG_BIN, PATH and the usual places)")

// Find returns the folder that holds the server programs initdb and postgres.
// It looks in the folder that PGQUE_TEST_PG_BIN names, then in PATH, then in
// the places where Debian, Red Hat, Homebrew, Postgres.app and the Windows
// installer put them, the newest version first. The environment comes in by
// lookup. A PGQUE_TEST_PG_BIN that holds no server is an error, not a reason to
// look elsewhere: whoever set it meant that one.
func Find(lookup func(name string) (string, bool)) (string, error) {
	if dir, ok := lookup("PGQUE_TEST_PG_BIN"); ok && dir != "" {
		if found, ok := programsIn(dir); ok {
			return found, nil
		}
		return "", errors.New("PGQUE_TEST_PG_BIN names " + strconv.Quote(dir) + ", which has no initdb and postgres")
	}
	path, _ := lookup("PATH")
	for _, dir := range append(filepath.SplitList(path), usualPlaces()...) {
		if found, ok := programsIn(dir); ok {
			return found, nil
		}
	}
	return "", ErrNotFound
}

// programsIn reports whether a folder has the programs, and where they really
// are: the server finds its share folder relative to its own program, so a
// symlink in /usr/local/bin has to be followed.
func programsIn(dir string) (string, bool) {
	if dir == "" {
		return "", false
	}
	if _, err := os.Stat(filepath.Join(dir, program("initdb"))); err != nil {
		return "", false
	}
	postgres, err := filepath.EvalSymlinks(filepath.Join(dir, program("postgres")))
	if err != nil {
		return "", false
	}
	found, err := filepath.Abs(filepath.Dir(postgres))
	if err != nil {
		return "", false
	}
	if _, err := os.Stat(filepath.Join(found, program("initdb"))); err != nil {
		return "", false
	}
	return found, true
}

func usualPlaces() []string {
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		`C:\Program Files\PostgreSQL\*\bin`,
	} {
		found, _ := filepath.Glob(pattern) // the patterns are constants: no error is possible
		sort.SliceStable(found, func(i, j int) bool { return majorOf(found[i]) > majorOf(found[j]) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// majorOf returns the version number in a folder's path, or 0.
func majorOf(dir string) int {
	name := filepath.Base(filepath.Dir(dir))
	name = strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz-@")
	major, _, _ := strings.Cut(name, ".")
	n, _ := strconv.Atoi(major) // "latest" counts as 0
	return n
}

// program adds the extension that the system wants.
func program(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}
