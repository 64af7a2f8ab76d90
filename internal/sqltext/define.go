package sqltext

import (
	"strings"
)

// kindWords are the words of create, alter and drop for the kinds.
var kindWords = map[string]Kind{
	"function": Function, "procedure": Procedure, "type": Type, "table": Table, "view": View, "sequence": Sequence, "index": Index,
	"trigger": Trigger, "policy": Policy, "domain": Domain, "schema": Schema, "extension": Extension, "role": Role, "user": Role, "group": Role,
}

// create follows "create …", behind that word.
func (s objectSet) create(p *parser, start int) {
	from := p.i
	replace := p.accept("or", "replace")
	for p.acceptOneOf("unlogged", "unique", "recursive", "materialized", "constraint", "global", "local", "foreign") {
	}
	if p.acceptOneOf("temp", "temporary") {
		return
	}
	kind, ok := kindWords[p.word()]
	if !ok {
		return
	}
	p.i++
	p.accept("concurrently")
	p.accept("if", "not", "exists")
	if kind == Function || kind == Procedure {
		if o, ok := function(p, kind); ok {
			o.Line = start
			s.keepLast(o)
		}
		return
	}
	name, ok := p.objectName(kind)
	if !ok {
		return
	}
	o := Object{Kind: kind, Name: name, Line: start, Definition: "create " + p.text(p.tokens[from:])}
	if replace {
		s.keepLast(o)
		return
	}
	s.keepFirst(o) // the second of two "create … if not exists" does nothing
}

// objectName reads the name of an object other than a function, as Object.Name
// has it.
func (p *parser) objectName(kind Kind) (string, bool) {
	if kind == Index && p.is("on") {
		return p.text(p.rest()), true // an index may have no name of its own
	}
	if kind == Schema && p.is("authorization") {
		p.i++
	}
	name, ok := p.name()
	if !ok || kind != Index && kind != Trigger && kind != Policy {
		return name, ok
	}
	if !p.skipTo("on") {
		return name, kind == Index // "drop index NAME" has no table
	}
	p.i++
	p.accept("only")
	table, ok := p.name()
	if kind != Index {
		return name + " on " + table, ok
	}
	if schema, _, qualified := strings.Cut(table, "."); qualified {
		name = schema + "." + name // an index lives in its table's schema
	}
	return name, ok
}

// alter adds an alteration to the definition of the object it names.
func (s objectSet) alter(p *parser) {
	from := p.i
	kind, ok := kindWords[p.word()]
	if !ok {
		return
	}
	p.i++
	p.accept("if", "exists")
	p.accept("only")
	name, args, ok := p.identity(kind)
	if !ok {
		return
	}
	if o := s[objectName{kind, name}][args]; o != nil {
		alteration := "alter " + p.text(p.tokens[from:])
		if kind == Function || kind == Procedure {
			o.Options = append(o.Options, alteration)
			return
		}
		o.alterations = append(o.alterations, alteration)
	}
}

// drop removes the objects that it names.
func (s objectSet) drop(p *parser) {
	p.accept("materialized")
	word := p.word()
	kind, ok := kindWords[word]
	if !ok && word != "routine" {
		return
	}
	p.i++
	p.accept("concurrently")
	p.accept("if", "exists")
	for {
		name, ok := p.objectName(kind)
		if !ok {
			return
		}
		kinds := []Kind{kind}
		if word == "routine" {
			kinds = []Kind{Function, Procedure}
		}
		one := p.isMark('(')
		args := inputTypes(p.arguments())
		for _, k := range kinds {
			if one {
				delete(s[objectName{k, name}], args)
			} else { // all overloads of a function; of others there is only one
				delete(s, objectName{k, name})
			}
		}
		if !p.acceptMark(',') {
			return
		}
	}
}

// identity reads a name, and for a function the types in its argument list, if
// there is one.
func (p *parser) identity(kind Kind) (name, args string, ok bool) {
	if kind != Function && kind != Procedure {
		name, ok = p.objectName(kind)
		return name, "", ok
	}
	name, ok = p.name()
	return name, inputTypes(p.arguments()), ok
}

// The most pairs that one statement is taken apart into, and the most bytes that
// all of them may have: a hostile text could make millions from a few lines.
const (
	maxPairs     = 10_000
	maxPairBytes = 1 << 20
)

// privileges returns the lines of a grant or revoke, one for each pair of an
// object and a grantee.
func privileges(p *parser) []string {
	verb := p.word()
	p.i++
	to := "to"
	if verb == "revoke" {
		to = "from"
	}
	from := p.i
	if !p.skipToOneOf("on", to) {
		return nil
	}
	what := verb + " " + p.text(p.tokens[from:p.i])
	objects := []string{""}
	if p.accept("on") {
		objects = p.grantedObjects(to)
	} else if list := splitCommas(p.sql, p.tokens[from:p.i]); len(list) > 0 { // roles, to be members of
		what, objects = verb, nil
		for _, role := range list {
			objects = append(objects, " "+p.text(role))
		}
	}
	if !p.accept(to) {
		return nil
	}
	tokens, option := cutOption(p.sql, p.rest())
	var grantees []string
	for _, grantee := range splitCommas(p.sql, tokens) {
		grantees = append(grantees, p.text(grantee))
	}
	with := p.text(option)
	if tooManyPairs(objects, grantees, len(what)+len(with)) {
		objects, grantees = []string{strings.Join(objects, ",")}, []string{p.text(tokens)}
	}
	var lines []string
	for _, object := range objects {
		for _, grantee := range grantees {
			line := what + object + " " + to + " " + grantee + " " + with
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// tooManyPairs reports whether the lines of all pairs, each with so many bytes more,
// would be out of proportion to the statement.
func tooManyPairs(objects, grantees []string, more int) bool {
	pairs := len(objects) * len(grantees)
	bytes := len(strings.Join(objects, ""))*len(grantees) + len(strings.Join(grantees, ""))*len(objects) + more*pairs
	return pairs > maxPairs || pairs > 1 && bytes > maxPairBytes
}

// grantedObjects reads "[function] a(int), b()", up to the word before the
// grantees. A table needs no word for its kind.
func (p *parser) grantedObjects(to string) []string {
	from := p.i
	if !p.skipTo(to) {
		return nil
	}
	list := parser{sql: p.sql, tokens: p.tokens[from:p.i]}
	if list.is("all") { // all functions in schema pgque
		return []string{" on " + p.text(list.tokens)}
	}
	prefix := "table "
	if len(list.tokens) > 1 && list.tokens[0].kind == word && list.tokens[1].kind != mark {
		prefix = list.word() + " "
		list.i++
	}
	var objects []string
	for {
		name, ok := list.name()
		if !ok {
			return objects
		}
		if list.isMark('(') {
			name += "(" + inputTypes(list.arguments()) + ")"
		}
		objects = append(objects, " on "+prefix+name)
		if !list.acceptMark(',') {
			return objects
		}
	}
}

// cutOption parts the grantees from what may follow them: "with grant option",
// "granted by", "cascade".
func cutOption(sql []byte, tokens []token) (grantees, option []token) {
	for i, t := range tokens {
		if i > 0 && isOneOf(sql, t, "with", "granted", "cascade", "restrict") {
			return tokens[:i], tokens[i:]
		}
	}
	return tokens, nil
}
