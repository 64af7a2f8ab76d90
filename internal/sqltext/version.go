package sqltext

// Version returns what the text's function pgque.version() returns: the string
// in the body of its last definition; "" when there is none. It is a label for
// a person, never a reason for a decision: upstream's v0.1.0 says 1.0.0-dev.
func Version(sql []byte) string {
	version := ""
	eachStatement(sql, func(tokens []token) {
		p := parser{sql: sql, tokens: tokens}
		if !p.accept("create") {
			return
		}
		p.accept("or", "replace")
		if !p.accept("function") {
			return
		}
		mark := p.i
		if name, _ := p.name(); name != "pgque.version" {
			return // most of a hundred functions are not worth a closer look
		}
		p.i = mark
		if o, ok := function(&p, Function); ok && o.Args == "" {
			version = firstString([]byte(o.Body + o.Definition))
		}
	})
	return version
}

// firstString returns the value of the first string in a function's code.
func firstString(code []byte) string {
	l := lexer{sql: code}
	for t := l.next(); t.kind != endOfInput; t = l.next() {
		switch t.kind {
		case literal:
			return stringValue(code[t.start:t.end])
		case dollar:
			from, to := insideDollars(code[t.start:t.end])
			return string(code[t.start+from : t.start+to])
		}
	}
	return ""
}
