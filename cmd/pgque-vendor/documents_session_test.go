//go:build unix

package main

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// README's commands, pasted one block after the other into a shell in a new
// repository, do what README says. GitHub is one of our own, with PgQue itself where
// a clone of it is at hand.
func TestReadmeSession(t *testing.T) {
	t.Parallel()
	upstream := os.Getenv("PGQUE_UPSTREAM_GIT")
	if upstream == "" {
		upstream = filepath.Join(t.TempDir(), "upstream.git")
		if err := makeStandinRepository(t.Context(), upstream); err != nil {
			t.Fatal(err)
		}
	}
	server := ghtest.New(ghtest.Options{GitDir: upstream, Repository: defaultRepository})
	defer server.Close()
	db := pgtest.Database(t)
	app := db.Role(t)
	database, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := database.User.Password()
	database.User = url.User(database.User.Username())

	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	vendor := blockAfter(t, string(readme), "## Vendor the SQL")
	bootstrap := replaced(t, blockAfter(t, string(readme), "## Bootstrap a database"),
		"postgres://postgres@localhost:55434/stega-events", "'"+database.String()+"'", "--grant-admin app", "--grant-admin "+app)
	events := replaced(t, blockAfter(t, string(readme), "## Run events"),
		"\npgque-vendor consume", "\nexec_consume", "pgque-vendor ticker &", "pgque-vendor ticker & ticker=$!")
	look := blockAfter(t, string(readme), "## Look after it")

	// What a person does with two terminals and Ctrl-C.
	script := "git init -q -b main .\n" + vendor + bootstrap + `
exec_consume() { pgque-vendor consume "$@" > mails & consumer=$!; }
` + events + `
trap 'kill $consumer $ticker 2>&- || :' EXIT
n=0
until grep -q 'mail for {"email": "ann@example.org"}' mails; do n=$((n+1)); test $n -lt 300; sleep 0.1; done
` + look + `
kill $consumer $ticker
wait $consumer
wait $ticker
test -z "$(git status --porcelain -- vendor)"
`
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	cmd.Dir = t.TempDir()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "DATABASE_URL") && !strings.HasPrefix(name, "GIT") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env,
		"PATH="+programFolder(t)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+t.TempDir(), "XDG_CACHE_HOME="+t.TempDir(), "GITHUB_API_URL="+server.URL, "PGPASSWORD="+password,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org",
		"PGQUE_VENDOR_ALLOW_STANDIN=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"newest stable", "match v0.2.0", "Vendor PgQue v0.2.0", "installed PgQue v0.2.0", "healthy: ", "QUEUE", "ticket.welcome"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing from:\n%s", want, out)
		}
	}
}

// blockAfter returns the first shell block after a heading.
func blockAfter(t *testing.T, text, title string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n"+title+"\n")
	_, rest, found := strings.Cut(rest, "\n```sh\n")
	block, _, ends := strings.Cut(rest, "```\n")
	if !ok || !found || !ends {
		t.Fatalf("README has no shell block after %q", title)
	}
	return block
}

// replaced replaces pairs of texts, each of which must be there.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for n := 0; n < len(pairs); n += 2 {
		if !strings.Contains(text, pairs[n]) {
			t.Fatalf("README has no %q in:\n%s", pairs[n], text)
		}
		text = strings.Replace(text, pairs[n], pairs[n+1], 1)
	}
	return text
}
