package dbconn

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
)

// clearEnvironment hides the PG* variables of whoever runs the tests.
func clearEnvironment(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "PG") || strings.HasSuffix(name, "DATABASE_URL") || strings.HasSuffix(name, "DATABASE_URL_FILE") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
}

func input(env map[string]string) Input {
	return Input{
		Lookup: func(name string) (string, bool) {
			if v, ok := env[name]; ok {
				return v, true
			}
			return os.LookupEnv(name)
		},
		ReadFile: os.ReadFile,
	}
}

func TestWhichSourceWins(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url := func(db string) string { return "postgres://u@h:5433/" + db + "?sslmode=disable" }
	flag, ours, plain := write("flag", url("flag")+"\n"), write("ours", url("oursfile")+"\r\n"), write("plain", url("plainfile"))
	for _, c := range []struct {
		name             string
		env              map[string]string
		flag             string
		database, source string
	}{
		{"flag over all", map[string]string{"PGQUE_VENDOR_DATABASE_URL": url("ours"), "DATABASE_URL": url("plain")}, flag, "flag", `--database-url-file "` + flag + `"`},
		{"ours", map[string]string{"PGQUE_VENDOR_DATABASE_URL": url("ours"), "DATABASE_URL": url("plain")}, "", "ours", "PGQUE_VENDOR_DATABASE_URL"},
		{"ours from a file", map[string]string{"PGQUE_VENDOR_DATABASE_URL_FILE": ours, "DATABASE_URL": url("plain")}, "", "oursfile", "PGQUE_VENDOR_DATABASE_URL_FILE"},
		{"plain", map[string]string{"DATABASE_URL": url("plain")}, "", "plain", "DATABASE_URL"},
		{"plain from a file", map[string]string{"DATABASE_URL_FILE": plain}, "", "plainfile", "DATABASE_URL_FILE"},
		{"keywords", map[string]string{"DATABASE_URL": "host=h port=5433 dbname=keyword user=u password = 'a b'"}, "", "keyword", "DATABASE_URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(c.env)
			in.URLFile = c.flag
			s, err := Resolve(in)
			if err != nil {
				t.Fatal(err)
			}
			if s.Database() != c.database || !strings.Contains(s.Source, c.source) || s.Address() != "h:5433" {
				t.Errorf("%s, want %q from %q", s.Target(), c.database, c.source)
			}
		})
	}
	t.Run("PG*", func(t *testing.T) {
		t.Setenv("PGHOST", "pghost")
		t.Setenv("PGDATABASE", "pgdb")
		t.Setenv("PGUSER", "pguser")
		s, err := Resolve(input(nil))
		if err != nil || s.Target() != `database "pgdb" at pghost:5432 as "pguser" (from PGHOST, PGDATABASE, PGUSER)` {
			t.Errorf("%v, %v", s, err)
		}
		// PG* fills what a URL leaves out, as with psql.
		s, err = Resolve(input(map[string]string{"DATABASE_URL": "postgres:///urldb"}))
		if err != nil || s.Address() != "pghost:5432" || s.Database() != "urldb" || s.User() != "pguser" {
			t.Errorf("%v, %v", s, err)
		}
	})
	t.Run("several hosts", func(t *testing.T) {
		s, err := Resolve(input(map[string]string{"DATABASE_URL": "postgres://u@a,b:5433/d"}))
		if err != nil || s.Address() != "a:5432, b:5433" || !s.wantsPrimary {
			t.Errorf("%v, %v", s, err)
		}
	})
	t.Run("nothing is sent at start-up that a pooler does not know", func(t *testing.T) {
		s, err := Resolve(input(map[string]string{"DATABASE_URL": "postgres://u@h/d?pool_max_conns=7"}))
		if err != nil {
			t.Fatal(err)
		}
		if params := s.Config().RuntimeParams; len(params) != 3 || params["application_name"] != "pgque-vendor" || params["client_encoding"] != "UTF8" || params["datestyle"] != "ISO" {
			t.Errorf("%v", params)
		}
		pool, err := s.PoolConfig()
		if err != nil || pool.MaxConns != 7 || len(pool.ConnConfig.RuntimeParams) != 3 {
			t.Errorf("%v, %v", pool, err)
		}
	})
}

// One line end is cut, nothing else (B028).
func TestPasswordFile(t *testing.T) {
	clearEnvironment(t)
	path := filepath.Join(t.TempDir(), "password")
	for _, c := range []struct{ content, want, fails string }{
		{"pw", "pw", ""},
		{"pw\n", "pw", ""},
		{"pw\r\n", "pw", ""},
		{"pw\n\n", "pw\n", ""},
		{"pw ", "pw ", ""},
		{" pw \n", " pw ", ""},
		{"", "", "is empty"},
		{"\n", "", "is empty"},
		{"\xef\xbb\xbfpw", "", "byte order mark"},
	} {
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Resolve(input(map[string]string{"DATABASE_URL": "postgres://u@h/d", "PGPASSWORD_FILE": path}))
		switch {
		case c.fails == "" && (err != nil || s.Config().Password != c.want):
			t.Errorf("%q: %v", c.content, err)
		case c.fails != "" && (!fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), c.fails) || !strings.Contains(err.Error(), "PGPASSWORD_FILE") || !strings.Contains(err.Error(), path)):
			t.Errorf("%q: %v", c.content, err)
		}
	}
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "no"), "a directory": t.TempDir()} {
		if _, err := Resolve(input(map[string]string{"DATABASE_URL_FILE": path})); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	in := input(map[string]string{"DATABASE_URL_FILE": "/run/secrets/url"})
	in.ReadFile = func(string) ([]byte, error) { return nil, &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission} }
	if _, err := Resolve(in); err == nil || !strings.Contains(err.Error(), `DATABASE_URL_FILE: read "/run/secrets/url": permission denied`) {
		t.Errorf("unreadable: %v", err)
	}
}

// A refused password's hint names where that password came from, and nothing else (B028).
func TestWherePasswordsComeFrom(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	passwords, secret := filepath.Join(dir, "pgpass"), filepath.Join(dir, "secret")
	for path, text := range map[string]string{passwords: "*:*:*:*:pw\n", secret: "pw\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		url  string
		env  map[string]string
		want string
	}{
		{"postgres://u:pw@h/d", map[string]string{"PGPASSWORD": "x"}, "DATABASE_URL"},
		{"postgres://h/d?user=u&password=pw", nil, "DATABASE_URL"},
		{"host=h user=u password = pw", nil, "DATABASE_URL"},
		{"postgres://u@h:5433/d", map[string]string{"PGPASSWORD": "pw", "PGPASSFILE": passwords}, "PGPASSWORD"},
		{"postgres://u@service/password", map[string]string{"PGPASSWORD": "pw"}, "PGPASSWORD"},
		{"postgres://u@h/d", map[string]string{"PGPASSFILE": passwords}, "the password file that PGPASSFILE names"},
		{"postgres://u@h/d?passfile=" + filepath.ToSlash(passwords), nil, "the password file"},
		{"postgres://u:@h/d", map[string]string{"PGPASSWORD_FILE": secret}, "PGPASSWORD_FILE"},
		{"", map[string]string{"PGHOST": "h", "PGUSER": "u", "PGPASSWORD": "pw"}, "PGPASSWORD"},
	} {
		env := map[string]string{"DATABASE_URL": c.url}
		for name, value := range c.env {
			env[name] = value
			t.Setenv(name, value) // the driver reads it itself
		}
		s, err := Resolve(input(env))
		for name := range c.env {
			os.Unsetenv(name)
		}
		if err != nil {
			t.Errorf("%q: %v", c.url, err)
			continue
		}
		if hint := s.passwordHint(); hint != "the password came from "+c.want {
			t.Errorf("%q, %v: %q, want %q", c.url, c.env, hint, c.want)
		}
	}
}

func TestTwoFormsOfOneSource(t *testing.T) {
	clearEnvironment(t)
	for _, env := range []map[string]string{
		{"DATABASE_URL": "postgres://u@h/d", "DATABASE_URL_FILE": "/x"},
		{"PGQUE_VENDOR_DATABASE_URL": "postgres://u@h/d", "PGQUE_VENDOR_DATABASE_URL_FILE": "/x"},
		{"DATABASE_URL": "postgres://u@h/d", "PGPASSWORD": "x", "PGPASSWORD_FILE": "/x"},
	} {
		if _, err := Resolve(input(env)); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "two forms") {
			t.Errorf("%v: %v", env, err)
		}
	}
}

// secretPassword has no four characters that occur in any text of ours.
const secretPassword = "zQ7wXj9vKp3YmB"

// brokenStrings are connection strings that are wrong in a way that shows a
// piece of the password somewhere else (issue's part 7; B085, B086). PW stands
// for the password; what is around it makes it odd.
var brokenStrings = []struct{ text, reason string }{
	{"postgres://u:zQ7w@Xj9vKp3YmB@h/d", `unescaped "@"`},
	{"postgres://u:zQ7w/Xj9vKp3YmB@h/d", `unescaped "/"`},
	{"postgres://u:5432/zQ7wXj9vKp3YmB@h/d", `unescaped "/"`},
	{"postgres://u:5432/zQ7wXj9vKp3YmB@h", `the user or the password has an unescaped "/"`},
	{"postgres://u:zQ7wXj9vKp3YmB@[h/d", "cannot be read"},
	{"postgres://u:zQ7w?Xj9vKp3YmB@h/d", `unescaped "?"`},
	{"postgres://u:5432?user=zQ7wXj9vKp3YmB@h/d", `unescaped "?"`},
	{"postgres://u:zQ7w#Xj9vKp3YmB@h/d", `unescaped "#"`},
	{"postgres://u:zQ7w%Xj9vKp3YmB@h/d", `two hexadecimal digits`},
	{"postgres://u:zQ7w Xj9vKp3YmB@h/d", "space"},
	{"postgres://u:zQ7wXj9vKp3YmB@h:zQ7w/d", "port is not a number"},
	{"postgres://u:zQ7wXj9vKp3YmB@h:99999/d", "port"},
	{"postgres://u:zQ7wXj9vKp3YmB@h/d\n", "line break"},
	{"postgres://u:zQ7wXj9vKp3YmB@h/d?sslmode=maybe", "sslmode"},
	{"postgres://u:zQ7wXj9vKp3YmB@h/d?sslmod=require", "not one that PostgreSQL's clients know"},
	{"postgres://u:zQ7wXj9vKp3YmB@h/d?Xj9vKp3Y", "not one that PostgreSQL's clients know"},
	{"postgres://u:zQ7wXj9vKp3YmB@h/d?target_session_attrs=Xj9v", "target_session_attrs"},
	{"postgres://u:zQ7wXj9vKp3YmB@h/d?connect_timeout=Xj9v", "connect_timeout"},
	{"postgres://u:zQ7wXj9vKp3YmB@h/d?sslrootcert=/nonexistent&sslmode=verify-full", "sslrootcert"},
	{"jdbc:postgresql://h/d?user=u&password=zQ7wXj9vKp3YmB", "JDBC"},
	{"mysql://u:zQ7wXj9vKp3YmB@h/d", "must start with postgres://"},
	{"u:zQ7wXj9vKp3YmB@h:5432/d", "must start with postgres://"},
	{"zQ7wXj9vKp3YmB", "must start with postgres://"},
	{"host=h user=u password=zQ7w Xj9vKp3YmB", "single quotes"},
	{"host=h user=u password=zQ7w Xj9v=Kp3YmB", "do not know"},
	{"host=h user=u password = 'zQ7wXj9vKp3YmB", "quoted value does not end"},
	{"host=h port=zQ7w user=u password = zQ7wXj9vKp3YmB", "port"},
	{"host=zQ7w@h user=u password=zQ7wXj9vKp3YmB", "host name"},
	{"host=h user=u service=Xj9vKp3Y password=zQ7wXj9vKp3YmB", "service"},
}

func TestBrokenStringsShowNoSecret(t *testing.T) {
	clearEnvironment(t)
	for _, c := range brokenStrings {
		_, err := Resolve(input(map[string]string{"DATABASE_URL": c.text}))
		var f *fault.Error
		if !errors.As(err, &f) || f.Class != fault.Usage {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		text := f.Text + "\n" + strings.Join(f.Hints, "\n")
		if !strings.Contains(text, c.reason) || !strings.Contains(text, "DATABASE_URL") {
			t.Errorf("%q: %q is not in %s", c.text, c.reason, text)
		}
		if showsSecret(text) {
			t.Errorf("%q shows a piece of the password: %s", c.text, text)
		}
	}
}

// Whatever stands around a password, no failure shows a piece of it.
func FuzzResolveShowsNoSecret(f *testing.F) {
	for _, c := range brokenStrings {
		before, after, _ := strings.Cut(c.text, secretPassword)
		f.Add(before, after)
	}
	f.Add("postgres://u:", "@h/d")
	f.Add("host=h password = ", " dbname=d")
	f.Fuzz(func(t *testing.T, before, after string) {
		_, err := Resolve(Input{
			Lookup:   func(name string) (string, bool) { return before + secretPassword + after, name == "DATABASE_URL" },
			ReadFile: os.ReadFile,
		})
		if err != nil && showsSecret(err.Error()+strings.Join(hintsOf(err), " ")) {
			t.Errorf("%q … %q: %v", before, after, err)
		}
	})
}

func showsSecret(text string) bool {
	for i := range len(secretPassword) - 3 {
		if strings.Contains(text, secretPassword[i:i+4]) {
			return true
		}
	}
	return false
}

func TestOldPassfileIsNotSilentlyIgnored(t *testing.T) {
	clearEnvironment(t)
	_, err := Resolve(input(map[string]string{"DATABASE_URL": "postgres://u@h/d", "PGPASSFILE": "/nonexistent/pgpass"}))
	if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "PGPASSFILE") {
		t.Errorf("%v", err)
	}
}
