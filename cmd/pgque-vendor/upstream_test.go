package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// release is what is known of a tag of PgQue: facts, read from a clone.
type release struct {
	tag, commit, path string
	size              int64
	sha256            string
}

func upstreamReleases() []release {
	return []release{
		{"v0.3.0-alpha.1", "166e9968e4f913e596b89245f62b17c392a873bb", "sql/pgque.sql", 259935, "e7ffe1c941666e6789e5c91a7d0b28196bb8a883ebaf407b13794271926a5b2f"},
		{"v0.2.0", "e8ee488d2c1d87ab09eed2581ec4bbc1e68315f6", "sql/pgque.sql", 259935, "e7ffe1c941666e6789e5c91a7d0b28196bb8a883ebaf407b13794271926a5b2f"},
		{"v0.2.0-rc.2", "a92c56e296d16e685297f239497785f7c48a7489", "sql/pgque.sql", 259945, "88a98bd10a31dac43134aec50a9d32e499cf536b3c59f1c2e4b099fe2338d1d8"},
		{"v0.2.0-rc.1", "4cb5c0617d62d65fef7ce0d44bfdeafabf434f5f", "sql/pgque.sql", 255352, "9f8edcd49ef612f2f92930708939646e0ec28bd3e70e00478c7fd2d6e38d8b1c"},
		{"v0.1.0", "a159a743e9f63f758273160e6144a556d4fca0d7", "sql/pgque.sql", 173428, "ed2b7d6effb0566ea71429a14c9d08b733f7394f2a73eec4072c2122a4eeaa67"},
		{"alpha1", "614d862644bd6c4fdcdf05c3b174b4f891cce656", "sql/pgque.sql", 160047, "e289cecf2e0a3a5fb28034af8d6e017288e45f01920c80712298643a87806734"},
		{"alpha2", "25df9198010692336c3c4044105a1cef4ab6e5f3", "sql/pgque.sql", 160047, "e289cecf2e0a3a5fb28034af8d6e017288e45f01920c80712298643a87806734"},
		{"alpha3", "1b8ce047afd28bd60e75e8540a08d0bcd5d6f2fc", "sql/pgque.sql", 160075, "1208bb319a7271f2f608b5ae1f8071801c5169cd3e1adcd489d316a6f1391f01"},
		{"v0.3.0-alpha.1", "166e9968e4f913e596b89245f62b17c392a873bb", "devel/sql/pgque.sql", 300090, "1dd0ef9cdd924c3e9a11593f4775944c240cd3c780d47b99c9cff05e63072329"},
	}
}

func upstreamClone(t *testing.T) string {
	clone := os.Getenv("PGQUE_UPSTREAM_GIT")
	if clone == "" {
		t.Skip("PGQUE_UPSTREAM_GIT names no clone of PgQue")
	}
	return clone
}

// runCommand runs a command in process and returns its streams and exit code.
func runCommand(t *testing.T, variables map[string]string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, talk bytes.Buffer
	env := &environment{
		stdin:  bytes.NewReader(nil),
		stdout: &out,
		stderr: &talk,
		lookup: func(name string) (string, bool) { v, ok := variables[name]; return v, ok },
		now:    time.Now,
		tty:    func(any) bool { return false },
		color:  "auto",
		log:    slog.New(slog.DiscardHandler),
	}
	code = run(args, env)
	return out.String(), talk.String(), code
}

// TestUpstreamReleases updates to each of PgQue's tags, both ways, and compares
// with what is known of them.
func TestUpstreamReleases(t *testing.T) {
	clone := upstreamClone(t)
	server := ghtest.New(ghtest.Options{GitDir: clone, Repository: "NikolayS/PgQue"})
	defer server.Close()
	variables := map[string]string{"GITHUB_API_URL": server.URL, "XDG_CACHE_HOME": t.TempDir()}

	for _, way := range [][]string{{"--from", clone}, {"--no-cache"}} {
		dir := filepath.Join(t.TempDir(), "pgque")
		for _, r := range upstreamReleases() {
			args := append([]string{"update", r.tag, "--dir", dir, "--sql-path", r.path}, way...)
			if _, stderr, code := runCommand(t, variables, args...); code != 0 {
				t.Fatalf("%v: exit %d\n%s", args, code, stderr)
			}
			src, err := vendorfile.ReadSource(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := release{src.Tag, src.Commit, src.Files["pgque.sql"].Path, src.Files["pgque.sql"].Size, src.Files["pgque.sql"].SHA256}
			if got != r {
				t.Errorf("%v: SOURCE.json says %+v, want %+v", args, got, r)
			}
			data, err := os.ReadFile(filepath.Join(dir, "pgque.sql"))
			if err != nil {
				t.Fatal(err)
			}
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != r.sha256 {
				t.Errorf("%v: pgque.sql has SHA-256 %x, want %s", args, sum, r.sha256)
			}
			if stdout, _, code := runCommand(t, variables, "status", "--dir", dir); code != 0 {
				t.Errorf("status after %v: exit %d\n%s", args, code, stdout)
			}
		}
	}
}

// TestUpstreamPatches makes the patch between every pair of releases and has
// git apply and patch take it.
func TestUpstreamPatches(t *testing.T) {
	clone := upstreamClone(t)
	releases := upstreamReleases()
	for i, from := range releases {
		t.Run(fmt.Sprintf("%s-%d", from.tag, i), func(t *testing.T) {
			work := t.TempDir()
			t.Chdir(work)
			mustRun(t, "update", from.tag, "--sql-path", from.path, "--from", clone)
			for _, to := range releases {
				stdout, stderr, code := runCommand(t, nil, "diff", to.tag, "--sql-path", to.path, "--from", clone)
				want := 1
				if from.sha256 == to.sha256 {
					want = 0
				}
				if code != want {
					t.Fatalf("diff %s: exit %d, want %d\n%s", to.tag, code, want, stderr)
				}
				if code == 0 {
					continue
				}
				for _, tool := range [][]string{{"git", "apply"}, {"patch", "-s", "-p1"}} {
					checkPatch(t, tool, []byte(stdout), to)
				}
			}
		})
	}
}

func mustRun(t *testing.T, args ...string) {
	t.Helper()
	if _, stderr, code := runCommand(t, nil, args...); code != 0 {
		t.Fatalf("%v: exit %d\n%s", args, code, stderr)
	}
}

// checkPatch applies a patch to a copy of vendor/ and compares the SQL's hash.
func checkPatch(t *testing.T, tool []string, patch []byte, want release) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "vendor"), os.DirFS("vendor")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool[0], tool[1:]...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", tool, err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "vendor/pgque/pgque.sql"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want.sha256 {
		t.Errorf("%v gives SHA-256 %x, want %s (%s)", tool, sum, want.sha256, want.tag)
	}
}
