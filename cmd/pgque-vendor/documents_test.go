package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	// A command list of Compose, or a CMD of a Dockerfile.
	commandList = regexp.MustCompile(`(?m)^\s*(?:command: |CMD )\[(.*)\]`)
)

// Every command line in the documents names a command that there is, with flags that
// it has and as many arguments as it takes. It is parsed, not run; README's session
// is run by TestReadmeSession.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	found := 0
	for _, name := range documentNames(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range documentedCommands(string(text)) {
			found++
			if err := parses(args); err != nil {
				t.Errorf("%s: pgque-vendor %s: %v", strings.TrimPrefix(name, "../../"), strings.Join(args, " "), err)
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d command lines were found in the documents", found)
	}
}

// The same of the examples in the help, which are also those of docs/reference.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	found := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, words := range shellCommands(cmd.Example) {
			args, ok := callOf(words)
			if !ok {
				continue
			}
			found++
			if err := parses(args); err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), words, err)
			}
		}
		for _, c := range cmd.Commands() {
			look(c)
		}
	}
	look(newRootCommand(processEnvironment()))
	if found < 20 {
		t.Errorf("only %d examples were found in the help", found)
	}
}

func documentNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, root := range []string{"../../docs", "../../examples"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == "reference" {
				return fs.SkipDir // it comes from the commands: see TestHelpExamples
			}
			if filepath.Ext(path) == ".md" {
				names = append(names, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return append(names, "../../README.md", "../../README.pt-BR.md", "../../CONTRIBUTING.md", "../../compose.yml")
}

// documentedCommands returns the arguments of every call of pgque-vendor in a
// document's shell blocks, in Compose's lists and in Dockerfiles.
func documentedCommands(text string) [][]string {
	var all [][]string
	blocks := codeBlock.FindAllStringSubmatch(text, -1)
	if blocks == nil {
		blocks = [][]string{{"", "yaml", text}} // no Markdown
	}
	for _, block := range blocks {
		switch block[1] {
		case "", "sh", "console", "yaml", "dockerfile":
		default:
			continue
		}
		for _, match := range commandList.FindAllStringSubmatch(block[2], -1) {
			args := strings.Split(match[1], ",")
			for n := range args {
				args[n] = strings.Trim(strings.TrimSpace(args[n]), `"`)
			}
			// A list that begins with another program is none of ours.
			if program := args[0]; program != "sh" && program != "CMD" && !strings.HasPrefix(program, "/") {
				all = append(all, args)
			}
		}
		for _, command := range shellCommands(strings.ReplaceAll(block[2], "\\\n", " ")) {
			if args, ok := callOf(command); ok {
				all = append(all, args)
			}
		}
	}
	return all
}

// callOf returns the arguments when the words call pgque-vendor: after assignments,
// an "env", or as "command:" of a YAML file.
func callOf(words []string) ([]string, bool) {
	for n, word := range words {
		switch {
		case word == "pgque-vendor":
			return words[n+1:], true
		case word == "./cmd/pgque-vendor" && n >= 2 && words[n-2] == "go" && words[n-1] == "run":
			return words[n+1:], true
		case strings.Contains(word, "="), word == "go", word == "run", word == "$", word == "command:", word == "-", word == "run:":
		default:
			return nil, false
		}
	}
	return nil, false
}

// shellCommands splits a script into its simple commands and their words, as far as
// documents need it: quotes, comments, and what stands between commands.
func shellCommands(script string) [][]string {
	var commands [][]string
	var words []string
	var word strings.Builder
	inWord, quote := false, rune(0)
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	comment := false
	for _, r := range script {
		switch {
		case comment:
			comment = r != '\n'
			if !comment {
				endCommand()
			}
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			comment = true
		case r == ' ' || r == '\t':
			endWord()
		case strings.ContainsRune("\n|;&()<>", r):
			// "< file" and "> file" leave a command of one word, which is not ours.
			endCommand()
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	endCommand()
	return commands
}

// parses has cobra read a command line without running it.
func parses(args []string) error {
	env := processEnvironment()
	root := newRootCommand(env)
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

func TestShellCommands(t *testing.T) {
	t.Parallel()
	got := documentedCommands("```sh\nA=1 pgque-vendor publish q t '{\"a\": 1}' | cat # pgque-vendor no\n" +
		"x && pgque-vendor status --dir \\\n  'a b'; pgque-vendor list > f\n$ go run ./cmd/pgque-vendor demo &\n```\n" +
		"```yaml\n    command: [ticker, --every, \"1s\"]\n    command: pgque-vendor status\n```\n```go\npgque-vendor no\n```\n")
	want := `[["publish" "q" "t" "{\"a\": 1}"] ["status" "--dir" "a b"] ["list"] ["demo"] ["ticker" "--every" "1s"] ["status"]]`
	if fmt.Sprintf("%q", got) != want {
		t.Errorf("got  %q\nwant %s", got, want)
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
