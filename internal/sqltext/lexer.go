package sqltext

import "bytes"

// kind says what a token is.
type kind uint8

const (
	word       kind = iota // an identifier or key word without quotes
	quoted                 // "identifier", U&"identifier"
	literal                // 'text', E'text', U&'text', B'01', X'ff', N'text'
	dollar                 // $tag$text$tag$
	number                 // 42, 1.5e3
	mark                   // any other character: an operator, a bracket, ";"
	metaCmd                // a psql meta-command: from "\" to the end of the line
	endOfInput             // nothing more
)

// token is a piece of SQL text between two offsets. Blanks and comments are no
// tokens.
type token struct {
	kind       kind
	start, end int
}

// lexer reads tokens by PostgreSQL's own rules, with
// standard_conforming_strings on. What is not terminated ends with the text.
// It goes over each byte once.
type lexer struct {
	sql []byte
	pos int
}

func (l *lexer) next() token {
	l.skipBlanks()
	start := l.pos
	if start >= len(l.sql) {
		return token{endOfInput, start, start}
	}
	c := l.sql[start]
	switch {
	case isLetter(c):
		return l.wordOrPrefixed()
	case c == '\'':
		l.quoted('\'', false)
		return token{literal, start, l.pos}
	case c == '"':
		l.quoted('"', false)
		return token{quoted, start, l.pos}
	case isDigit(c), c == '.' && isDigit(l.peek(1)):
		for l.pos++; l.pos < len(l.sql) && (isLetter(l.sql[l.pos]) || isDigit(l.sql[l.pos]) || l.sql[l.pos] == '.'); l.pos++ {
		}
		return token{number, start, l.pos}
	case c == '$' && l.dollarQuoted():
		return token{dollar, start, l.pos}
	case c == '\\':
		l.toEndOfLine()
		return token{metaCmd, start, l.pos}
	}
	l.pos++
	return token{mark, start, l.pos}
}

// skipBlanks passes white space and comments. Block comments nest.
func (l *lexer) skipBlanks() {
	for l.pos < len(l.sql) {
		switch c := l.sql[l.pos]; {
		case c == ' ' || '\t' <= c && c <= '\r':
			l.pos++
		case c == '-' && l.peek(1) == '-':
			l.toEndOfLine()
		case c == '/' && l.peek(1) == '*':
			l.blockComment()
		default:
			return
		}
	}
}

func (l *lexer) blockComment() {
	depth := 0
	for l.pos < len(l.sql) {
		switch {
		case l.sql[l.pos] == '/' && l.peek(1) == '*':
			depth++
			l.pos += 2
		case l.sql[l.pos] == '*' && l.peek(1) == '/':
			depth--
			l.pos += 2
			if depth == 0 {
				return
			}
		default:
			l.pos++
		}
	}
}

func (l *lexer) toEndOfLine() {
	if n := bytes.IndexAny(l.sql[l.pos:], "\r\n"); n >= 0 {
		l.pos += n
		return
	}
	l.pos = len(l.sql)
}

// wordOrPrefixed reads a word, or the string or identifier that a one-letter
// prefix directly before a quote begins.
func (l *lexer) wordOrPrefixed() token {
	start := l.pos
	for l.pos++; l.pos < len(l.sql) && (isLetter(l.sql[l.pos]) || isDigit(l.sql[l.pos]) || l.sql[l.pos] == '$'); l.pos++ {
	}
	if l.pos-start != 1 {
		return token{word, start, l.pos}
	}
	switch prefix := l.sql[start] | 0x20; {
	case prefix == 'e' && l.peek(0) == '\'':
		l.quoted('\'', true)
		return token{literal, start, l.pos}
	case (prefix == 'b' || prefix == 'x' || prefix == 'n') && l.peek(0) == '\'':
		l.quoted('\'', false)
		return token{literal, start, l.pos}
	case prefix == 'u' && l.peek(0) == '&' && l.peek(1) == '\'':
		l.pos++
		l.quoted('\'', false)
		return token{literal, start, l.pos}
	case prefix == 'u' && l.peek(0) == '&' && l.peek(1) == '"':
		l.pos++
		l.quoted('"', false)
		return token{quoted, start, l.pos}
	}
	return token{word, start, l.pos}
}

// quoted passes text in quotes, in which a doubled quote stands for one.
func (l *lexer) quoted(quote byte, backslashEscapes bool) {
	for l.pos++; l.pos < len(l.sql); l.pos++ {
		switch {
		case backslashEscapes && l.sql[l.pos] == '\\':
			l.pos++
		case l.sql[l.pos] == quote && l.peek(1) == quote:
			l.pos++
		case l.sql[l.pos] == quote:
			l.pos++
			return
		}
	}
	l.pos = len(l.sql) // an escape may have gone one too far
}

// dollarQuoted passes $tag$…$tag$, if that is what begins here.
func (l *lexer) dollarQuoted() bool {
	n := 1
	for isLetter(l.peek(n)) || n > 1 && isDigit(l.peek(n)) {
		n++
	}
	if l.peek(n) != '$' {
		return false
	}
	delimiter := l.sql[l.pos : l.pos+n+1]
	l.pos += n + 1
	if length := bytes.Index(l.sql[l.pos:], delimiter); length >= 0 {
		l.pos += length + len(delimiter)
	} else {
		l.pos = len(l.sql)
	}
	return true
}

// peek returns the byte n after the current one, or 0 after the end.
func (l *lexer) peek(n int) byte {
	if l.pos+n < len(l.sql) {
		return l.sql[l.pos+n]
	}
	return 0
}

// isLetter reports what may begin an identifier: every byte of a non-ASCII
// character counts.
func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
