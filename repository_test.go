// Package repository_test guards what holds for the repository as a whole: the
// marker that keeps it building, the direction of imports, and that nothing of
// upstream's is committed.
package repository_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// A folder named vendor at the root of a Go module breaks every go command
// unless vendor/modules.txt starts with this line. "go mod vendor" deletes
// both files.
func TestVendorFolderIsWhole(t *testing.T) {
	t.Parallel()
	const restore = "to bring it back: git checkout -- vendor"
	modules, err := os.ReadFile("vendor/modules.txt")
	if err != nil {
		t.Errorf("%v; %s", err, restore)
	} else if first, _, _ := strings.Cut(string(modules), "\n"); strings.TrimRight(first, "\r") != "## workspace" {
		t.Errorf("vendor/modules.txt starts with %q, not with \"## workspace\"; %s", first, restore)
	}
	data, err := os.ReadFile("vendor/pgque/SOURCE.json")
	if err != nil {
		t.Fatalf("%v; %s", err, restore)
	}
	source, err := vendorfile.Parse(data)
	if err != nil {
		t.Fatalf("%v; %s", err, restore)
	}
	if source.Tag != "v0.2.0" || source.Commit != "e8ee488d2c1d87ab09eed2581ec4bbc1e68315f6" {
		t.Errorf("vendor/pgque/SOURCE.json pins %s (%s), not v0.2.0", source.Tag, source.Commit)
	}
	if _, err := os.Stat("vendor/pgque/.gitattributes"); err != nil {
		t.Errorf("%v; %s", err, restore)
	}
}

// goPackage is what this test needs of "go list -json".
type goPackage struct {
	ImportPath                                           string
	Standard                                             bool
	ForTest                                              string
	Imports, Deps                                        []string
	EmbedPatterns, TestEmbedPatterns, XTestEmbedPatterns []string
	Error                                                *struct{ Err string }
}

// listPackages returns the packages of this module and all they stand on, by
// import path, without what only tests import.
func listPackages(t *testing.T) (module string, packages map[string]goPackage) {
	t.Helper()
	out := run(t, "go", "list", "-m")
	module = strings.TrimSpace(out)
	packages = map[string]goPackage{}
	d := json.NewDecoder(strings.NewReader(run(t, "go", "list", "-e", "-deps", "-json", "./...")))
	for {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
	if len(packages) == 0 {
		t.Fatal("go list names no package")
	}
	return module, packages
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// An application that imports the event library gets pgx, and nothing else of
// what the command needs.
func TestEventsStandOnPgxAlone(t *testing.T) {
	t.Parallel()
	module, packages := listPackages(t)
	allowed := []string{
		module + "/events",
		"github.com/jackc",                                              // pgx and its parts
		"golang.org/x/sync", "golang.org/x/text", "golang.org/x/crypto", // what pgx stands on
	}
	for name, p := range packages {
		if !within(name, module+"/events") {
			continue
		}
		for _, dep := range p.Deps {
			if packages[dep].Standard || slices.ContainsFunc(allowed, func(root string) bool { return within(dep, root) }) {
				continue
			}
			t.Errorf("%s stands on %s; the event library has pgx and the standard library only", name, dep)
		}
	}
}

// The leaves do not know each other: what two of them need is in one of the
// packages that are words for all. Only the command sees them all.
func TestLeavesDoNotKnowEachOther(t *testing.T) {
	t.Parallel()
	module, packages := listPackages(t)
	internal := module + "/internal/"
	forAll := []string{"fault", "gitobject", "sqltext"}
	forTests := []string{"pgtest", "ghtest", "conformance"} // helpers may stand on what they help with
	for name, p := range packages {
		leaf, ok := strings.CutPrefix(name, internal)
		if !ok || slices.ContainsFunc(forTests, func(root string) bool { return within(leaf, root) }) {
			continue
		}
		for _, dep := range p.Imports {
			other, ok := strings.CutPrefix(dep, internal)
			if ok && !slices.Contains(forAll, other) && !within(other, leaf) {
				t.Errorf("internal/%s imports internal/%s; give it what it needs from cmd, or use %s", leaf, other, strings.Join(forAll, ", "))
			}
			if within(dep, module+"/cmd") {
				t.Errorf("internal/%s imports %s", leaf, dep)
			}
		}
	}
}

func TestNoTestHelperInTheProgram(t *testing.T) {
	t.Parallel()
	module, packages := listPackages(t)
	program, ok := packages[module+"/cmd/pgque-vendor"]
	if !ok {
		t.Fatal("go list does not name cmd/pgque-vendor")
	}
	for _, dep := range program.Deps {
		for _, helper := range []string{module + "/internal/ghtest", module + "/internal/pgtest", module + "/internal/conformance"} {
			if within(dep, helper) {
				t.Errorf("the program contains %s, which is for tests", dep)
			}
		}
		// embedded-postgres, which the demo downloads PostgreSQL with, imports it.
		if within(dep, module) && slices.Contains(packages[dep].Imports, "testing") {
			t.Errorf("%s imports testing, and is in the program", dep)
		}
	}
}

// The go command leaves vendor/ out of a module's zip, and what is in it is
// not ours.
func TestNothingIsEmbeddedFromVendor(t *testing.T) {
	t.Parallel()
	module, packages := listPackages(t)
	for name, p := range packages {
		if !within(name, module) {
			continue
		}
		for _, pattern := range slices.Concat(p.EmbedPatterns, p.TestEmbedPatterns, p.XTestEmbedPatterns) {
			folder := path.Join(strings.TrimPrefix(name, module), strings.TrimPrefix(pattern, "all:"))
			if slices.Contains(strings.Split(folder, "/"), "vendor") || name == module {
				t.Errorf("%s embeds %q", name, pattern)
			}
		}
	}
}

// upstreamBlobs are git's ids of upstream's SQL, licence and notice in all of
// its tags. Its text is never committed here.
var upstreamBlobs = []string{
	"d7af38bb303cbde3414d9995cf41d17a238d9934",
	"061b9bb5cd0db5a9fd4a147481a33bb264f67566",
	"a576ec64f71d49de93d921af39cc4e5b7e7c67af",
	"e3ac01a7647cec977aa0bcb3f9660d3c7017bc90",
	"4c8f224c0631844aa3fe817fbc9dc6dff107165d",
	"bf70020b6b0ad0afa71330f9bfceac0534dc9b85",
	"765690cdb6024b8375b3a44efe260e1a39d482a6",
	"62a462adc3469b21493bd78f79cb9ba3f06a4431",
	"dc87da321e0db43647189ec42eaefe5443440cfe",
}

func TestNothingOfUpstreamIsCommitted(t *testing.T) {
	t.Parallel()
	if _, err := os.Lstat(".git"); err != nil {
		t.Skip("this is no git checkout: ", err)
	}
	files := run(t, "git", "ls-files", "-s")
	for line := range strings.Lines(files) {
		fields := strings.Fields(line) // mode, id, stage, path
		if len(fields) >= 4 && slices.Contains(upstreamBlobs, fields[1]) {
			t.Errorf("%s is upstream's file; git rm --cached %s", fields[3], fields[3])
		}
	}
	for _, name := range vendorfile.Required() {
		if exec.Command("git", "check-ignore", "-q", "vendor/pgque/"+name).Run() != nil {
			t.Errorf("git does not ignore vendor/pgque/%s; .gitignore must keep it out", name)
		}
	}
}

// within reports whether a package is root or below it.
func within(name, root string) bool { return name == root || strings.HasPrefix(name, root+"/") }
