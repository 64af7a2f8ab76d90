package sqltext

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// typeAliases are the names of built-in types that format_type prints in
// another way.
var typeAliases = map[string]string{
	"int": "integer", "int4": "integer", "int2": "smallint", "int8": "bigint", "bool": "boolean", "float4": "real", "float8": "double precision",
	"float": "double precision", "decimal": "numeric", "dec": "numeric", "varchar": "character varying", "char": "character", "bpchar": "character",
	"nchar": "character", "char varying": "character varying", "nchar varying": "character varying", "national character": "character",
	"national char": "character", "national character varying": "character varying", "national char varying": "character varying", "varbit": "bit varying",
	"timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone", "time": "time without time zone", "timetz": "time with time zone",
}

var intervalFields = []string{"year", "month", "day", "hour", "minute", "second"}

// typeName reads a type and returns it as format_type prints it, without a
// length or precision: these are no part of a function's signature.
func (p *parser) typeName() string {
	p.accept("setof")
	quotedType := p.i < len(p.tokens) && p.tokens[p.i].kind == quoted
	name, ok := p.name()
	if !ok {
		return ""
	}
	name = strings.TrimPrefix(name, "pg_catalog.")
	for i := 0; i < 2 && p.acceptOneOf("precision", "varying", "character", "char"); i++ { // "national character varying" has two
		name += " " + lower(p.sql[p.tokens[p.i-1].start:p.tokens[p.i-1].end])
	}
	modifier := p.text(p.brackets())
	zone := ""
	switch {
	case name == "interval":
		for p.acceptOneOf(intervalFields...) || p.accept("to") {
		}
		p.brackets()
	case p.accept("with", "time", "zone"):
		zone = " with time zone"
	case p.accept("without", "time", "zone"):
		zone = " without time zone"
	case p.acceptMark('%') && p.accept("type"):
		name += "%type"
	}
	switch {
	case quotedType: // "char" is a type of its own
		if name == "char" {
			name = `"char"`
		}
	case zone != "":
		name += zone
	case name == "float" && realPrecision(modifier):
		name = "real"
	case typeAliases[name] != "":
		name = typeAliases[name]
	}
	if p.accept("array") || p.isMark('[') {
		name += "[]"
		for p.acceptMark('[') || p.acceptMark(']') || p.i < len(p.tokens) && p.tokens[p.i].kind == number {
			if p.i < len(p.tokens) && p.tokens[p.i].kind == number {
				p.i++
			}
		}
	}
	return name
}

// realPrecision reports whether float(N) is the small type.
func realPrecision(modifier string) bool {
	bits, err := strconv.Atoi(modifier)
	return err == nil && bits <= 24
}

// lower folds a word as PostgreSQL folds identifiers: ASCII letters only.
func lower(text []byte) string {
	folded := []byte(nil)
	for i, c := range text {
		if 'A' <= c && c <= 'Z' {
			if folded == nil {
				folded = bytes.Clone(text)
			}
			folded[i] = c | 0x20
		}
	}
	if folded != nil {
		return string(folded)
	}
	return string(text)
}

// identifier is a word or a quoted identifier as PostgreSQL prints it.
func identifier(sql []byte, t token) string {
	text := sql[t.start:t.end]
	if t.kind == word {
		return lower(text)
	}
	from := bytes.IndexByte(text, '"')
	inner := strings.TrimSuffix(string(text[from+1:]), `"`)
	name := strings.ReplaceAll(inner, `""`, `"`)
	if from > 0 { // U&"…"
		name = unescapeUnicode(name)
	}
	return quoteIdentifier(name)
}

// quoteIdentifier puts quotes around a name that needs them.
func quoteIdentifier(name string) string {
	plain := name != "" && !reserved()[name]
	for i, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || c == '_' || i > 0 && isDigit(c)) {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// reserved are the key words that can't be a name without quotes. The set is
// made at its first use, so that it costs a start of the program nothing.
var reserved = sync.OnceValue(func() map[string]bool {
	return wordSet(`all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation
	column concurrently constraint create cross current_catalog current_date current_role current_schema current_time current_timestamp current_user
	default deferrable desc distinct do else end except false fetch for foreign freeze from full grant group having ilike in initially inner intersect
	into is isnull join lateral leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing
	primary references returning right select session_user similar some symmetric table tablesample then to trailing true union unique user using
	variadic verbose when where window with`)
})

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}

// stringValue is the value of a string literal.
func stringValue(text []byte) string {
	from := bytes.IndexByte(text, '\'')
	if from < 0 {
		return ""
	}
	prefix := lower(text[:from])
	inner := string(text[from+1:])
	if prefix == "e" {
		return unescape(strings.TrimSuffix(inner, "'"))
	}
	value := strings.ReplaceAll(strings.TrimSuffix(inner, "'"), "''", "'")
	if prefix == "u&" {
		return unescapeUnicode(value)
	}
	return value
}

// unescape resolves what a backslash or a doubled quote stands for in E'…'.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\'' && i+1 < len(s) && s[i+1] == '\'':
			i++
			b.WriteByte('\'')
		case s[i] == '\\' && i+1 < len(s):
			i++
			i += unescapeOne(&b, s[i:]) - 1
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// unescapeOne writes what an escape stands for, from behind its backslash, and
// returns how many bytes it has.
func unescapeOne(b *strings.Builder, s string) int {
	digits := func(from, most, base int) (value uint64, n int) {
		for n < most && from+n < len(s) {
			v, err := strconv.ParseUint(s[from:from+n+1], base, 32)
			if err != nil {
				break
			}
			value = v
			n++
		}
		return value, n
	}
	switch c := s[0]; c {
	case 'b', 'f', 'n', 'r', 't', 'v':
		b.WriteByte("\b\f\n\r\t\v"[strings.IndexByte("bfnrtv", c)])
		return 1
	case 'x':
		if v, n := digits(1, 2, 16); n > 0 {
			b.WriteByte(byte(v))
			return 1 + n
		}
	case 'u', 'U':
		if v, n := digits(1, map[byte]int{'u': 4, 'U': 8}[c], 16); n > 0 {
			b.WriteRune(rune(v))
			return 1 + n
		}
	case '0', '1', '2', '3', '4', '5', '6', '7':
		v, n := digits(0, 3, 8)
		b.WriteByte(byte(v))
		return n
	}
	_, size := utf8.DecodeRuneInString(s)
	b.WriteString(s[:size])
	return size
}

// unescapeUnicode resolves \XXXX and \+XXXXXX of U& strings and identifiers,
// with the usual escape character.
func unescapeUnicode(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		hex := ""
		switch {
		case s[i] != '\\' || i+1 >= len(s):
			b.WriteByte(s[i])
			continue
		case s[i+1] == '\\':
			b.WriteByte('\\')
			i++
			continue
		case s[i+1] == '+' && i+8 <= len(s):
			hex = s[i+2 : i+8]
		case s[i+1] != '+' && i+5 <= len(s):
			hex = s[i+1 : i+5]
		}
		v, err := strconv.ParseUint(hex, 16, 32)
		if err != nil {
			b.WriteByte(s[i])
			continue
		}
		b.WriteRune(rune(v))
		i += len(hex)
		if len(hex) == 6 {
			i++ // the "+"
		}
	}
	return b.String()
}

// insideDollars returns the offsets of the text between the dollar quotes.
func insideDollars(text []byte) (from, to int) {
	from = 1 + bytes.IndexByte(text[1:], '$') + 1
	to = len(text)
	if delimiter := text[:from]; len(text) >= 2*from && bytes.HasSuffix(text, delimiter) {
		to -= from
	}
	return from, to
}
