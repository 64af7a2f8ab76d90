package main

import "strings"

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
