package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// block is a block of code of a document.
type block struct {
	document string // its path in the repository
	heading  string // the one above it
	language string // what the fence says
	line     int    // of the first line of its text
	text     string // without the indentation of the fence
}

// typedLine is a command line of a document, as it is typed into a shell; a step of a
// CI may have several lines.
type typedLine struct {
	line int // in the document
	text string
}

// notHere finds what no test runs, since it needs more than this machine: the document
// says so at the end of the line. What is said to Docker is parsed, and
// internal/composetest runs compose.yml.
var notHere = regexp.MustCompile(`# needs (?:the network|Docker)[^\n]*$`)

// documents returns every document with command lines, by its path in the
// repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names := []string{"README.md", "README.pt-BR.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	for _, root := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, _ fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" {
				names = append(names, strings.TrimPrefix(filepath.ToSlash(path), "../../"))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = strings.ReplaceAll(string(text), "\r\n", "\n")
	}
	return all
}

var (
	fenceLine   = regexp.MustCompile("^ *```(\\S*)")
	headingLine = regexp.MustCompile(`^#{1,6} +(.*)$`)
)

// blocksOf returns the blocks of code of a document, in its order.
func blocksOf(document, text string) []block {
	var all []block
	heading, open := "", false
	for n, line := range strings.Split(text, "\n") {
		fence := fenceLine.FindStringSubmatch(line)
		switch {
		case open && fence != nil:
			open = false
		case open:
			current := &all[len(all)-1]
			current.text += line + "\n"
		case fence != nil:
			open = true
			all = append(all, block{document: document, heading: heading, language: fence[1], line: n + 2})
		case strings.HasPrefix(line, "    "): // code as well, where it is not the rest of a list's item
			all = append(all, block{document: document, heading: heading, line: n + 1, text: line + "\n"})
		default:
			if title := headingLine.FindStringSubmatch(line); title != nil {
				heading = title[1]
			}
		}
	}
	if strings.HasPrefix(document, "docs/reference/") {
		for n := range all { // cobra gives its fences no language
			if all[n].heading == "Examples" {
				all[n].language = "sh"
			}
		}
	}
	return all
}

// isFile says that the block is the text of a file, not lines for a shell.
func (b block) isFile() bool { return b.language == "python" || strings.HasPrefix(b.text, "#!") }

// commands returns the command lines of the block: of a shell, of Compose's
// "command:", of the steps of a CI, of a Dockerfile's CMD.
func (b block) commands() ([]typedLine, error) {
	var found []typedLine
	switch {
	case b.isFile(), slices.Contains([]string{"", "text", "go", "sql", "ini"}, b.language):
	case b.language == "sh", b.language == "console":
		found = shellLines(b.text, b.line, b.language == "console")
	case b.language == "yaml", b.language == "json": // JSON is YAML
		var root yaml.Node
		if err := yaml.Unmarshal([]byte(b.text), &root); err != nil {
			return nil, err
		}
		found = yamlCommands(&root, b.line-1)
	case b.language == "dockerfile":
		for n, line := range strings.Split(b.text, "\n") {
			if list, ok := strings.CutPrefix(line, "CMD "); ok {
				var words []string
				if err := json.Unmarshal([]byte(list), &words); err != nil {
					return nil, err
				}
				found = append(found, typedLine{line: b.line + n, text: containerCommand(words)})
			}
		}
	default:
		return nil, fmt.Errorf("no test knows what a block of %q is", b.language)
	}
	return found, nil
}

// shellLines returns the lines of a script, those that go on in the next one
// joined. Of a session it takes what comes after the prompt.
func shellLines(script string, first int, session bool) []typedLine {
	var all []typedLine
	goesOn := false
	for n, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		if session && !goesOn {
			typed, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			line = typed
		}
		if goesOn {
			last := &all[len(all)-1]
			last.text = strings.TrimSuffix(last.text, `\`) + line
		} else if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, typedLine{line: first + n, text: line})
		}
		goesOn = strings.HasSuffix(line, `\`)
	}
	return all
}

// yamlCommands looks for command lines in YAML; above is the number of the
// document's lines before it.
func yamlCommands(node *yaml.Node, above int) []typedLine {
	var all []typedLine
	if node.Kind != yaml.MappingNode {
		for _, child := range node.Content {
			all = append(all, yamlCommands(child, above)...)
		}
		return all
	}
	for n := 0; n < len(node.Content); n += 2 {
		key, value := node.Content[n].Value, node.Content[n+1]
		add := func(text string, at *yaml.Node) {
			if at.LineComment != "" {
				text += " " + at.LineComment
			}
			all = append(all, typedLine{line: above + at.Line, text: text})
		}
		var words []string
		switch {
		case key == "run" && value.Kind == yaml.ScalarNode, key == "command" && value.Kind == yaml.ScalarNode:
			add(value.Value, value)
		case key == "command" && value.Decode(&words) == nil:
			add(containerCommand(words), value)
		case key == "script", key == "commands":
			for _, line := range value.Content {
				add(line.Value, line)
			}
		default:
			all = append(all, yamlCommands(value, above)...)
		}
	}
	return all
}

// containerCommand is what a container does with a list of words: the image's
// program is pgque-vendor, unless the list has another one.
func containerCommand(words []string) string {
	if words[0] != "sh" && words[0] != "pgque-vendor" {
		words = append([]string{"pgque-vendor"}, words...)
	}
	quoted := make([]string, len(words))
	for n, word := range words {
		quoted[n] = shellQuote(word)
	}
	return strings.Join(quoted, " ")
}

// here returns the lines that a test must run; a step of several lines without those
// that can't be run here.
func here(all []typedLine) []typedLine {
	var run []typedLine
	for _, c := range all {
		lines := slices.DeleteFunc(strings.Split(c.text, "\n"), notHere.MatchString)
		if c.text = strings.Join(lines, "\n"); c.text != "" {
			run = append(run, c)
		}
	}
	return run
}
