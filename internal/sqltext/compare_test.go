package sqltext_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/sqltext"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	f := func(args, result, attributes, body string) string {
		return "create or replace function s.f(" + args + ") returns " + result + " language sql " + attributes + " as $$" + body + "$$;"
	}
	base := f("a int", "int", "", "select 1")
	for _, tt := range []struct {
		name, a, b string
		want       []string
	}{
		{"the same in other words", base, "-- more\nCREATE FUNCTION S.F(IN A INTEGER) /* x */ RETURNS int4 AS $body$select 1$body$ LANGUAGE SQL VOLATILE;", nil},
		{"added", "", base, []string{"added s.f(integer)"}},
		{"removed", base, "", []string{"removed s.f(integer)"}},
		{"body", base, f("a int", "int", "", "select 2"), []string{"changed-body s.f(integer)"}},
		{"a comment in the body is in prosrc", base, f("a int", "int", "", "select 1 -- one"), []string{"changed-body s.f(integer)"}},
		{"an argument's name", base, f("b int", "int", "", "select 1"), []string{"changed-signature s.f(integer)"}},
		{"a default", base, f("a int default 1", "int", "", "select 1"), []string{"changed-signature s.f(integer)"}},
		{"result and body", base, f("a int", "bigint", "", "select 2"), []string{"changed-result,changed-body s.f(integer)"}},
		{"attributes", base, f("a int", "int", "security definer", "select 1"), []string{"changed-attributes s.f(integer)"}},
		{"settings", base, f("a int", "int", "set search_path = ''", "select 1"), []string{"changed-attributes s.f(integer)"}},
		{"options", base, f("a int", "int", "parallel safe", "select 1"), []string{"changed-attributes s.f(integer)"}},
		{"an alteration of a function", base, base + "alter function s.f(int) owner to x;", []string{"changed-attributes s.f(integer)"}},
		{"the only overload", base, f("a bigint", "int", "", "select 1"), []string{"changed-signature s.f(bigint)"}},
		{"one more overload", base, base + f("a bigint", "int", "", "select 1"), []string{"added s.f(bigint)"}},
		{"two overloads for one", base, f("a bigint", "int", "", "") + f("a text", "int", "", ""), []string{"added s.f(bigint)", "removed s.f(integer)", "added s.f(text)"}},
		{"a table's column", "create table t(a int)", "create table t(a int, b int)", []string{"changed-definition t"}},
		{"a table's comment", "create table t(a int)", "create table t(a int -- the id\n)", nil},
		{"an alteration", "create table t(a int)", "create table t(a int); alter table only t add column b int;", []string{"changed-definition t"}},
		{"grants", "grant select on t to a, b", "grant select on table t to b, c", []string{"removed grant select on table t to a", "added grant select on table t to c"}},
		{"a body in SQL", "create function f() returns int return 1", "create function f() returns int return 2", []string{"changed-body f()"}},
	} {
		var got []string
		for _, c := range sqltext.Compare(sqltext.Objects([]byte(tt.a)), sqltext.Objects([]byte(tt.b))) {
			what := string(c.What)
			if len(c.Parts) > 1 {
				what = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(c.Parts)), ","), "[]")
			}
			got = append(got, what+" "+c.Object().Identity())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
