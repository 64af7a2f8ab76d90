package sqltext

import (
	"cmp"
	"slices"
	"strings"
)

// argument is one of a function's arguments, or a column of returns table.
type argument struct {
	mode     string // "", in, out, inout, variadic
	name     string
	typeName string
	fallback string // the default, as normalised text
}

func (a argument) input() bool  { return a.mode != "out" }
func (a argument) output() bool { return a.mode == "out" || a.mode == "inout" }

func (a argument) String() string {
	text := strings.TrimSpace(strings.Join(slices.DeleteFunc([]string{a.mode, a.name, a.typeName}, func(s string) bool { return s == "" }), " "))
	if a.fallback != "" {
		text += " default " + a.fallback
	}
	return text
}

// function reads "NAME (arguments) …", behind the word function or procedure.
func function(p *parser, kind Kind) (Object, bool) {
	name, ok := p.name()
	if !ok || !p.isMark('(') {
		return Object{}, false
	}
	arguments := p.arguments()
	o := Object{Kind: kind, Name: name, Args: inputTypes(arguments), Language: "sql", Volatility: "volatile"}
	if kind == Function {
		o.Result = outputResult(arguments)
	}
	for p.i < len(p.tokens) {
		o.clause(p)
	}
	o.Signature = o.signature(arguments)
	return o, true
}

// signature is the function's heading for a person.
func (o *Object) signature(arguments []argument) string {
	list := make([]string, len(arguments))
	for i, a := range arguments {
		list[i] = a.String()
	}
	return o.Name + "(" + strings.Join(list, ", ") + ")" + o.resultSuffix()
}

// clause reads one of the clauses behind the arguments, in any order.
func (o *Object) clause(p *parser) {
	switch {
	case p.accept("returns", "null", "on", "null", "input"), p.accept("strict"):
		o.Options = append(o.Options, "strict")
	case p.accept("called", "on", "null", "input"), p.accept("not", "leakproof"), p.accept("external"), p.accept("security", "invoker"):
		// the defaults
	case p.accept("returns", "table"):
		o.Result = "TABLE(" + columns(p) + ")"
	case p.accept("returns", "setof"):
		o.Result = "SETOF " + p.typeName()
	case p.accept("returns"):
		o.Result = p.typeName()
	case p.accept("language"):
		o.Language = strings.Trim(p.valueText(), "'")
	case p.is("immutable"), p.is("stable"), p.is("volatile"):
		o.Volatility = p.word()
		p.i++
	case p.accept("security", "definer"):
		o.Definer = true
	case p.accept("set"):
		if setting := p.setting(); setting != "" {
			o.Settings = append(o.Settings, setting)
		}
	case p.is("leakproof"), p.is("window"):
		o.Options = append(o.Options, p.word())
		p.i++
	case p.is("parallel"), p.is("cost"), p.is("rows"), p.is("support"):
		option := p.word()
		p.i++
		o.Options = append(o.Options, option+" "+p.valueText())
	case p.accept("as"):
		o.body(p)
	case p.is("return"), p.is("begin", "atomic"):
		o.Definition = p.text(p.rest())
		p.i = len(p.tokens)
	default:
		p.i++
	}
}

// body reads what follows "as". Strings that follow each other on lines of
// their own are one string, as everywhere in SQL.
func (o *Object) body(p *parser) {
	var b strings.Builder
	defer func() { o.Body = b.String() }()
	for p.i < len(p.tokens) {
		switch t := p.tokens[p.i]; t.kind {
		case dollar:
			from, to := insideDollars(p.sql[t.start:t.end])
			b.Write(p.sql[t.start+from : t.start+to])
		case literal:
			b.WriteString(stringValue(p.sql[t.start:t.end]))
		default:
			return
		}
		p.i++
	}
}

// mixedCase are the settings that the catalog writes with capitals.
var mixedCase = map[string]string{"datestyle": "DateStyle", "intervalstyle": "IntervalStyle", "timezone": "TimeZone"}

// setting reads "NAME = value, …" or "NAME to value" as pg_proc.proconfig
// holds it.
func (p *parser) setting() string {
	name, ok := p.name()
	if !ok || p.accept("from", "current") || !p.acceptMark('=') && !p.accept("to") {
		return ""
	}
	// In lists of names each one is quoted when it must be; in any other
	// setting the values stand as they are.
	names := slices.Contains([]string{"search_path", "temp_tablespaces", "session_preload_libraries", "local_preload_libraries", "shared_preload_libraries"}, name)
	var values []string
	for p.i < len(p.tokens) {
		t := p.tokens[p.i]
		switch {
		case t.kind == literal && names:
			values = append(values, quoteIdentifier(stringValue(p.sql[t.start:t.end])))
		case t.kind == literal:
			values = append(values, stringValue(p.sql[t.start:t.end]))
		case t.kind == mark && (p.isMark('-') || p.isMark('+')) && p.i+1 < len(p.tokens):
			p.i++
			values = append(values, string(p.sql[t.start:t.end])+p.text(p.tokens[p.i:p.i+1]))
		default:
			values = append(values, p.text(p.tokens[p.i:p.i+1]))
		}
		p.i++
		if !p.acceptMark(',') {
			break
		}
	}
	return cmp.Or(mixedCase[name], name) + "=" + strings.Join(values, ", ")
}

// valueText passes one token and returns its normalised text.
func (p *parser) valueText() string {
	if p.i >= len(p.tokens) {
		return ""
	}
	if name, ok := p.name(); ok {
		return name
	}
	p.i++
	return p.text(p.tokens[p.i-1 : p.i])
}

// arguments passes "(…)" and returns the arguments in it.
func (p *parser) arguments() []argument {
	var arguments []argument
	for _, tokens := range splitCommas(p.sql, p.brackets()) {
		arguments = append(arguments, parseArgument(p.sql, tokens))
	}
	return arguments
}

// parseArgument reads "[mode] [name] type [default value]"; the mode may
// also stand behind the name.
func parseArgument(sql []byte, tokens []token) argument {
	a := parser{sql: sql, tokens: tokens}
	var arg argument
	for i, t := range tokens {
		if isWord(sql, t, "default") || isMark(sql, t, '=') || isMark(sql, t, ':') && i+1 < len(tokens) && isMark(sql, tokens[i+1], '=') {
			value := tokens[i+1:]
			if isMark(sql, t, ':') {
				value = tokens[i+2:]
			}
			arg.fallback = a.text(value)
			a.tokens = tokens[:i]
			break
		}
	}
	arg.mode = a.mode()
	if a.namesArgument() {
		arg.name = identifier(sql, a.tokens[a.i])
		a.i++
		if arg.mode == "" {
			arg.mode = a.mode()
		}
	}
	if arg.mode == "in" {
		arg.mode = ""
	}
	arg.typeName = a.typeName()
	return arg
}

func (p *parser) mode() string {
	switch {
	case p.accept("in", "out"):
		return "inout"
	case p.i+1 < len(p.tokens) && (p.is("in") || p.is("out") || p.is("inout") || p.is("variadic")):
		p.i++
		return lower(p.sql[p.tokens[p.i-1].start:p.tokens[p.i-1].end])
	}
	return ""
}

// namesArgument reports whether the next token is a name and not already the
// type: a type of several words begins with certain ones.
func (p *parser) namesArgument() bool {
	if p.i+1 >= len(p.tokens) {
		return false
	}
	second := p.tokens[p.i+1]
	if second.kind != word && second.kind != quoted {
		return false
	}
	for _, words := range [][]string{
		{"double", "precision"}, {"character", "varying"}, {"char", "varying"}, {"national", "character"}, {"national", "char"}, {"nchar", "varying"},
		{"bit", "varying"}, {"timestamp", "with"}, {"timestamp", "without"}, {"time", "with"}, {"time", "without"},
	} {
		if p.is(words...) {
			return false
		}
	}
	return !isOneOf(p.sql, second, "array") && !(p.is("interval") && isOneOf(p.sql, second, intervalFields...))
}

func inputTypes(arguments []argument) string {
	var types []string
	for _, a := range arguments {
		if a.input() {
			types = append(types, a.typeName)
		}
	}
	return strings.Join(types, ", ")
}

// outputResult is the result that output arguments make.
func outputResult(arguments []argument) string {
	var types []string
	for _, a := range arguments {
		if a.output() {
			types = append(types, a.typeName)
		}
	}
	switch len(types) {
	case 0:
		return ""
	case 1:
		return types[0]
	}
	return "record"
}

// columns reads the list of returns table.
func columns(p *parser) string {
	var list []string
	for _, a := range p.arguments() {
		list = append(list, a.String())
	}
	return strings.Join(list, ", ")
}
