package linediff

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// change is one file of a patch for several.
type change struct{ a, b File }

// changes returns files of all kinds with their names below vendor/pgque.
func changes(n int) []change {
	random := rand.New(rand.NewPCG(9, 10))
	var all []change
	add := func(name string, a, b []byte) {
		// A nil slice is a missing file.
		name = "vendor/pgque/" + name
		all = append(all, change{File{name, a, a == nil}, File{name, b, b == nil}})
	}
	for i := range n {
		a, b := randomPair(random, 40)
		if random.IntN(10) == 0 && len(b) > 0 {
			a = nil
		} else if random.IntN(10) == 0 && len(a) > 0 {
			b = nil
		} else {
			a, b = append([]byte{}, a...), append([]byte{}, b...)
		}
		add(fmt.Sprintf("random%d.sql", i), a, b)
	}
	long := bytes.Repeat([]byte("long "), 1<<20)
	add("last", []byte("x\n"), []byte("y"))
	add("filled", []byte{}, []byte("x\n"))
	add("emptied", []byte("x\n"), []byte{})
	add("one", []byte("x"), []byte("x\n"))
	add("long", append(long, "a\nend"...), append(long, "b\nend\n"...))
	add("binary", []byte("x\n"), []byte("y\x00\n"))
	add("new-empty", nil, []byte{})
	add("old-empty", []byte{}, nil)
	add("same", []byte("x\n"), []byte("x\n"))
	return all
}

// oddNames are names that git quotes, or that need the tab behind them.
func oddNames() []change {
	var all []change
	for _, name := range []string{"a b", "a b 2024-01-01 10:00:00", " lead", "tab\there", `quo"te`, `back\slash`, "café", "a\u2028b", "\xff"} {
		all = append(all,
			change{File{Name: name, Data: []byte("x\n")}, File{Name: name, Data: []byte("y\n")}},
			change{File{Name: "new " + name, Missing: true}, File{Name: "new " + name, Data: []byte("y\n")}},
			change{File{Name: "old " + name, Data: []byte("x\n")}, File{Name: "old " + name, Missing: true}})
	}
	return all
}

// TestPrograms checks that "git apply", outside a repository and below the
// root of one, and "patch -p1" turn every a into its b.
func TestPrograms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		changes []change
		context int
		strange bool
	}{
		{"three lines of context", changes(300), DefaultContext, false},
		{"no context", changes(100), 0, false},
		{"one line of context", changes(100), 1, false},
		{"odd names", oddNames(), DefaultContext, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.strange && runtime.GOOS == "windows" {
				t.Skip("Windows has no such names")
			}
			var patch strings.Builder
			for i, c := range test.changes {
				p, s := unified(t, c.a, c.b, test.context)
				patch.WriteString(p)
				if s.Note != "" {
					// One line that the program must skip.
					test.changes[i].b = c.a
				}
			}
			gitApply := []string{"git", "apply"}
			if test.context == 0 {
				gitApply = append(gitApply, "--unidiff-zero")
			}
			check := func(how, root, below string, command []string) {
				dir := filepath.Join(root, below)
				writeSide(t, dir, test.changes)
				runProgram(t, dir, patch.String(), command...)
				checkSide(t, how, dir, test.changes)
			}
			check("git apply", t.TempDir(), ".", gitApply)
			repository := t.TempDir()
			runProgram(t, repository, "", "git", "init", "-q")
			check("git apply at the root", repository, ".", gitApply)
			check("git apply below the root", repository, "some/where", gitApply)
			if !hasPatch(t, test.strange) {
				t.Skip("git apply was checked, but there is no \"patch\" program here for the rest")
			}
			check("patch", t.TempDir(), ".", []string{"patch", "-p1", "--binary"})
			check("patch without --binary", t.TempDir(), ".", []string{"patch", "-p1"})
		})
	}
}

// hasPatch reports whether there is a patch program, and one that knows
// quoted names when they are needed: GNU's does.
func hasPatch(t *testing.T, quoted bool) bool {
	path, err := exec.LookPath("patch")
	if err != nil {
		return false
	}
	version, _ := exec.CommandContext(t.Context(), path, "--version").Output()
	return !quoted || strings.HasPrefix(string(version), "GNU patch")
}

func writeSide(t *testing.T, dir string, changes []change) {
	t.Helper()
	for _, c := range changes {
		path := filepath.Join(dir, filepath.FromSlash(c.a.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if c.a.Missing {
			continue
		}
		if err := os.WriteFile(path, c.a.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func checkSide(t *testing.T, how, dir string, changes []change) {
	t.Helper()
	for _, c := range changes {
		got, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(c.b.Name)))
		switch {
		case c.b.Missing && !os.IsNotExist(err):
			t.Errorf("%s: %q is still there (%v)", how, c.b.Name, err)
		case !c.b.Missing && err != nil:
			t.Errorf("%s: %v", how, err)
		case !bytes.Equal(got, c.b.Data):
			t.Errorf("%s: %q has %d bytes that are not b's %d", how, c.b.Name, len(got), len(c.b.Data))
		}
	}
}

// runProgram runs a program without the user's configuration of git.
func runProgram(t *testing.T, dir, stdin string, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "LC_ALL=C")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%.2000s", strings.Join(command, " "), err, out)
	}
}
