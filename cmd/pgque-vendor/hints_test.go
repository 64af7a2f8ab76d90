package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A hint that is pasted must not end in another folder or another database than the
// command that gave it, nor grant to others.
func TestHintsKeepWhatWasTyped(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ typed, hint, want string }{
		{"bootstrap", "pgque-vendor bootstrap --reinstall   # why", "pgque-vendor bootstrap --reinstall   # why"},
		{"bootstrap --dir v1 --database-url-file it's --grant-admin app --grant-admin b --queue q:a=1 --json --check --timeout 1m", "pgque-vendor bootstrap --reinstall     # why",
			`pgque-vendor bootstrap --reinstall --dir v1 --database-url-file 'it'\''s' --grant-admin app --grant-admin b --queue q:a=1   # why`},
		{"bootstrap --no-grant --reinstall --owner me", "pgque-vendor bootstrap --owner CURRENT_USER", "pgque-vendor bootstrap --owner CURRENT_USER --no-grant"},
		{"bootstrap --dir v1 --database-url-file u", "pgque-vendor update v0.2.0 --dir v2", "pgque-vendor update v0.2.0 --dir v2"},
		{"bootstrap --dir v1 --database-url-file u", "ALTER ROLE app INHERIT;", "ALTER ROLE app INHERIT;"},
		{"dlq list --database-url-file u", "pgque-vendor dlq replay --type 'a # -- b' --yes", "pgque-vendor dlq replay --type 'a # -- b' --yes --database-url-file u"},
		{"dlq list --database-url-file u", `pgque-vendor dlq replay --type 'it'\''s # not one'   # why`, `pgque-vendor dlq replay --type 'it'\''s # not one' --database-url-file u   # why`},
		{"consume --database-url-file u a b", "pgque-vendor consume a b -- c", "pgque-vendor consume a b --database-url-file u -- c"},
		{"publish --database-url-file u", "pgque-vendor publish --help", "pgque-vendor publish --help"},
		{"doctor --dir v1 --database-url-file u", "pgque-vendor ticker", "pgque-vendor ticker --database-url-file u"},
		{"doctor --dir v1 --database-url-file u --role app", "pgque-vendor status", "pgque-vendor status --dir v1"},
		{"doctor --dir v1", "pgque-vendor bootstrap --no-grant", "pgque-vendor bootstrap --no-grant --dir v1"},
	} {
		env := &environment{}
		cmd, rest, err := newRootCommand(env).Find(strings.Fields(test.typed))
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.ParseFlags(rest); err != nil {
			t.Fatal(err)
		}
		env.takeTyped(cmd)
		got := env.again(test.hint)
		if got != test.want || env.again(got) != got {
			t.Errorf("%s\n got %s\nwant %s", test.typed, got, test.want)
		}
	}
}

// What again takes for the flags of a command is what the command has.
func TestHintsKnowTheCommands(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRootCommand(&environment{}).Commands() {
		leaf := cmd
		if cmd.HasSubCommands() {
			leaf = cmd.Commands()[0]
		}
		kept := keptBy(cmd.Name())
		for _, name := range []string{"dir", "database-url-file"} {
			ofPage := name == "dir" && leaf.Flags().Lookup("listen") != nil
			if has := leaf.Flags().Lookup(name) != nil; has != slices.Contains(kept, name) && !ofPage {
				t.Errorf("%s has --%s: %t", cmd.Name(), name, has)
			}
		}
		leaf.Flags().VisitAll(func(f *pflag.Flag) { kept = slices.DeleteFunc(kept, func(name string) bool { return name == f.Name }) })
		if len(kept) > 0 {
			t.Errorf("%s has no %q", cmd.Name(), kept)
		}
	}
}
