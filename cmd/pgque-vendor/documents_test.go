package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every command line in the documents is run: a script of testdata/documents pastes
// its block (see TestDocuments). What no test runs says in the document that it needs
// the network or Docker. README.pt-BR.md is left out since its blocks are README.md's
// (TestReadmesAreInStep), the example's README since its own module runs it.
func TestEveryCommandIsRun(t *testing.T) {
	t.Parallel()
	pasted := pastedBlocks(t)
	for name, text := range documents(t) {
		if name == "README.pt-BR.md" || strings.HasPrefix(name, "examples/") {
			continue
		}
		for _, b := range blocksOf(name, text) {
			commands, err := b.commands()
			if err != nil {
				t.Errorf("%s:%d: %v", name, b.line, err)
			}
			if run := here(commands); len(run) > 0 || b.language == "sql" {
				place := blockPlace{name, b.heading}
				if pasted[place]--; pasted[place] < 0 {
					t.Errorf("%s:%d: no script of testdata/documents pastes this block, below %q", name, b.line, b.heading)
				}
			}
			if b.language == "" && !strings.HasPrefix(name, "docs/reference/") { // whose synopses cobra writes
				for _, c := range shellLines(b.text, b.line, false) {
					if _, ours := callOf(strings.Fields(strings.TrimPrefix(c.text, "$ "))); ours {
						t.Errorf("%s:%d: a command line in a block that is not named sh", name, c.line)
					}
				}
			}
		}
	}
	for place, n := range pasted {
		if n > 0 {
			t.Errorf("a script of testdata/documents pastes a block of %s below %q that is not there", place.document, place.heading)
		}
	}
}

// blockPlace is where a block stands. Several below one heading are pasted in their
// order.
type blockPlace struct{ document, heading string }

var pasteLine = regexp.MustCompile(`(?m)^(?:\[\S+\] )?paste (\S+) (?:'([^']+)'|(\S+))`)

// pastedBlocks counts what the scripts paste.
func pastedBlocks(t *testing.T) map[blockPlace]int {
	t.Helper()
	scripts, err := filepath.Glob("testdata/documents/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("there are no scripts for the documents (%v)", err)
	}
	pasted := map[blockPlace]int{}
	for _, name := range scripts {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range pasteLine.FindAllStringSubmatch(string(text), -1) {
			pasted[blockPlace{match[1], match[2] + match[3]}]++
		}
	}
	return pasted
}

// Every call of pgque-vendor in the documents names a command that there is, with
// flags that it has and as many arguments as it takes: also in what is not run, in
// compose.yml, and, without the arguments, in the middle of a sentence.
func TestDocumentedCalls(t *testing.T) {
	t.Parallel()
	all := documents(t)
	found := 0
	check := func(at string, args []string, err error) {
		found++
		if err != nil {
			t.Errorf("%s: pgque-vendor %s: %v", at, strings.Join(args, " "), err)
		}
	}
	for name, text := range all {
		for _, b := range blocksOf(name, text) {
			commands, err := b.commands()
			if err != nil {
				t.Errorf("%s:%d: %v", name, b.line, err)
			}
			for _, c := range commands {
				for _, words := range shellCommands(c.text) {
					if args, ok := callOf(words); ok {
						check(fmt.Sprintf("%s:%d", name, c.line), args, parses(args))
					}
				}
			}
		}
		for n, line := range strings.Split(text, "\n") {
			if strings.HasPrefix(line, "~~~") {
				t.Errorf("%s:%d: a fence that this test does not see: use ```", name, n+1)
			}
			for _, match := range inlineCall.FindAllStringSubmatch(line, -1) {
				args := strings.Fields(match[1])
				check(fmt.Sprintf("%s:%d", name, n+1), args, flagsParse(args))
			}
		}
	}
	compose, err := os.ReadFile("../../compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	commands, err := block{language: "yaml", line: 1, text: string(compose)}.commands()
	if err != nil || len(commands) < 3 {
		t.Errorf("compose.yml has %d commands (%v)", len(commands), err)
	}
	for _, c := range commands {
		for _, words := range shellCommands(c.text) {
			args, _ := callOf(words)
			check(fmt.Sprintf("compose.yml:%d", c.line), args, parses(args))
		}
	}
	if found < 130 {
		t.Errorf("only %d calls of pgque-vendor were found in %q", found, slices.Sorted(maps.Keys(all)))
	}
}

var inlineCall = regexp.MustCompile("`pgque-vendor ([a-z][^`|]*)`")

// parses has cobra read a command line without running it.
func parses(args []string) error {
	root := newRootCommand(processEnvironment())
	root.InitDefaultCompletionCmd(args...)
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// flagsParse is parses for a sentence's "pgque-vendor dlq replay --queue", which
// leaves arguments out.
func flagsParse(args []string) error {
	root := newRootCommand(processEnvironment())
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil && !strings.Contains(err.Error(), "flag needs an argument") {
		return err
	}
	return nil
}

func TestBlocksAndCommands(t *testing.T) {
	t.Parallel()
	document := "# One\n```sh\nA=1 pgque-vendor publish q t '{\"a\": 1}' | cat # pgque-vendor no\n" +
		"x && pgque-vendor status --dir \\\n  'a b'; pgque-vendor list > f\n# pgque-vendor no\ngo run ./cmd/pgque-vendor demo &\n```\n" +
		"## Two\n```yaml\ns:\n    command: [ticker, --every, \"1s\"]\nt: {command: pgque-vendor status}\nu:\n- run: pgque-vendor list # needs the network\n- run: |\n    pgque-vendor queues\n    docker x # needs Docker\n```\n" +
		"```dockerfile\nFROM x\nCMD [\"doctor\"]\n```\n```go\npgque-vendor no\n```\n```console\n$ pgque-vendor health # needs jq\nwell\n```\n"
	var got []string
	for _, b := range blocksOf("d.md", document) {
		commands, err := b.commands()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range here(commands) {
			for _, words := range shellCommands(c.text) {
				if args, ok := callOf(words); ok {
					got = append(got, fmt.Sprintf("%s:%d %q", b.heading, c.line, args))
				}
			}
			if strings.Contains(c.text, "docker") {
				t.Errorf("%q is to be run", c.text)
			}
		}
	}
	want := []string{
		`One:3 ["publish" "q" "t" "{\"a\": 1}"]`, `One:4 ["status" "--dir" "a b"]`, `One:4 ["list"]`, `One:7 ["demo"]`,
		`Two:12 ["ticker" "--every" "1s"]`, `Two:13 ["status"]`, `Two:16 ["queues"]`, `Two:22 ["doctor"]`, `Two:28 ["health"]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for line, ok := range map[string]bool{
		"status": true, "status --nope": false, "nope": false, "status more": false, "update v0.2.0 --latest=false": true,
		"dlq": true, "dlq list": true, "dlq nope": false, "publish q": false, "publish q t": true, "publish q t p more": false, "--version": true,
	} {
		if err := parses(strings.Fields(line)); (err == nil) != ok {
			t.Errorf("%q: %v", line, err)
		}
	}
}
