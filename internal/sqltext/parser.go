package sqltext

import (
	"strings"
)

// parser goes over the tokens of one statement.
type parser struct {
	sql    []byte
	tokens []token
	i      int
}

func (p *parser) rest() []token { return p.tokens[min(p.i, len(p.tokens)):] }

// is reports whether the next tokens are these key words.
func (p *parser) is(keywords ...string) bool {
	if p.i+len(keywords) > len(p.tokens) {
		return false
	}
	for i, k := range keywords {
		if !isWord(p.sql, p.tokens[p.i+i], k) {
			return false
		}
	}
	return true
}

// accept passes these key words, if they come next.
func (p *parser) accept(keywords ...string) bool {
	if !p.is(keywords...) {
		return false
	}
	p.i += len(keywords)
	return true
}

// acceptOneOf passes one of these key words, if it comes next.
func (p *parser) acceptOneOf(keywords ...string) bool {
	if p.i < len(p.tokens) && isOneOf(p.sql, p.tokens[p.i], keywords...) {
		p.i++
		return true
	}
	return false
}

// word returns the next token as a key word in lower case, or "".
func (p *parser) word() string {
	if p.i < len(p.tokens) && p.tokens[p.i].kind == word {
		return lower(p.sql[p.tokens[p.i].start:p.tokens[p.i].end])
	}
	return ""
}

func (p *parser) isMark(c byte) bool {
	return p.i < len(p.tokens) && isMark(p.sql, p.tokens[p.i], c)
}

func (p *parser) acceptMark(c byte) bool {
	if p.isMark(c) {
		p.i++
		return true
	}
	return false
}

// skipTo goes on to a key word outside of brackets.
func (p *parser) skipTo(keyword string) bool { return p.skipToOneOf(keyword) }

func (p *parser) skipToOneOf(keywords ...string) bool {
	for depth := 0; p.i < len(p.tokens); p.i++ {
		t := p.tokens[p.i]
		switch {
		case isMark(p.sql, t, '('):
			depth++
		case isMark(p.sql, t, ')'):
			depth--
		case depth == 0 && isOneOf(p.sql, t, keywords...):
			return true
		}
	}
	return false
}

// name reads a name with its schema, as PostgreSQL prints it.
func (p *parser) name() (string, bool) {
	var parts []string
	for p.i < len(p.tokens) && (p.tokens[p.i].kind == word || p.tokens[p.i].kind == quoted) {
		parts = append(parts, identifier(p.sql, p.tokens[p.i]))
		p.i++
		if !p.isMark('.') {
			break
		}
		p.i++
	}
	return strings.Join(parts, "."), len(parts) > 0
}

// brackets passes "( … )" and returns the tokens between them.
func (p *parser) brackets() []token {
	if !p.acceptMark('(') {
		return nil
	}
	from := p.i
	for depth := 1; p.i < len(p.tokens); p.i++ {
		switch {
		case p.isMark('('):
			depth++
		case p.isMark(')'):
			depth--
		}
		if depth == 0 {
			p.i++
			return p.tokens[from : p.i-1]
		}
	}
	return p.tokens[from:]
}

// splitCommas parts tokens at the commas outside of brackets.
func splitCommas(sql []byte, tokens []token) [][]token {
	var parts [][]token
	depth, from := 0, 0
	for i, t := range tokens {
		switch {
		case isMark(sql, t, '('), isMark(sql, t, '['):
			depth++
		case isMark(sql, t, ')'), isMark(sql, t, ']'):
			depth--
		case depth == 0 && isMark(sql, t, ','):
			parts = append(parts, tokens[from:i])
			from = i + 1
		}
	}
	if from < len(tokens) {
		parts = append(parts, tokens[from:])
	}
	return parts
}

// text is tokens as normalised text: one form for the same meaning, whatever
// the blanks, comments, capitals and needless quotes.
func (p *parser) text(tokens []token) string {
	var b strings.Builder
	for i, t := range tokens {
		if i > 0 && spaced(p.sql, tokens[i-1], t) {
			b.WriteByte(' ')
		}
		switch t.kind {
		case word, quoted:
			b.WriteString(identifier(p.sql, t))
		default:
			b.Write(p.sql[t.start:t.end])
		}
	}
	return b.String()
}

// spaced reports whether a blank stands between two tokens. Marks that touch
// are one operator, and a sign belongs to the number it touches.
func spaced(sql []byte, a, b token) bool {
	before, after := byte(0), byte(0)
	if a.kind == mark {
		before = sql[a.start]
	}
	if b.kind == mark {
		after = sql[b.start]
	}
	touch := a.end == b.start
	switch {
	case before != 0 && after != 0 && touch,
		before == '-' && b.kind == number && touch,
		before != 0 && strings.IndexByte("(.[:", before) >= 0,
		after != 0 && strings.IndexByte(",).][:", after) >= 0,
		after == '(' && before == 0:
		return false
	}
	return true
}

func isMark(sql []byte, t token, c byte) bool { return t.kind == mark && sql[t.start] == c }

func isOneOf(sql []byte, t token, keywords ...string) bool {
	for _, k := range keywords {
		if isWord(sql, t, k) {
			return true
		}
	}
	return false
}
