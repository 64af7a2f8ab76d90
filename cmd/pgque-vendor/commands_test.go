package main

import "testing"

// A command that is made alone, as its name at the first place has it, is the
// same as among all.
func TestCommandMadeAlone(t *testing.T) {
	t.Parallel()
	for _, c := range commandMakers() {
		if alone := commands(processEnvironment(), []string{c.name, "--help"}); len(alone) != 1 || alone[0].Name() != c.name {
			t.Errorf("%d commands are made for %q, the first is %q", len(alone), c.name, alone[0].Name())
		}
		alone, _, code := runCommand(t, nil, c.name, "--help")
		among, _, amongCode := runCommand(t, nil, "help", c.name)
		if code != 0 || amongCode != 0 || alone == "" || alone != among {
			t.Errorf("%s --help (exit %d) and help %s (exit %d) differ:\n%s\n%s", c.name, code, c.name, amongCode, alone, among)
		}
	}
}
