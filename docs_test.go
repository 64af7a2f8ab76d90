package repository_test

import (
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const regenerate = "go run -tags docs ./cmd/pgque-vendor docs --markdown docs/reference"

// The command reference is what the commands say now.
func TestReferenceIsCurrent(t *testing.T) {
	t.Parallel()
	now, man := t.TempDir(), t.TempDir()
	run(t, "go", "run", "-tags", "docs", "./cmd/pgque-vendor", "docs", "--markdown", now, "--man", man)
	want, got := folder(t, now), folder(t, "docs/reference")
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("docs/reference/%s is not what the commands say; to write it again: %s", name, regenerate)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("docs/reference/%s is of no command; git rm it", name)
	}
	pages := folder(t, man)
	for name, page := range pages {
		if strings.Contains(page, `PGQUE\fIVENDOR`) {
			t.Errorf("%s takes the underscores of a variable for emphasis", name)
		}
	}
	if root := pages["pgque-vendor.1"]; !strings.Contains(root, "PGQUE_VENDOR_DIR") || !strings.Contains(root, "--version") {
		t.Errorf("pgque-vendor.1 has no PGQUE_VENDOR_DIR or no --version:\n%s", root)
	}
}

func folder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("%v; to write the reference: %s", err, regenerate)
	}
	content := map[string]string{}
	for _, f := range files {
		content[f.Name()] = read(t, filepath.Join(dir, f.Name()))
	}
	return content
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// documents returns the Markdown files of the repository, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "vendor" || d.Name() == "dist" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			found[filepath.ToSlash(path)] = read(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var (
	fence    = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	code     = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.*)$`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Every link leads somewhere: files and headings are looked up; what lies outside of
// this repository is only listed.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := documents(t)
	outside := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := code.ReplaceAllString(fence.ReplaceAllString(all[name], ""), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(match[1])
			if err != nil || target.Scheme != "" {
				if err != nil || target.Host == "" {
					t.Errorf("%s: %q is no link", name, match[1])
				}
				outside[match[1]] = true
				continue
			}
			path := name
			if target.Path != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(name), target.Path))
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %q, which is not there", name, match[1])
			} else if target.Fragment != "" && !slices.Contains(anchors(all[path]), target.Fragment) {
				t.Errorf("%s links to %q, but %s has no such heading", name, match[1], path)
			}
		}
	}
	t.Logf("not looked up:\n%s", strings.Join(slices.Sorted(maps.Keys(outside)), "\n"))
}

// anchors are the names that GitHub gives to the headings of a document.
func anchors(text string) []string {
	var names []string
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := linkText.ReplaceAllString(match[1], "$1")
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, title))
	}
	return names
}

// The index names every document.
func TestDocumentsAreIndexed(t *testing.T) {
	t.Parallel()
	index := read(t, "docs/README.md")
	for name := range documents(t) {
		if rest, ok := strings.CutPrefix(name, "docs/"); ok && !strings.Contains(rest, "/") && rest != "README.md" &&
			!strings.Contains(index, "]("+rest+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}

var codeLine = regexp.MustCompile(`(?m)^  (\d+) +\S`)

// One table of exit codes, wherever it stands. That README's is the one of --help,
// a test of the command knows.
func TestExitCodesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	table := func(text, title string) string {
		_, rest, _ := strings.Cut(text, "\n"+title+"\n")
		table, _, _ := strings.Cut(rest, "\n```")
		return table
	}
	want := table(read(t, "README.md"), "Exit codes:")
	if strings.Count(want, "\n") < 8 {
		t.Fatalf("README.md has no table of exit codes: %q", want)
	}
	for _, name := range []string{"docs/exit-codes.md", "docs/reference/pgque-vendor.md"} {
		if got := table(read(t, name), "Exit codes:"); got != want {
			t.Errorf("%s has another table of exit codes than README.md:\n%s", name, got)
		}
	}
	numbers := func(table string) (all []string) {
		for _, match := range codeLine.FindAllStringSubmatch(table, -1) {
			all = append(all, match[1])
		}
		return all
	}
	if got := numbers(table(read(t, "README.pt-BR.md"), "Códigos de saída:")); !slices.Equal(got, numbers(want)) {
		t.Errorf("README.pt-BR.md has the exit codes %q, README.md %q", got, numbers(want))
	}
}

var comment = regexp.MustCompile(`(?m)\s*(#|//) .*$`)

// The Portuguese README has the same sections, commands and links as the English one.
func TestReadmesAreInStep(t *testing.T) {
	t.Parallel()
	english, portuguese := read(t, "README.md"), read(t, "README.pt-BR.md")
	blocks := func(text string) (all []string) {
		for _, match := range fence.FindAllStringSubmatch(text, -1) {
			if match[1] != "text" {
				all = append(all, comment.ReplaceAllString(match[2], ""))
			}
		}
		return all
	}
	sections := func(text string) (all []string) {
		for _, match := range heading.FindAllString(fence.ReplaceAllString(text, ""), -1) {
			level, _, _ := strings.Cut(match, " ")
			all = append(all, level)
		}
		return all
	}
	targets := func(text string) (all []string) {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if !strings.HasPrefix(match[1], "README") && !strings.HasPrefix(match[1], "#") {
				all = append(all, match[1])
			}
		}
		return all
	}
	rows := func(text string) (all []string) {
		for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
			if strings.HasPrefix(line, "| `") {
				all = append(all, strings.Split(line, "|")[1])
			}
		}
		return all
	}
	for _, part := range []struct {
		name string
		of   func(string) []string
	}{{"code", blocks}, {"sections", sections}, {"links", targets}, {"table rows", rows}} {
		a, b := part.of(english), part.of(portuguese)
		for n := range max(len(a), len(b)) {
			if n >= len(a) || n >= len(b) || a[n] != b[n] {
				t.Errorf("%s: README.md and README.pt-BR.md differ from number %d on:\n%q\n%q", part.name, n+1, a[n:min(n+1, len(a))], b[n:min(n+1, len(b))])
				break
			}
		}
	}
}

// snippetNames are what the snippets leave to the reader.
const snippetNames = `
func send(context.Context, string) error { return nil }
`

// Every Go snippet compiles: those with declarations as they are, others inside a
// function. A variable that a snippet leaves unused is no mistake.
func TestGoSnippetsCompile(t *testing.T) {
	t.Parallel()
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	source := map[string]string{}
	for name, text := range documents(t) {
		if strings.HasPrefix(name, "examples/") {
			continue // a module of its own
		}
		for n, match := range fence.FindAllStringSubmatch(text, -1) {
			if match[1] != "go" {
				continue
			}
			id := strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(name) + "_" + string(rune('a'+n))
			file := filepath.Join(dir, id+".go")
			if err := os.WriteFile(file, []byte(snippet(match[2])), 0o600); err != nil {
				t.Fatal(err)
			}
			replace[filepath.Join(root, "internal", "snippets", id, "snippet.go")] = file
			source[id] = name
		}
	}
	if len(source) == 0 {
		t.Fatal("no Go snippet was found")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	for id, name := range source {
		cmd := exec.Command("go", "build", "-gcflags=-e", "-overlay", filepath.Join(dir, "overlay.json"), "-o", os.DevNull, "./internal/snippets/"+id)
		out, err := cmd.CombinedOutput()
		if err == nil {
			continue
		}
		for line := range strings.Lines(string(out)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.Contains(line, "declared and not used") {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// snippet makes a file of a document's Go text, importing what it names.
func snippet(text string) string {
	if strings.HasPrefix(text, "package ") {
		return text
	}
	if !strings.Contains("\n"+text, "\nfunc ") {
		text = "func _(ctx context.Context, pool *pgxpool.Pool, tx pgx.Tx, mail WelcomeMail) error {\n" + text + "\nreturn nil\n}\ntype WelcomeMail struct{ Email string }\n"
	}
	text += snippetNames
	imports := ""
	for _, p := range []struct{ name, path string }{
		{"context", "context"}, {"errors", "errors"}, {"fmt", "fmt"}, {"json", "encoding/json"}, {"slog", "log/slog"}, {"time", "time"},
		{"pgx", "github.com/jackc/pgx/v5"}, {"pgxpool", "github.com/jackc/pgx/v5/pgxpool"},
		{"events", "github.com/stega/pgque-vendor/events"}, {"eventstest", "github.com/stega/pgque-vendor/events/eventstest"},
	} {
		if regexp.MustCompile(`\b` + p.name + `\.`).MatchString(text) {
			imports += "\t\"" + p.path + "\"\n"
		}
	}
	return "package snippet\n\nimport (\n" + imports + ")\n\n" + text
}
