package vendorfile

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

const realModulesFile = "# golang.org/x/text v0.42.0\n## explicit; go 1.26\ngolang.org/x/text/language\n"

func TestSurroundings(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		files   map[string]string
		dir     string // below the top; "" is vendor/pgque
		marker  bool
		notices []string // a part of each
		hints   []string // of the refusal; none: no refusal
	}{
		{name: "nothing"},
		{name: "go.mod", files: map[string]string{"go.mod": "module x\n"},
			hints: []string{"use another folder: --dir third_party/pgque", "--go-marker"}},
		{name: "go.mod, marker asked for", files: map[string]string{"go.mod": "module x\n"}, marker: true},
		{name: "go.mod, marker there", files: map[string]string{"go.mod": "module x\n", "vendor/modules.txt": "## workspace\n# why\n"}},
		{name: "go.mod, marker with CRLF", files: map[string]string{"go.mod": "module x\n", "vendor/modules.txt": "## workspace\r\n"}},
		{name: "go.mod, marker in the second line", files: map[string]string{"go.mod": "module x\n", "vendor/modules.txt": "# why\n## workspace\n"},
			hints: []string{"--dir third_party/pgque", "never changes one"}},
		{name: "go.mod, empty modules.txt, marker asked for", files: map[string]string{"go.mod": "module x\n", "vendor/modules.txt": ""}, marker: true,
			hints: []string{"--dir third_party/pgque", "never changes one"}},
		{name: "go.mod, real vendor folder", files: map[string]string{"go.mod": "module x\n", "vendor/modules.txt": realModulesFile},
			notices: []string{`"go mod vendor" deletes `}},
		{name: "go.mod, other folder", files: map[string]string{"go.mod": "module x\n"}, dir: "third_party/pgque"},
		{name: "go.mod further up", files: map[string]string{"go.mod": "module x\n"}, dir: "sub/vendor/pgque"},
		{name: "go.mod, deeper below vendor", files: map[string]string{"go.mod": "module x\n"}, dir: "vendor/sql/pgque",
			hints: []string{"use another folder: --dir third_party/pgque", "--go-marker"}},
		{name: "go.mod, deeper below vendor, marker asked for", files: map[string]string{"go.mod": "module x\n"}, dir: "vendor/sql/pgque", marker: true},
		{name: "go.mod, vendor itself", files: map[string]string{"go.mod": "module x\n"}, dir: "vendor", marker: true,
			hints: []string{"use another folder: --dir third_party/pgque"}},
		{name: "go.mod, another repository below vendor", files: map[string]string{"go.mod": "module x\n", "vendor/a/.git": "gitdir: x\n"}, dir: "vendor/a/third_party/pgque"},
		{name: "go.mod, vendor inside of vendor", files: map[string]string{"go.mod": "module x\n"}, dir: "vendor/a/vendor/pgque",
			hints: []string{"use another folder: --dir third_party/pgque", "--go-marker"}},
		{name: "go.work", files: map[string]string{"go.mod": "module x\n", "go.work": "go 1.26.0\nuse .\n"},
			notices: []string{`"go work vendor" deletes `}},
		{name: "go.work and the marker", files: map[string]string{"go.mod": "module x\n", "go.work": "", "vendor/modules.txt": "## workspace\n"},
			notices: []string{`stop with "inconsistent vendoring"`}},
		{name: "Cargo.toml", files: map[string]string{"Cargo.toml": ""}, notices: []string{`"cargo vendor" deletes`}},
		{name: "composer.json", files: map[string]string{"composer.json": ""}, notices: []string{"Composer takes vendor/"}},
		{name: ".gitignore", files: map[string]string{".git/HEAD": "", ".gitignore": "# x\nvendor/\n"}, notices: []string{`(.gitignore:2: "vendor/")`}},
		{name: ".gitignore for another folder", files: map[string]string{".git/HEAD": "", ".gitignore": "*.sql\n"}, dir: "third_party/pgque", notices: []string{`/pgque.sql (.gitignore:1: "*.sql")`}},
		{name: "all", files: map[string]string{".git/HEAD": "", "go.mod": "", "vendor/modules.txt": realModulesFile, "Cargo.toml": "", "composer.json": "", ".gitignore": "/vendor"},
			notices: []string{"go.mod", "Cargo.toml", "composer.json", ".gitignore:1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			for name, text := range tt.files {
				put(t, top, name, text)
			}
			if tt.dir == "" {
				tt.dir = "vendor/pgque"
			}
			before := tree(t, top)
			notices, err := Surroundings(filepath.Join(top, filepath.FromSlash(tt.dir)), tt.marker)
			if len(notices) != len(tt.notices) {
				t.Fatalf("notices %q, want %q", notices, tt.notices)
			}
			for i, want := range tt.notices {
				if !strings.Contains(notices[i], want) || strings.Contains(notices[i], "\n") {
					t.Errorf("notice %q, want %q in it", notices[i], want)
				}
			}
			var f *fault.Error
			if len(tt.hints) == 0 {
				if err != nil {
					t.Errorf("got %v", err)
				}
			} else if !errors.As(err, &f) || f.Class != fault.Policy || len(f.Hints) != len(tt.hints) {
				t.Fatalf("got %#v", err)
			}
			for i, want := range tt.hints {
				if !strings.Contains(f.Hints[i], want) {
					t.Errorf("hint %q, want %q in it", f.Hints[i], want)
				}
			}
			if after := tree(t, top); len(after) != len(before) {
				t.Errorf("it wrote something: %v", after)
			}
		})
	}
}

func TestWriteGoMarker(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		files map[string]string
		want  bool
	}{
		{"a module", map[string]string{"go.mod": "module x\n"}, true},
		{"no module", nil, false},
		{"a file is there", map[string]string{"go.mod": "module x\n", "vendor/modules.txt": "mine\n"}, false},
		{"a workspace", map[string]string{"go.mod": "module x\n", "go.work": "go 1.26.0\n"}, false},
	}
	for _, tt := range tests {
		top := t.TempDir()
		for name, text := range tt.files {
			put(t, top, name, text)
		}
		written, err := WriteGoMarker(filepath.Join(top, "vendor", "pgque"))
		if err != nil || written != tt.want {
			t.Errorf("%s: %v, %v", tt.name, written, err)
		}
		got, err := os.ReadFile(filepath.Join(top, "vendor", "modules.txt"))
		switch {
		case tt.want && !strings.HasPrefix(string(got), "## workspace\n"), !tt.want && string(got) != tt.files["vendor/modules.txt"]:
			t.Errorf("%s: modules.txt is %q, %v", tt.name, got, err)
		}
	}
	top := t.TempDir()
	put(t, top, "go.mod", "module x\n")
	if written, err := WriteGoMarker(filepath.Join(top, "vendor")); written || err != nil {
		t.Errorf("into the vendored folder itself: %v, %v", written, err)
	}
	if written, err := WriteGoMarker(filepath.Join(top, "vendor", "sql", "pgque")); !written || err != nil {
		t.Errorf("deeper: %v, %v", written, err)
	}
}

// What Surroundings says of the go command, said by the go command itself.
func TestGoCommandAgrees(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs go build")
	}
	program, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command here: ", err)
	}
	module := map[string]string{
		"go.mod":   "module example.com/x\n\ngo 1.26.0\n\nrequire example.com/y v1.0.0\n\nreplace example.com/y => ./y\n",
		"main.go":  "package main\n\nimport _ \"example.com/y\"\n\nfunc main() {}\n",
		"y/go.mod": "module example.com/y\n\ngo 1.26.0\n",
		"y/y.go":   "package y\n",
		"README":   "",
	}
	build := func(top string) string {
		cmd := exec.Command(program, "build", "-o", os.DevNull, ".")
		cmd.Dir = top
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=", "GO111MODULE=", "GOPROXY=off")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil:
			return "works"
		case strings.Contains(string(out), "inconsistent vendoring"):
			return "inconsistent vendoring"
		}
		return string(out)
	}
	for _, tt := range []struct {
		name   string
		extra  map[string]string
		marker bool
		want   string
	}{
		{"vendor/pgque alone", map[string]string{"vendor/pgque/x": ""}, false, "inconsistent vendoring"},
		{"with our marker", map[string]string{"vendor/pgque/x": ""}, true, "works"},
		{"empty modules.txt", map[string]string{"vendor/modules.txt": ""}, false, "inconsistent vendoring"},
		{"other folder", map[string]string{"third_party/pgque/x": ""}, false, "works"},
		{"workspace", map[string]string{"vendor/pgque/x": "", "go.work": "go 1.26.0\nuse .\n"}, false, "works"},
		{"workspace with the marker", map[string]string{"vendor/modules.txt": goMarker, "go.work": "go 1.26.0\nuse .\n"}, false, "inconsistent vendoring"},
	} {
		top := t.TempDir()
		for _, files := range []map[string]string{module, tt.extra} {
			for name, text := range files {
				put(t, top, name, text)
			}
		}
		if tt.marker {
			if written, err := WriteGoMarker(filepath.Join(top, "vendor", "pgque")); err != nil || !written {
				t.Fatal(written, err)
			}
		}
		if got := build(top); got != tt.want {
			t.Errorf("%s: go build: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestIgnoredBy(t *testing.T) {
	t.Parallel()
	const file = "vendor/pgque/pgque.sql"
	tests := []struct {
		root, nested string // .gitignore at the root, and in vendor/
		ignored      bool
	}{
		{"vendor/\n", "", true},
		{"/vendor\n", "", true},
		{"vendor\r\n", "", true},
		{"/vendor/*\n", "", true},
		{"vendor/*\n!vendor/pgque\n", "", false},
		{"vendor/\n!vendor/pgque/pgque.sql\n", "", true}, // below an ignored folder
		{"*.sql\n", "", true},
		{"*.sql\n!pgque.sql\n", "", false},
		{"!pgque.sql\n*.sql\n", "", true},
		{"**/pgque/**\n", "", true},
		{"vendor/**/pgque.sql\n", "", true},
		{"**/pgque.sql\n", "", true},
		{"pgque.sql/\n", "", false}, // folders only
		{"/pgque.sql\n", "", false}, // at the root only
		{"pgque/pgque.sql\n", "", false},
		{"#vendor/\n\n", "", false},
		{"other/\n*.txt\n", "", false},
		{"pgqu[de].sql\n", "", true},
		{"pgque.sq?\n", "", true},
		{"[\n", "", false},
		{"", "pgque/\n", true},
		{"", "/pgque/*.sql\n", true},
		{"*.sql\n", "!*.sql\n", false},
	}
	git, gitErr := exec.LookPath("git")
	for _, tt := range tests {
		top := t.TempDir()
		if gitErr == nil {
			if out, err := exec.Command(git, "init", "-q", top).CombinedOutput(); err != nil {
				t.Fatalf("git init: %v\n%s", err, out)
			}
		} else {
			put(t, top, ".git/HEAD", "")
		}
		put(t, top, ".gitignore", tt.root)
		put(t, top, "vendor/.gitignore", tt.nested)
		put(t, top, file, "")
		if got := ignoredBy(filepath.Join(top, "vendor", "pgque"), SQLName); (got != "") != tt.ignored {
			t.Errorf("%q, %q: got %q", tt.root, tt.nested, got)
		}
		if gitErr != nil {
			continue
		}
		cmd := exec.Command(git, "-C", top, "-c", "core.excludesFile=", "check-ignore", "-q", file)
		if git := cmd.Run() == nil; git != tt.ignored {
			t.Errorf("%q, %q: git itself says %v", tt.root, tt.nested, git)
		}
	}
	if got := ignoredBy(filepath.Join(t.TempDir(), "x"), SQLName); got != "" {
		t.Errorf("outside a repository: %q", got)
	}
}

// Opening a named pipe would wait for a writer for ever.
func TestSurroundingsOfPipes(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	put(t, top, "go.mod", "module x\n")
	for _, folder := range []string{".git", "vendor"} {
		if err := os.Mkdir(filepath.Join(top, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makePipe(t, filepath.Join(top, ".gitignore"))
	makePipe(t, filepath.Join(top, "vendor", "modules.txt"))
	done := make(chan error, 1)
	go func() {
		_, err := Surroundings(filepath.Join(top, "vendor", "pgque"), false)
		done <- err
	}()
	select {
	case err := <-done:
		if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "is a named pipe") {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for the pipe")
	}
}
