package sqltext_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/sqltext"
)

// What the text says of its functions is what PostgreSQL has in its catalog
// after running it.
func TestFunctionsAreTheCatalogs(t *testing.T) {
	t.Parallel()
	sql, err := os.ReadFile("testdata/catalog.sql")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/catalog.json")
	if err != nil {
		t.Fatal(err)
	}
	var want []struct {
		sqltext.Object
		Strict bool
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	got := map[string]sqltext.Object{}
	for _, o := range sqltext.Objects(sql) {
		if o.Kind == sqltext.Function || o.Kind == sqltext.Procedure {
			got[string(o.Kind)+" "+o.Identity()] = o
		}
	}
	for _, w := range want {
		key := string(w.Kind) + " " + w.Identity()
		o, ok := got[key]
		if !ok {
			t.Errorf("%s is not found", key)
			continue
		}
		delete(got, key)
		if o.Result != w.Result || o.Body != w.Body || o.Language != w.Language || o.Volatility != w.Volatility || o.Definer != w.Definer ||
			!slices.Equal(o.Settings, w.Settings) || slices.Contains(o.Options, "strict") != w.Strict {
			t.Errorf("%s: got %+v\nwant %+v", key, o, w.Object)
		}
	}
	for key := range got {
		t.Errorf("%s is found, the catalog has none", key)
	}
}

// list is the identities of all objects, "KIND IDENTITY LINE".
func list(sql string) []string {
	var got []string
	for _, o := range sqltext.Objects([]byte(sql)) {
		got = append(got, fmt.Sprintf("%s %s %d", o.Kind, o.Identity(), o.Line))
	}
	return got
}

func TestObjects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sql string
		want      []string
	}{
		{"every kind", `
create schema if not exists pgque;
create extension pgcrypto;
create role app;
create type pgque.msg as (a int);
create domain pgque.d as int check (value > 0);
CREATE TABLE IF NOT EXISTS PgQue."Queue" (id int);
create unlogged table pgque.t2 (id int);
create temporary table scratch (id int);
create sequence pgque.s;
create unique index if not exists ix on pgque.t2 (id);
create index concurrently ix2 on only pgque.t2 using btree (id);
create view pgque.v as select 1;
create materialized view pgque.mv as select 1;
create or replace trigger tr before insert on pgque.t2 for each row execute function f();
create policy po on pgque.t2;
comment on table pgque.t2 is 'create table pgque.not_this (a int)';
insert into pgque.t2 values (1);`,
			[]string{
				"type pgque.msg 5", `table pgque."Queue" 7`, "table pgque.t2 8", "view pgque.mv 14", "view pgque.v 13", "sequence pgque.s 10",
				"index pgque.ix 11", "index pgque.ix2 12", "trigger tr on pgque.t2 15", "policy po on pgque.t2 16", "domain pgque.d 6", "schema pgque 2",
				"extension pgcrypto 3", "role app 4",
			}},
		{"the last definition of a function counts, the first of a table", "create function f() returns int as '1' language sql;\ncreate table if not exists t();\ncreate or replace function f() returns int as '2' language sql;\ncreate table if not exists t(a int);",
			[]string{"function f() 3", "table t 2"}},
		{"drops", "create function f() returns int as '' language sql; create function f(int) returns int as '' language sql; create function g() returns int as '' language sql;\n" +
			"create table a(); create table b(); create view v as select 1; create trigger x before insert on a execute function f(); create function h() returns int as '' language sql;\n" +
			"drop function if exists f(integer), f(text), h; drop table a, b cascade; drop trigger x on a; drop routine g; drop index if exists nope; drop materialized view v;",
			[]string{"function f() 1"}},
		{"a drop between two definitions", "create function f(a int) returns int as '' language sql; drop function f(int4);\ncreate function f(a int) returns text as '' language sql;", []string{"function f(integer) 2"}},
		{"DO blocks", "do $$\nbegin\n  if not exists (select 1) then\n    create role r;\n  else\n    grant r to s;\n  end if;\n  execute 'create table no()';\n  perform 1; create type ty as (a int);\n  drop table gone;\nend $$;\ndo language plpgsql 'begin end';",
			[]string{"type ty 9", "role r 4", "grant grant r to s 6"}},
		{"privileges", "GRANT Execute on function f(a int4, out b text), g() to x, public;\ngrant select, insert on t1, s.t2 to x with grant option; revoke all on all functions in schema s from public; grant a, b to c; grant all on schema s to x; revoke execute on procedure p(int) from x cascade;\ngrant select (a, b) on table t to x; alter default privileges grant all on tables to x;",
			[]string{
				"grant grant a to c 2", "grant grant all on schema s to x 2", "grant grant b to c 2", "grant grant execute on function f(integer) to public 1",
				"grant grant execute on function f(integer) to x 1", "grant grant execute on function g() to public 1", "grant grant execute on function g() to x 1",
				"grant grant select(a, b) on table t to x 3", "grant grant select, insert on table s.t2 to x with grant option 2",
				"grant grant select, insert on table t1 to x with grant option 2", "grant revoke all on all functions in schema s from public 2",
				"grant revoke execute on procedure p(integer) from x cascade 2",
			}},
	} {
		got := list(tt.sql)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, strings.Join(got, "\n     "), strings.Join(tt.want, "\n     "))
		}
	}
}

// Text that is no SQL may say anything, but must not panic.
func TestBrokenText(t *testing.T) {
	t.Parallel()
	for piece := range strings.SplitSeq("create|create function|create function f|create function f(|create table|drop|drop table|drop function f(|grant|grant x on|revoke a on f( from|alter|alter table|create index on|do|create trigger t on|create or replace|create function f() returns|create function f() set x|create function f() as", "|") {
		list(piece)
		list(piece + ";")
		list("do $$ begin " + piece + "; end $$")
	}
}

func TestSignature(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"create function S.F(In A Int = 1, out b text, variadic c text[] default '{}'::text[]) language sql as ''": "s.f(a integer default 1, out b text, variadic c text[] default '{}'::text[]) returns text",
		"create procedure p(inout a int default -1) language sql as ''":                                            "p(inout a integer default -1)",
		"create function f() returns table (a int, b text) language sql as ''":                                     "f() returns TABLE(a integer, b text)",
		"create function f(double precision, x double precision) returns void language sql as ''":                  "f(double precision, x double precision) returns void",
		"create function f(a int /* the first */, -- and\n b int) returns setof   record language sql as ''":       "f(a integer, b integer) returns SETOF record",
	} {
		objects := sqltext.Objects([]byte(sql))
		if len(objects) != 1 || objects[0].Signature != want {
			t.Errorf("%q\ngot  %+v\nwant %q", sql, objects, want)
		}
	}
}

// B061: what a file says of itself.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ sql, want string }{
		{"", ""},
		{"select '0.1.0'", ""},
		{"create function version() returns text language sql as $$ select '0.1.0' $$", ""},
		{"create function pgque.version() returns text language sql as $$ select '0.1.0' $$", "0.1.0"},
		{"CREATE OR REPLACE FUNCTION PGQUE.VERSION() RETURNS text AS $x$ BEGIN -- 'no'\n RETURN '0.2.0-rc.1'; END $x$ LANGUAGE plpgsql", "0.2.0-rc.1"},
		{`create function "pgque"."version"() returns text language sql return 'it''s'`, "it's"},
		{"create function pgque.version() returns text as 'select ''1'' ' language sql", "1"},
		{"create function pgque.version() returns text as $$ select '1' $$ language sql; create or replace function pgque.version() returns text as $$ select '2' $$ language sql; create function pgque.version(int) returns text as $$ select '3' $$ language sql", "2"},
		{"-- create function pgque.version() returns text as $$ select '1' $$ language sql", ""},
		{"create function pgque.version() returns text as $$ select 1 $$ language sql", ""},
	} {
		if got := sqltext.Version([]byte(tt.sql)); got != tt.want {
			t.Errorf("Version(%q) = %q, want %q", tt.sql, got, tt.want)
		}
	}
}
