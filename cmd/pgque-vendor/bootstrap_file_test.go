package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/standin"
)

// What a file may not hold is refused before any connection: what only psql knows, and
// what takes the lock, the proof and the record out of the transaction (B087).
func TestBootstrapRefusesFile(t *testing.T) {
	t.Parallel()
	sql := string(standin.SQL())
	for _, test := range []struct{ sql, want string }{
		{"\\set x 1\n" + sql, `pgque.sql:1: the psql command "\\set x 1" is not supported`},
		{"begin;\n" + sql + "\n;commit;", `pgque.sql:1: the statement "begin" is not supported`},
		{"select 1;\nCOMMIT; select nosuch();", `pgque.sql:2: the statement "COMMIT" is not supported`},
	} {
		dir := t.TempDir()
		writeVendored(t, dir, []byte(test.sql), "v9.0.0")
		for _, args := range [][]string{{}, {"--check"}, {"--plan"}} {
			var out bytes.Buffer
			env := &environment{stdout: &out, stderr: &out, now: processEnvironment().now, lookup: func(name string) (string, bool) {
				return map[string]string{"PGQUE_VENDOR_ALLOW_STANDIN": "1", "DATABASE_URL": "postgres://u@127.0.0.1:1/d"}[name], true
			}}
			code := run(append([]string{"bootstrap", "--dir", dir, "--wait", "0"}, args...), env)
			if code != 6 || !strings.Contains(out.String(), test.want) || strings.Contains(out.String(), "using") {
				t.Errorf("%v: exit %d, want 6 and %q:\n%s", args, code, test.want, out.String())
			}
		}
	}
}
