package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Commands have flags of one name that take different things, such as consume's
// --limit, a time, and peek's, a number: a variable that is set for one of them does
// not keep the other from being used.
func TestVariableOfOneCommand(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://u@127.0.0.1:1/d?connect_timeout=1"
	for _, test := range []struct {
		name      string
		args      []string
		variables map[string]string
		code      int
		want      string // on stderr
	}{
		{"for another", []string{"peek", "q"}, map[string]string{"PGQUE_VENDOR_LIMIT": "10m"}, 2,
			"hint: if it is for another command, set PGQUE_VENDOR_PEEK_LIMIT for this one\n"},
		{"for this one", []string{"peek", "q"}, map[string]string{"PGQUE_VENDOR_LIMIT": "10m", "PGQUE_VENDOR_PEEK_LIMIT": "5"}, 4, "refused"},
		{"of a command in a group", []string{"dlq", "list"}, map[string]string{"PGQUE_VENDOR_LIMIT": "10m", "PGQUE_VENDOR_DLQ_LIST_LIMIT": "5"}, 4, "refused"},
		{"for all", []string{"peek", "q"}, map[string]string{"PGQUE_VENDOR_LIMIT": "5"}, 4, "refused"},
		{"its own is wrong", []string{"peek", "q"}, map[string]string{"PGQUE_VENDOR_PEEK_LIMIT": "x"}, 2, "the environment variable PGQUE_VENDOR_PEEK_LIMIT is \"x\": it takes a whole number"},
		{"a flag wins", []string{"peek", "q", "--limit", "5"}, map[string]string{"PGQUE_VENDOR_PEEK_LIMIT": "x"}, 4, "refused"},
		{"nothing lifts a protection", []string{"dlq", "purge", "--queue", "q"}, map[string]string{"PGQUE_VENDOR_DLQ_PURGE_YES": "no bool"}, 4, "refused"},
	} {
		test.variables["PGQUE_VENDOR_WAIT"] = "0s"
		test.variables["PGQUE_VENDOR_DATABASE_URL"] = nowhere
		_, talk, code := runCommand(t, test.variables, test.args...)
		if code != test.code || !strings.Contains(talk, test.want) || code == 4 && strings.Contains(talk, "another command") {
			t.Errorf("%s: exit %d: %s", test.name, code, talk)
		}
	}
}

// No two flags have a variable in common, other than flags of one name.
func TestVariablesAreApart(t *testing.T) {
	t.Parallel()
	meant := map[string]string{}
	var each func(cmd *cobra.Command)
	each = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			for name, what := range map[string]string{
				variable(cmd, f.Name):        cmd.CommandPath() + " --" + f.Name,
				variable(cmd.Root(), f.Name): "pgque-vendor --" + f.Name,
			} {
				if other := meant[name]; other != "" && other != what {
					t.Errorf("%s is of %q and of %q", name, other, what)
				}
				meant[name] = what
			}
		})
		for _, child := range cmd.Commands() {
			each(child)
		}
	}
	each(newRootCommand(processEnvironment()))
	if meant["PGQUE_VENDOR_DIR"] != "pgque-vendor --dir" || meant["PGQUE_VENDOR_DLQ_LIST_LIMIT"] != "pgque-vendor dlq list --limit" {
		t.Errorf("not the names that are documented: %q", meant)
	}
}
