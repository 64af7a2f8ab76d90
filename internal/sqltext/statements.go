// Package sqltext knows what an SQL file says without running it: its
// statements and their lines, the objects it leaves behind with their
// signatures and bodies, the version it reports. It exists for reports (which
// line failed, what an update changes) and for comparing a file with a
// database. It never decides what is sent to a server: a file is sent whole.
package sqltext

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Statement is one statement of an SQL text, as the server counts them: empty
// ones, which give no result, are left out.
type Statement struct {
	Start, End int // offsets of its first byte and behind its last, without ";"
	Line       int // of its first byte; the first line is 1
}

// Statements returns the statements of an SQL text in their order.
func Statements(sql []byte) []Statement {
	var statements []Statement
	line, counted := 1, 0
	eachStatement(sql, func(tokens []token) {
		start := tokens[0].start
		line += bytes.Count(sql[counted:start], []byte("\n"))
		counted = start
		statements = append(statements, Statement{start, tokens[len(tokens)-1].end, line})
	})
	return statements
}

// eachStatement calls f with the tokens of each statement, without the ";".
// The slice is reused.
func eachStatement(sql []byte, f func([]token)) {
	l := lexer{sql: sql}
	var tokens []token
	var body atomicBody
	depth := 0
	for {
		t := l.next()
		if t.kind == endOfInput || t.kind == mark && sql[t.start] == ';' && depth == 0 && !body.open() {
			if len(tokens) > 0 {
				f(tokens)
			}
			if t.kind == endOfInput {
				return
			}
			tokens, body, depth = tokens[:0], atomicBody{}, 0
			continue
		}
		if t.kind == mark {
			switch sql[t.start] {
			case '(':
				depth++
			case ')':
				depth = max(0, depth-1)
			}
		}
		tokens = append(tokens, t)
		if t.kind == word {
			body.note(sql, tokens)
		}
	}
}

// atomicBody follows a function's body in SQL, "begin atomic … end", whose
// statements end with ";" without ending the statement around them.
type atomicBody struct{ depth int }

func (b *atomicBody) open() bool { return b.depth > 0 }

// note looks at the word that has just been read.
func (b *atomicBody) note(sql []byte, tokens []token) {
	last := tokens[len(tokens)-1]
	switch {
	case b.open() && isWord(sql, last, "case"):
		b.depth++ // "case … end" has an end of its own
	case b.open() && isWord(sql, last, "end"):
		b.depth--
	case !b.open() && isWord(sql, last, "atomic") && len(tokens) > 1 && isWord(sql, tokens[len(tokens)-2], "begin") && isWord(sql, tokens[0], "create"):
		b.depth = 1
	}
}

// isWord reports whether a token is a key word, which is given in lower case.
func isWord(sql []byte, t token, keyword string) bool {
	if t.kind != word || t.end-t.start != len(keyword) {
		return false
	}
	for i, c := range sql[t.start:t.end] {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != keyword[i] {
			return false
		}
	}
	return true
}

// StatementAt finds the statement that failed from the number of statements
// that were completed before it (the results that came back): its line and an
// Excerpt there. The line is 0 when the text has no such statement.
func StatementAt(sql []byte, completed int) (line int, excerpt string) {
	statements := Statements(sql)
	if completed < 0 || completed >= len(statements) {
		return 0, ""
	}
	line = statements[completed].Line
	return line, Excerpt(sql, line)
}

// LineOfCharacter returns the line of a position that a server reports, which
// counts characters from 1, not bytes. It is 0 for a position outside the text.
func LineOfCharacter(sql []byte, position int) int {
	if position < 1 {
		return 0
	}
	line := 1
	for rest := sql; len(rest) > 0; {
		if position == 1 {
			return line
		}
		if rest[0] == '\n' {
			line++
		}
		_, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		position--
	}
	if position == 1 { // the end of the text, as for "syntax error at end of input"
		return line
	}
	return 0
}

// The size of an excerpt: it goes into an error message.
const (
	linesBefore = 1
	linesAfter  = 3
	maxLine     = 120 // characters
)

// Excerpt shows a few lines around a line, each with its number, that line
// marked with ">". Long lines are cut. It is empty for a line outside the text.
func Excerpt(sql []byte, line int) string {
	if line < 1 {
		return ""
	}
	var b strings.Builder
	n := 0
	for text := range bytes.Lines(sql) {
		n++
		if n < line-linesBefore {
			continue
		}
		if n > line+linesAfter {
			break
		}
		pointer := " "
		if n == line {
			pointer = ">"
		}
		fmt.Fprintf(&b, "%s %5d | %s\n", pointer, n, cut(bytes.TrimRight(text, "\r\n")))
	}
	if n < line {
		return ""
	}
	return b.String()
}

func cut(line []byte) string {
	if len(line) > maxLine*utf8.UTFMax {
		line = line[:maxLine*utf8.UTFMax]
	}
	runes := []rune(strings.ToValidUTF8(string(line), "\uFFFD"))
	if len(runes) > maxLine {
		return string(runes[:maxLine-1]) + "…"
	}
	return string(runes)
}

// MetaCommand finds the first psql meta-command, such as \set or \i: a server
// does not know them, so that a file with one can only be run by psql.
func MetaCommand(sql []byte) (line int, text string, found bool) {
	l := lexer{sql: sql}
	for t := l.next(); t.kind != endOfInput; t = l.next() {
		if t.kind == metaCmd {
			return 1 + bytes.Count(sql[:t.start], []byte("\n")), cut(bytes.TrimRight(sql[t.start:t.end], " \t")), true
		}
	}
	return 0, "", false
}

// TransactionControl finds the first statement that begins, ends or changes the
// transaction around the file: what runs after it is in another one. Savepoints
// are no such statement, and neither is what stands in the body of a function.
func TransactionControl(sql []byte) (line int, text string, found bool) {
	eachStatement(sql, func(tokens []token) {
		if found || !controlsTransaction(sql, tokens) {
			return
		}
		start, end := tokens[0].start, tokens[len(tokens)-1].end
		first, _, _ := bytes.Cut(sql[start:end], []byte("\n"))
		line, text, found = 1+bytes.Count(sql[:start], []byte("\n")), cut(bytes.TrimRight(first, " \t\r")), true
	})
	return line, text, found
}

func controlsTransaction(sql []byte, tokens []token) bool {
	at := func(i int, keywords ...string) bool {
		for _, keyword := range keywords {
			if i < len(tokens) && isWord(sql, tokens[i], keyword) {
				return true
			}
		}
		return false
	}
	switch {
	case at(0, "begin", "start", "commit", "end", "abort"):
		return true
	case at(0, "rollback"): // but for ROLLBACK [WORK | TRANSACTION] TO a savepoint
		return !at(1, "to") && !(at(1, "work", "transaction") && at(2, "to"))
	case at(0, "prepare"): // and not a statement of that name
		return at(1, "transaction") && len(tokens) == 3 && tokens[2].kind == literal
	case at(0, "set"):
		return at(1, "transaction") || at(1, "local", "session") && at(2, "transaction")
	}
	return false
}
