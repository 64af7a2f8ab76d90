//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestDocuments runs the command lines of the documents, with the stand-in as PgQue.
// Each script of testdata/documents is a reader: it says where the reader stands (a
// database, a folder with the vendored files), pastes the blocks of a document one
// after the other, and looks at what came of it.
//
// A line must exit with 0. One that goes on until a signal runs in the background, as
// in a terminal of its own; "seen" waits for what it prints, and at the end it is
// told to stop and must exit with 0 as well.
func TestDocuments(t *testing.T) {
	runDocuments(t, "")
}

// TestDocumentsUpstream does the same with PgQue itself.
func TestDocumentsUpstream(t *testing.T) {
	clone := os.Getenv("PGQUE_UPSTREAM_GIT")
	if clone == "" {
		t.Skip("PGQUE_UPSTREAM_GIT names no clone of PgQue, so the documents were tried with the stand-in only")
	}
	runDocuments(t, clone)
}

func runDocuments(t *testing.T, clone string) {
	if testing.Short() {
		t.Skip("starts a dozen servers")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		missing(t, "bash, which runs the documents' command lines")
	}
	all := documents(t)
	params := scriptParams(clone, "testdata/documents")
	common := params.Setup
	params.Setup = func(env *testscript.Env) error {
		if err := common(env); err != nil {
			return err
		}
		if clone == "" { // bootstrap has no use for the small files of the other scripts
			upstream := env.Getenv("UPSTREAM")
			if err := errors.Join(os.RemoveAll(upstream), makeStandinRepository(t.Context(), upstream)); err != nil {
				return err
			}
		}
		env.Values["reader"] = &reader{documents: all, pasted: map[blockPlace]int{}}
		for name, value := range map[string]string{
			"PGQUE_VENDOR_ALLOW_STANDIN": "1",
			"GIT_AUTHOR_NAME":            "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
			"PYENV_ROOT": os.Getenv("PYENV_ROOT"), // HOME is not the user's
		} {
			env.Setenv(name, value)
		}
		return writeWatched(env)
	}
	others := params.Condition
	params.Condition = func(cond string) (bool, error) {
		if cond == "clone" { // and not an archive of the source
			_, err := os.Stat("../../.git")
			return err == nil, nil
		}
		return others(cond)
	}
	for name, cmd := range map[string]func(*testscript.TestScript, bool, []string){
		"checkout": cmdCheckout, "server": cmdServer, "byhand": cmdByHand, "mailbox": cmdMailbox,
		"paste": cmdPaste, "save": cmdSave,
		"seen": cmdSeen, "handled": cmdHandled, "letter": cmdLetter, "end": cmdEnd,
	} {
		params.Cmds[name] = cmd
	}
	testscript.Run(t, params)
}

// missing is for what this machine does not have: no reason to fail, except in CI.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("there is no " + what)
	}
	t.Skip("there is no " + what)
}

// reader is who pastes a document's blocks.
type reader struct {
	documents  map[string]string
	pasted     map[blockPlace]int
	background []*background
	mailbox    mailbox
}

// writeWatched makes the program that background lines call as pgque-vendor. It notes
// the number of the process, for the signal, and how it ended, which a pipe would hide.
func writeWatched(env *testscript.Env) error {
	program, err := exec.LookPath("pgque-vendor")
	if err != nil {
		return err
	}
	dir := filepath.Join(env.WorkDir, "watched")
	env.Setenv("WATCHED", dir)
	script := "#!/bin/sh\nexec 3<&0\n" + program + ` "$@" <&3 3<&- &
echo "started $! $*" >> "$NOTES"
wait $!
code=$?
echo "ended $code $*" >> "$NOTES"
exit $code
`
	return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "pgque-vendor"), []byte(script), 0o755))
}

// cmdPaste: "paste DOCUMENT HEADING [OLD NEW]…" runs the next block below a heading.
// Each OLD must be there: it is what a reader replaces.
func cmdPaste(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args)%2 != 0 {
		ts.Fatalf("usage: paste DOCUMENT HEADING [OLD NEW]…")
	}
	r := ts.Value("reader").(*reader)
	b := r.next(ts, blockPlace{args[0], args[1]})
	for n := 2; n < len(args); n += 2 {
		if !strings.Contains(b.text, args[n]) {
			ts.Fatalf("%s:%d: the block has no %q to replace", b.document, b.line, args[n])
		}
		b.text = strings.ReplaceAll(b.text, args[n], args[n+1])
	}
	if b.language == "sql" {
		_, err := databaseOf(ts).db.Connect(databaseOf(ts).test).Exec(databaseOf(ts).test.Context(), b.text)
		ts.Check(err)
		return
	}
	commands, err := b.commands()
	ts.Check(err)
	for _, c := range here(commands) {
		at := fmt.Sprintf("%s:%d", b.document, c.line)
		ts.Logf("%s: %s", at, c.text)
		switch {
		case slices.Equal(shellCommands(c.text)[0], []string{"go", "test", "./..."}): // runs this test
		case missingProgram(ts, c.text) != "":
			ts.Logf("not run: there is no %s", missingProgram(ts, c.text))
		case strings.HasPrefix(c.text, "export "):
			export(ts, at, c.text)
		case goesOn(c.text):
			r.start(ts, at, c.text)
		default:
			if err := ts.Exec("bash", "-e", "-o", "pipefail", "-c", c.text); err != nil {
				ts.Fatalf("%s: %s: %v", at, c.text, err)
			}
		}
	}
}

// next returns the first block below a heading that was not pasted yet.
func (r *reader) next(ts *testscript.TestScript, place blockPlace) block {
	n := 0
	for _, b := range blocksOf(place.document, r.documents[place.document]) {
		commands, err := b.commands()
		ts.Check(err)
		if b.heading != place.heading || len(here(commands)) == 0 && b.language != "sql" {
			continue
		}
		if n == r.pasted[place] {
			r.pasted[place]++
			return b
		}
		n++
	}
	ts.Fatalf("%s has no block number %d below %q", place.document, n+1, place.heading)
	panic("unreachable")
}

// cmdSave: "save DOCUMENT HEADING FILE" writes the program that stands there.
func cmdSave(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value("reader").(*reader)
	for _, b := range blocksOf(args[0], r.documents[args[0]]) {
		if b.heading == args[1] && b.isFile() {
			ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(b.text), 0o755))
			return
		}
	}
	ts.Fatalf("%s has no program below %q", args[0], args[1])
}

// missingProgram returns a program of a line that is not on this machine. In CI that is
// a failure, but for those that only a handler is written with.
func missingProgram(ts *testscript.TestScript, line string) string {
	for _, words := range shellCommands(line) {
		for _, name := range words {
			if !slices.Contains([]string{"jq", "curl", "openssl", "python3", "psql"}, name) {
				continue
			}
			if _, err := exec.LookPath(name); err == nil {
				continue
			}
			if os.Getenv("CI") == "true" && name != "jq" && name != "curl" {
				ts.Fatalf("there is no %s", name)
			}
			return name
		}
	}
	return ""
}

var exported = regexp.MustCompile(`(\w+)=`)

// export sets what a line exports for the lines after it.
func export(ts *testscript.TestScript, at, line string) {
	for _, match := range exported.FindAllStringSubmatch(line, -1) {
		if err := ts.Exec("bash", "-e", "-c", line+"\nprintf %s \"$"+match[1]+"\""); err != nil {
			ts.Fatalf("%s: %s: %v", at, line, err)
		}
		ts.Setenv(match[1], ts.ReadFile("stdout"))
	}
}
