package sqltext

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// Kind is a kind of database object.
type Kind string

// The kinds that Objects finds, in the order of a report.
const (
	Function  Kind = "function"
	Procedure Kind = "procedure"
	Type      Kind = "type"
	Table     Kind = "table"
	View      Kind = "view"
	Sequence  Kind = "sequence"
	Index     Kind = "index"
	Trigger   Kind = "trigger"
	Policy    Kind = "policy"
	Domain    Kind = "domain"
	Schema    Kind = "schema"
	Extension Kind = "extension"
	Role      Kind = "role"
	Grant     Kind = "grant" // and revoke: both are lines about a privilege
)

var kindOrder = []Kind{Function, Procedure, Type, Table, View, Sequence, Index, Trigger, Policy, Domain, Schema, Extension, Role, Grant}

// Object is what an SQL text leaves behind in a database: its last definition.
// Identifiers are folded and quoted as PostgreSQL prints them, types are
// spelled as format_type spells them with an empty search_path.
type Object struct {
	Kind Kind
	// Name is qualified with a schema where the text does so. A trigger or
	// policy is "NAME on TABLE"; a grant is its whole line, "grant execute on
	// function pgque.version() to app", one object and one grantee to a line.
	Name string
	Line int // where the definition begins; 1 is the first line

	// Of a function or procedure:

	Args       string   // types of the input arguments, as oidvectortypes prints them: "text, integer"
	Result     string   // as pg_get_function_result prints it; "" for a procedure
	Signature  string   // for a person: with modes, names and defaults
	Body       string   // pg_proc.prosrc, byte for byte; "" for a body in SQL (begin atomic, return)
	Language   string   // "sql" where the text doesn't say
	Volatility string   // volatile, stable or immutable
	Definer    bool     // security definer
	Settings   []string // pg_proc.proconfig: "search_path=pgque, pg_catalog"
	Options    []string // further attributes, such as "strict", "cost 10", and alterations as they stand

	// Definition is the normalised text of every other kind, without comments,
	// with the alterations that follow; also of a body in SQL.
	Definition string

	alterations []string // until they are joined to the definition
}

// Identity names the object among those of its kind: the name, with the
// argument types of a function or procedure.
func (o Object) Identity() string {
	if o.Kind == Function || o.Kind == Procedure {
		return o.Name + "(" + o.Args + ")"
	}
	return o.Name
}

// Objects returns what is there after an SQL text has run on an empty
// database, sorted by kind and name. Redefinitions and drops are followed.
// DO blocks are read as well, since roles and types are often made in them:
// each create, alter, grant and revoke in one counts, whatever its condition,
// but no drop. SQL that is put together from strings is not seen. Temporary
// tables are left out.
func Objects(sql []byte) []Object {
	live := objectSet{}
	eachStatement(sql, func(tokens []token) {
		live.apply(sql, tokens, 0)
	})
	return live.sorted(sql)
}

// objectSet is the objects by kind and name, and then by the argument types: a drop
// can name all overloads of a function at once. Line holds an offset until the set
// is sorted.
type objectSet map[objectName]map[string]*Object

type objectName struct {
	kind Kind
	name string
}

// apply follows one statement. The offset is that of sql in the whole text.
func (s objectSet) apply(sql []byte, tokens []token, offset int) {
	p := parser{sql: sql, tokens: tokens}
	start := offset + tokens[0].start
	switch {
	case p.accept("create"):
		s.create(&p, start)
	case p.accept("alter"):
		s.alter(&p)
	case p.accept("drop"):
		s.drop(&p)
	case p.is("grant"), p.is("revoke"):
		for _, line := range privileges(&p) {
			s.keepFirst(Object{Kind: Grant, Name: line, Line: start})
		}
	case p.accept("do"):
		for _, t := range tokens[1:] {
			if t.kind == dollar {
				from, to := insideDollars(sql[t.start:t.end])
				s.applyBlock(sql[t.start+from:t.start+to], offset+t.start+from)
			}
		}
	}
}

// applyBlock follows the plain SQL statements of a PL/pgSQL block. One stands
// at the start of a statement there, or behind the word that opens a branch.
func (s objectSet) applyBlock(sql []byte, offset int) {
	eachStatement(sql, func(tokens []token) {
		for i, t := range tokens {
			opens := i == 0 || isOneOf(sql, tokens[i-1], "begin", "then", "else", "loop")
			if opens && isOneOf(sql, t, "create", "alter", "grant", "revoke") {
				s.apply(sql, tokens[i:], offset)
				return
			}
		}
	})
}

func (s objectSet) keepFirst(o Object) {
	if s[objectName{o.Kind, o.Name}][o.Args] == nil {
		s.keepLast(o)
	}
}

func (s objectSet) keepLast(o Object) {
	key := objectName{o.Kind, o.Name}
	if s[key] == nil {
		s[key] = map[string]*Object{}
	}
	s[key][o.Args] = &o
}

func (s objectSet) sorted(sql []byte) []Object {
	objects := make([]Object, 0, len(s))
	for _, overloads := range s {
		for _, o := range overloads {
			if o.alterations != nil {
				o.Definition = strings.TrimPrefix(o.Definition+"; "+strings.Join(o.alterations, "; "), "; ")
				o.alterations = nil
			}
			objects = append(objects, *o)
		}
	}
	slices.SortFunc(objects, func(a, b Object) int { return cmp.Compare(a.Line, b.Line) })
	line, counted := 1, 0
	for i := range objects { // from offsets to lines, in one pass
		start := objects[i].Line
		line += bytes.Count(sql[counted:start], []byte("\n"))
		counted = start
		objects[i].Line = line
	}
	slices.SortFunc(objects, compareObjects)
	return objects
}

func compareObjects(a, b Object) int {
	return cmp.Or(
		cmp.Compare(slices.Index(kindOrder, a.Kind), slices.Index(kindOrder, b.Kind)),
		strings.Compare(a.Name, b.Name),
		strings.Compare(a.Args, b.Args),
	)
}
