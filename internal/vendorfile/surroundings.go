package vendorfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// goMarker is what WriteGoMarker writes. The first line is what counts.
const goMarker = `## workspace
# This folder holds PgQue's SQL, not Go modules. Without the line above, the go
# command takes any folder named vendor at a module's root for vendored Go code
# and stops with "inconsistent vendoring". The line says that the folder belongs
# to a workspace, which this module is not part of, so that every go command
# works as if the folder were not there (Go 1.22 and later).
`

// Surroundings looks at the repository around the folder, and returns one line
// for each thing that will surprise its user: a tool that deletes what is in
// vendor/, a .gitignore that swallows the files.
//
// A folder named vendor at the root of a Go module is a trap: go build fails
// with "inconsistent vendoring" as soon as it is there, unless
// vendor/modules.txt starts with the line "## workspace". Where the folder
// would spring it, the error is fault.Policy, with both ways out as hints.
// marker says that the user has asked for that file: see WriteGoMarker.
func Surroundings(dir string, marker bool) (notices []string, err error) {
	for _, above := range aboveVendor(dir) {
		found, err := lookAbove(dir, above, marker)
		if err != nil {
			return nil, err
		}
		notices = append(notices, found...)
	}
	for _, name := range append(Required(), SourceName) {
		if rule := ignoredBy(dir, name); rule != "" {
			notices = append(notices, fmt.Sprintf("git ignores %s (%s): to commit it, change that line or use \"git add -f\"", filepath.ToSlash(filepath.Join(dir, name)), rule))
			break // one line: the others are ignored by the same rule, or will be named next
		}
	}
	return notices, nil
}

// aboveVendor returns the directories that hold a vendor/ in which the folder is,
// however deep, or which the folder is; the nearest first. What lies outside of the
// folder's repository has no part in it.
func aboveVendor(dir string) (above []string) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	for at, parent := abs, filepath.Dir(abs); parent != at; at, parent = parent, filepath.Dir(parent) {
		if strings.EqualFold(filepath.Base(at), "vendor") {
			above = append(above, parent)
		}
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil && at != abs {
			break
		}
	}
	return above
}

// isVendor reports whether the folder is the vendor/ of above itself, where a
// modules.txt would be a stranger among the vendored files.
func isVendor(dir, above string) bool {
	abs, err := filepath.Abs(dir)
	return err == nil && filepath.Dir(abs) == above
}

func lookAbove(dir, above string, marker bool) (notices []string, err error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(above, name))
		return err == nil
	}
	note := func(format string, args ...any) { notices = append(notices, fmt.Sprintf(format, args...)) }

	modules, err := readModulesFile(above)
	if err != nil {
		return nil, err
	}
	switch {
	case has("go.work"):
		// In a workspace the same file means that vendor/ is the workspace's.
		if marker || modules == workspaceModules {
			note(`go.work: here "## workspace" in vendor/modules.txt makes go take vendor/ for the workspace's modules and stop with "inconsistent vendoring"; --dir third_party/pgque avoids it`)
		} else {
			note(`go.work: "go work vendor" deletes %s; afterwards: %s`, filepath.ToSlash(dir), commandFor(dir, "restore"))
		}
	case !has("go.mod"):
	case modules == realModules:
		note(`go.mod: "go mod vendor" deletes %s; afterwards: git checkout -- %s`, filepath.ToSlash(dir), shellWord(filepath.ToSlash(dir)))
	case modules == workspaceModules || marker && modules == noModules && !isVendor(dir, above):
	default:
		return nil, goTrap(dir, above, modules)
	}
	if has("Cargo.toml") {
		note(`Cargo.toml: "cargo vendor" deletes what else is in vendor/; --dir third_party/pgque avoids it`)
	}
	if has("composer.json") {
		note("composer.json: Composer takes vendor/ for its own, and most projects don't commit it; --dir third_party/pgque avoids it")
	}
	return notices, nil
}

func goTrap(dir, above string, modules modulesKind) error {
	name := filepath.Base(filepath.Clean(dir))
	if isVendor(dir, above) {
		name = "pgque"
	}
	err := fault.New(fault.Policy, "a folder named vendor beside %q makes go build fail with \"inconsistent vendoring\"", filepath.Join(above, "go.mod")).
		Hint("use another folder: --dir third_party/%s", name)
	if isVendor(dir, above) {
		return err
	}
	if modules == noModules {
		return err.Hint(`or have vendor/modules.txt written, whose line "## workspace" tells go to leave the folder alone: --go-marker`)
	}
	return err.Hint(`or make "## workspace" the first line of vendor/modules.txt yourself: the file is there, and --go-marker never changes one`)
}

// modulesKind says what vendor/modules.txt is to the go command.
type modulesKind int

const (
	noModules        modulesKind = iota
	workspaceModules             // starts with "## workspace"
	realModules                  // a real vendor folder of Go modules
	otherModules
)

func readModulesFile(above string) (modulesKind, error) {
	path := filepath.Join(above, "vendor", "modules.txt")
	data, err := readAround(path)
	if errors.Is(err, fs.ErrNotExist) {
		return noModules, nil
	}
	if err != nil {
		return otherModules, fault.New(fault.Usage, "read %q: %w", path, unwrapPath(err))
	}
	first, _, _ := strings.Cut(string(data), "\n")
	if strings.TrimRight(first, " \t\r") == "## workspace" {
		return workspaceModules, nil
	}
	for line := range strings.Lines(string(data)) {
		// "# golang.org/x/text v0.14.0", as go mod vendor writes it
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "#" && strings.HasPrefix(f[2], "v") && !strings.HasPrefix(f[1], "#") {
			return realModules, nil
		}
	}
	return otherModules, nil
}

// readAround reads a file that is not the program's own. A named pipe is not
// opened: that would wait for ever.
func readAround(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is " + kindOfFile(info.Mode()))
	}
	return os.ReadFile(path)
}

// WriteGoMarker writes vendor/modules.txt beside the folder, so that go leaves
// vendor/ alone, and reports whether it did. It never changes a file that is
// there, and writes none where it would do harm or nothing: outside a folder
// named vendor at a Go module's root, or beside a go.work.
func WriteGoMarker(dir string) (written bool, err error) {
	for _, above := range aboveVendor(dir) {
		_, noModule := os.Stat(filepath.Join(above, "go.mod"))
		_, noWork := os.Stat(filepath.Join(above, "go.work"))
		if noModule == nil && noWork != nil && !isVendor(dir, above) {
			return writeGoMarker(above)
		}
	}
	return false, nil
}

func writeGoMarker(above string) (written bool, err error) {
	vendor := filepath.Join(above, "vendor")
	path := filepath.Join(vendor, "modules.txt")
	if err := os.MkdirAll(vendor, 0o755); err != nil {
		return false, fault.New(fault.Usage, "make %q: %w", vendor, unwrapPath(err))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err == nil {
		_, err = f.WriteString(goMarker)
		err = errors.Join(err, f.Sync(), f.Close())
		if err != nil {
			os.Remove(path) // a part of it would be worse than none
		}
	}
	if err != nil {
		return false, fault.New(fault.Usage, "write %q: %w", path, unwrapPath(err))
	}
	return true, nil
}

// findMissingFolder says that the folder is not there, and who likely took it.
func (r *Report) findMissingFolder() {
	message := "the folder is not there"
	hint := r.command("update --latest")
	if culprit := likelyCulprit(r.Dir); culprit != "" {
		message += "; likely " + culprit
		hint = r.checkout(filepath.ToSlash(filepath.Clean(r.Dir)), "update --latest")
	}
	r.find(NoSource, "", message, hint)
}

// likelyCulprit names what most likely took a folder that was there.
func likelyCulprit(dir string) string {
	if rule := ignoredBy(dir, SourceName); rule != "" {
		return "a .gitignore kept it out of git (" + rule + ")"
	}
	for _, above := range aboveVendor(dir) {
		if culprit := culpritIn(above); culprit != "" {
			return culprit
		}
	}
	return ""
}

func culpritIn(above string) string {
	for _, tool := range []struct{ file, culprit string }{
		{"go.work", `"go work vendor" deleted it`},
		{"go.mod", `"go mod vendor" deleted it`},
		{"Cargo.toml", `"cargo vendor" deleted it`},
		{"composer.json", `Composer, or a job that deletes vendor/, took it`},
	} {
		if _, err := os.Stat(filepath.Join(above, tool.file)); err == nil {
			return tool.culprit
		}
	}
	return ""
}
