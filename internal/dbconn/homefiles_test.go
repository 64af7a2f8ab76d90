//go:build !windows

package dbconn

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
)

// Files of TLS in the home folder that nobody asked for are no failure where TLS
// isn't either; where it is, the failure names them and no setting (B085).
func TestBrokenFilesOfTheHomeFolder(t *testing.T) {
	clearEnvironment(t)
	key, crt := "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	unreadable := "" // a folder of that name: a test may run as root, who reads everything
	for _, home := range []map[string]string{
		{"root.crt": unreadable},
		{"root.crt": "no certificate"},
		{"postgresql.key": unreadable, "postgresql.crt": crt},
		{"postgresql.key": key, "postgresql.crt": unreadable},
		{"postgresql.key": key, "postgresql.crt": crt, "root.crt": unreadable},
	} {
		folder := filepath.Join(t.TempDir(), ".postgresql")
		for name, text := range home {
			path := filepath.Join(folder, name)
			if text == unreadable {
				if err := os.MkdirAll(path, 0o700); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("HOME", filepath.Dir(folder))
		for _, c := range []struct {
			url     string
			env     map[string]string
			refused string // a piece of the text
		}{
			{"postgres://u:p@h/d", nil, ""},
			{"postgres://u:p@h", nil, ""},
			{"postgres://u:p@h/d?sslmode=disable", nil, ""},
			{"postgres://u:p@h/d?sslmode=allow&connect_timeout=3", nil, ""},
			{`host=h user=u dbname=d sslmode=prefer password=p\`, nil, ""},
			{"", map[string]string{"PGHOST": "h", "PGUSER": "u"}, ""},
			{"postgres://u:p@h/d?sslmode=require", nil, "~/.postgresql/"},
			{"postgres://u:p@h/d?sslmode=verify-full", nil, "~/.postgresql/"},
			{"postgres://u:p@h/d", map[string]string{"PGSSLMODE": "require"}, "~/.postgresql/"},
			{"postgres://u:p@h/d?sslmode=disable&sslrootcert=" + filepath.Join(folder, "nowhere"), nil, "the file named by sslrootcert cannot be read"},
			{"postgres://u:p@h/d", map[string]string{"PGSSLROOTCERT": filepath.Join(folder, "nowhere")}, "the file named by sslrootcert cannot be read"},
		} {
			env := map[string]string{"DATABASE_URL": c.url}
			for name, value := range c.env {
				env[name] = value
				t.Setenv(name, value)
			}
			s, err := Resolve(input(env))
			for name := range c.env {
				os.Unsetenv(name)
			}
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("%v: %q: %v", home, c.url, err)
			case c.refused == "":
				if pool, err := s.PoolConfig(); err != nil || pool.ConnConfig.Password != s.Config().Password {
					t.Errorf("%v: %q: the pool: %v", home, c.url, err)
				}
			case !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), c.refused):
				t.Errorf("%v: %q: %q is not in %v", home, c.url, c.refused, err)
			case strings.HasPrefix(c.refused, "~") && strings.Contains(err.Error(), "named by"):
				t.Errorf("%v: %q: nobody named one: %v", home, c.url, err)
			}
		}
	}
}
