package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/pgtest"
	"github.com/stega/pgque-vendor/internal/standin"
)

// No output of bootstrap, at any verbosity, holds a piece of four characters of
// the password, whatever is wrong with the connection settings.
func TestSecretsStayOutOfTheOutput(t *testing.T) {
	const secret = "zQ7wXj9vKp3YmB"
	pieces := func(text string) []string {
		var found []string
		for i := range len(secret) - 3 {
			if strings.Contains(text, secret[i:i+4]) {
				found = append(found, secret[i:i+4])
			}
		}
		return found
	}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "PG") && !strings.HasPrefix(name, "PGQUE") {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	db := pgtest.NewServer(t, pgtest.Options{Auth: "scram-sha-256"}).Database(t)
	app := db.Role(t)
	db.Exec(t, fmt.Sprintf(`alter role "%s" password '%s'`, app, secret))
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	good := func(edit func(*url.URL)) string {
		u := *u
		u.User = url.UserPassword(app, secret)
		if edit != nil {
			edit(&u)
		}
		return u.String()
	}
	type settings map[string]string
	cases := map[string]settings{
		"right password":         {"DATABASE_URL": good(nil)},
		"wrong password":         {"DATABASE_URL": good(func(u *url.URL) { u.User = url.UserPassword(app, secret+"!") })},
		"wrong password, TLS":    {"DATABASE_URL": good(func(u *url.URL) { u.RawQuery = "sslmode=prefer"; u.User = url.UserPassword(app, secret+"!") })},
		"unknown user":           {"DATABASE_URL": good(func(u *url.URL) { u.User = url.UserPassword("nobody", secret) })},
		"unknown database":       {"DATABASE_URL": good(func(u *url.URL) { u.Path = "/nowhere" })},
		"wrong port":             {"DATABASE_URL": good(func(u *url.URL) { u.Host = "127.0.0.1:1" })},
		"no such host":           {"DATABASE_URL": good(func(u *url.URL) { u.Host = "no-such-host.invalid:5432" })},
		"unknown server setting": {"DATABASE_URL": good(func(u *url.URL) { u.RawQuery = "options=-c%20nonsense.%3D1" })},
		"line break":             {"DATABASE_URL": good(nil) + "\n"},
		"file with CRLF":         {"DATABASE_URL_FILE": file("crlf", good(nil)+"\r\n")},
		"file with a bad URL":    {"DATABASE_URL_FILE": file("bad", "postgres://u:"+secret+"/x@h/d\n")},
		"PGPASSWORD":             {"DATABASE_URL": good(func(u *url.URL) { u.User = url.User("nobody") }), "PGPASSWORD": secret},
		"PGPASSWORD_FILE":        {"DATABASE_URL": good(func(u *url.URL) { u.User = url.User("nobody") }), "PGPASSWORD_FILE": file("pw", secret+"\n")},
		"PGPASSFILE":             {"DATABASE_URL": good(func(u *url.URL) { u.User = url.User("nobody") }), "PGPASSFILE": file("pgpass", "*:*:*:*:"+secret+"\n")},
		"keywords with spaces":   {"DATABASE_URL": "host = 127.0.0.1 port = x password = " + secret},
		"jdbc":                   {"DATABASE_URL": "jdbc:postgresql://127.0.0.1/d?user=u&password=" + secret},
		"no scheme":              {"DATABASE_URL": "u:" + secret + "@127.0.0.1/d"},
		"unescaped @":            {"DATABASE_URL": "postgres://u:" + secret[:7] + "@" + secret[7:] + "@127.0.0.1/d"},
		"unescaped /":            {"DATABASE_URL": "postgres://u:5432/" + secret + "@127.0.0.1/d"},
		"unescaped #":            {"DATABASE_URL": "postgres://u:" + secret[:7] + "#" + secret[7:] + "@127.0.0.1/d"},
		"unescaped ?":            {"DATABASE_URL": "postgres://u:" + secret[:7] + "?" + secret[7:] + "@127.0.0.1/d"},
		"unescaped %":            {"DATABASE_URL": "postgres://u:" + secret[:7] + "%" + secret[7:] + "@127.0.0.1/d"},
		"password in the query":  {"DATABASE_URL": "postgres://127.0.0.1:1/d?user=u&passwort=" + secret},
	}
	folder := filepath.Join(dir, "vendored")
	writeVendored(t, folder, standin.SQL(), standin.Newer)
	for name, set := range cases {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"PGPASSWORD", "PGPASSFILE"} {
				t.Setenv(v, set[v]) // the driver reads these itself
			}
			for _, args := range [][]string{{}, {"--verbose"}, {"--quiet"}, {"--json", "--verbose"}, {"--check", "--json"}, {"--plan", "--verbose"}} {
				var out bytes.Buffer
				env := processEnvironment()
				env.stdout, env.stderr = &out, &out
				env.lookup = func(name string) (string, bool) {
					if name == "PGQUE_VENDOR_ALLOW_STANDIN" {
						return "1", true
					}
					v, ok := set[name]
					return v, ok
				}
				code := run(append([]string{"bootstrap", "--dir", folder, "--wait", "0", "--no-grant"}, args...), env)
				if found := pieces(out.String()); len(found) > 0 {
					t.Errorf("%v: %q in the output:\n%s", args, found, out.String())
				}
				if code != 0 && out.Len() == 0 {
					t.Errorf("%v: exit code %d and not a word", args, code)
				}
			}
		})
	}
}
