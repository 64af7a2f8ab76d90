package linediff

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// upstreamVersions returns every version of PgQue's SQL in the clone that
// PGQUE_UPSTREAM_GIT names, by "tag:path", or nil when it names none.
func upstreamVersions(t testing.TB) map[string][]byte {
	t.Helper()
	dir := os.Getenv("PGQUE_UPSTREAM_GIT")
	if dir == "" {
		return nil
	}
	git := func(args ...string) ([]byte, error) {
		return exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).Output()
	}
	tags, err := git("tag")
	if err != nil {
		t.Fatalf("git tag in PGQUE_UPSTREAM_GIT=%q: %v", dir, err)
	}
	versions := make(map[string][]byte)
	for _, tag := range strings.Fields(string(tags)) {
		for _, path := range []string{"sql/pgque.sql", "devel/sql/pgque.sql"} {
			if data, err := git("show", tag+":"+path); err == nil {
				versions[tag+":"+path] = data
			}
		}
	}
	if len(versions) < 8 {
		t.Fatalf("PGQUE_UPSTREAM_GIT=%q has %d versions of the SQL, want 8 or more", dir, len(versions))
	}
	return versions
}

// TestUpstream compares every version of PgQue's SQL with every other one: the
// patch gives the other, with no more changed lines than git's.
func TestUpstream(t *testing.T) {
	t.Parallel()
	versions := upstreamVersions(t)
	if versions == nil {
		t.Skip("PGQUE_UPSTREAM_GIT is not set to a clone of PgQue")
	}
	dir := t.TempDir()
	path := func(version string) string {
		return filepath.Join(dir, strings.NewReplacer("/", "_", ":", "_").Replace(version))
	}
	for version, data := range versions {
		if err := os.WriteFile(path(version), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var all []change
	for from, a := range versions {
		for to, b := range versions {
			if bytes.Equal(a, b) {
				continue
			}
			name := fmt.Sprintf("pair%d", len(all))
			c := change{File{Name: name, Data: a}, File{Name: name, Data: b}}
			all = append(all, c)
			_, s := unified(t, c.a, c.b, DefaultContext)
			if added, removed := gitCounts(t, path(from), path(to)); s.Added+s.Removed > added+removed {
				t.Errorf("%s to %s: +%d -%d, git has +%d -%d", from, to, s.Added, s.Removed, added, removed)
			}
		}
	}
	var patch strings.Builder
	for _, c := range all {
		p, _ := unified(t, c.a, c.b, DefaultContext)
		patch.WriteString(p)
	}
	programs := [][]string{{"git", "apply"}}
	if hasPatch(t, false) {
		programs = append(programs, []string{"patch", "-p1"})
	}
	for _, program := range programs {
		work := t.TempDir()
		writeSide(t, work, all)
		runProgram(t, work, patch.String(), program...)
		checkSide(t, program[0], work, all)
	}
}

// gitCounts returns the changed lines as "git diff --no-index" counts them.
func gitCounts(t *testing.T, a, b string) (added, removed int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "diff", "--no-index", "--numstat", a, b)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
	out, _ := cmd.Output() // it ends with 1 when the two differ
	if _, err := fmt.Sscan(string(out), &added, &removed); err != nil {
		t.Fatalf("git diff --numstat printed %q: %v", out, err)
	}
	return added, removed
}
