package sqltext_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/sqltext"
)

// B087: what naive splitters get wrong. The counts are what PostgreSQL 15
// answers to the text as one message.
func TestStatements(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sql string
		want      []string // each statement's text, without its first line's number
	}{
		{"nothing", " \n-- only a comment; and\n/* another; /* nested; */ one; */\n;;", nil},
		{"no last semicolon", "select 1; select 2", []string{"1:select 1", "1:select 2"}},
		{"strings", "select ';', 'it''s;', e'\\';', E'\\\\', U&'\\0041;', b'1', x'f', n';';\nselect 2", []string{`1:select ';', 'it''s;', e'\';', E'\\', U&'\0041;', b'1', x'f', n';'`, "2:select 2"}},
		{"a backslash is no escape", `select '\'; select 2`, []string{`1:select '\'`, "1:select 2"}},
		{"identifiers", `create table "a;""b"(u&";" int); select 1 as e'`, []string{`1:create table "a;""b"(u&";" int)`, "1:select 1 as e'"}},
		{"dollar quotes", "select $$;$$, $a$ $$; $b$; $a$, $_é1$;$_é1$;\n\nselect 1", []string{"1:select $$;$$, $a$ $$; $b$; $a$, $_é1$;$_é1$", "3:select 1"}},
		{"no dollar quotes", "select a$b$c, $1; select $2$;", []string{"1:select a$b$c, $1", "1:select $2$"}},
		{"a procedure that commits", "create procedure p() language plpgsql as $$\nbegin\n  commit;\nend $$;\ncall p();", []string{"1:create procedure p() language plpgsql as $$\nbegin\n  commit;\nend $$", "5:call p()"}},
		{"a body in SQL", "create function f(n int) returns int\nbegin atomic select 1; select case n when 1 then 2 end; end;\nselect 1", []string{"1:create function f(n int) returns int\nbegin atomic select 1; select case n when 1 then 2 end; end", "3:select 1"}},
		{"a transaction", "begin; select 1; end; commit", []string{"1:begin", "1:select 1", "1:end", "1:commit"}},
		{"a rule with several actions", "create rule r as on insert to t do also (delete from t; delete from u); select 1", []string{"1:create rule r as on insert to t do also (delete from t; delete from u)", "1:select 1"}},
		{"comments inside", "select 1 -- ; '\n + /* ; $$ */ 2;", []string{"1:select 1 -- ; '\n + /* ; $$ */ 2"}},
		{"a minus is no comment", "select 1 - -1, 4/2", []string{"1:select 1 - -1, 4/2"}},
		{"comment behind an operator", "select 1+--x;\n2;select 3", []string{"1:select 1+--x;\n2", "2:select 3"}},
		{"CRLF", "select 1;\r\nselect 2;\r\n", []string{"1:select 1", "2:select 2"}},
		{"not terminated", "select 1;\nselect 'abc;\n;", []string{"1:select 1", "2:select 'abc;\n;"}},
		{"not terminated, dollar", "select $a$ ; $b$", []string{"1:select $a$ ; $b$"}},
	} {
		var got []string
		for _, s := range sqltext.Statements([]byte(tt.sql)) {
			got = append(got, fmt.Sprintf("%d:%s", s.Line, tt.sql[s.Start:s.End]))
		}
		if strings.Join(got, "\n--\n") != strings.Join(tt.want, "\n--\n") {
			t.Errorf("%s: got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

func TestStatementAt(t *testing.T) {
	t.Parallel()
	sql := []byte("-- a file\nselect 1;\n;\n\nselect\n  1/0\n;\n\nselect 3;\n")
	line, excerpt := sqltext.StatementAt(sql, 1)
	want := "      4 | \n>     5 | select\n      6 |   1/0\n      7 | ;\n      8 | \n"
	if line != 5 || excerpt != want {
		t.Errorf("StatementAt(1) = %d,\n%s\nwant 5,\n%s", line, excerpt, want)
	}
	for _, completed := range []int{-1, 3, 1000} {
		if line, excerpt := sqltext.StatementAt(sql, completed); line != 0 || excerpt != "" {
			t.Errorf("StatementAt(%d) = %d, %q; want none", completed, line, excerpt)
		}
	}
}

// B077: a line of megabytes is a line like any other, and never printed whole.
func TestLongLine(t *testing.T) {
	t.Parallel()
	sql := []byte("select 1;\nselect '" + strings.Repeat("ü", 4<<20) + "';\nselect 1/0;")
	if line, excerpt := sqltext.StatementAt(sql, 2); line != 3 || !strings.Contains(excerpt, ">     3 | select 1/0;") || len(excerpt) > 1000 {
		t.Errorf("StatementAt = %d, %d bytes", line, len(excerpt))
	}
	if excerpt := sqltext.Excerpt(sql, 2); len(excerpt) > 1000 || !strings.Contains(excerpt, "üüü…\n") {
		t.Errorf("the excerpt has %d bytes", len(excerpt))
	}
	if excerpt := sqltext.Excerpt([]byte("a\xff\nb"), 1); excerpt != ">     1 | a\uFFFD\n      2 | b\n" {
		t.Errorf("the excerpt of invalid UTF-8 is %q", excerpt)
	}
	for _, line := range []int{0, -1, 4} {
		if excerpt := sqltext.Excerpt(sql, line); excerpt != "" {
			t.Errorf("Excerpt(%d) = %q, want nothing", line, excerpt)
		}
	}
}

func TestLineOfCharacter(t *testing.T) {
	t.Parallel()
	sql := []byte("sélect\n€ 1\n\nx")
	for position, want := range map[int]int{-1: 0, 0: 0, 1: 1, 6: 1, 7: 1, 8: 2, 10: 2, 11: 2, 12: 3, 13: 4, 14: 4, 15: 0} {
		if got := sqltext.LineOfCharacter(sql, position); got != want {
			t.Errorf("LineOfCharacter(%d) = %d, want %d", position, got, want)
		}
	}
	if got := sqltext.LineOfCharacter(nil, 1); got != 1 {
		t.Errorf("LineOfCharacter of nothing = %d, want 1", got)
	}
}

func TestMetaCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sql  string
		line int
		text string
	}{
		{"select 1;\n\\set ON_ERROR_STOP on  \r\nselect 2;", 2, `\set ON_ERROR_STOP on`},
		{"\\i other.sql", 1, `\i other.sql`},
		{"select 1 \\gset\n", 1, `\gset`},
		{"select '\\set', $$\\i$$, E'\\'', \"\\x\"; -- \\i\n/* \\i */", 0, ""},
	} {
		line, text, found := sqltext.MetaCommand([]byte(tt.sql))
		if line != tt.line || text != tt.text || found != (tt.line > 0) {
			t.Errorf("MetaCommand(%q) = %d, %q, %v; want %d, %q", tt.sql, line, text, found, tt.line, tt.text)
		}
	}
}

// B087: what ends the transaction that a file is sent in, and what only looks so.
func TestTransactionControl(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		sql  string
		line int
		text string
	}{
		{"begin;\nselect 1;\ncommit;", 1, "begin"},
		{"select 1;\n\n-- the end\nCOMMIT AND CHAIN;", 4, "COMMIT AND CHAIN"},
		{"start transaction\n  read only;", 1, "start transaction"},
		{"select 1; end", 1, "end"},
		{"Abort;", 1, "Abort"},
		{"rollback;", 1, "rollback"},
		{"rollback work;", 1, "rollback work"},
		{"rollback and chain;", 1, "rollback and chain"},
		{"/* ; */ prepare transaction 'x';", 1, "prepare transaction 'x'"},
		{"commit prepared 'x';", 1, "commit prepared 'x'"},
		{"set transaction isolation level serializable;", 1, "set transaction isolation level serializable"},
		{"set local transaction read only;", 1, "set local transaction read only"},
		{"create procedure p() language plpgsql as $$ begin commit; end $$;\nrollback;", 2, "rollback"},
		{"create function f() returns int begin atomic select 1; end; end;", 1, "end"},

		{"savepoint s; rollback to s; rollback to savepoint s; rollback work to s; rollback transaction to s; release s;", 0, ""},
		{"create procedure p() language plpgsql as $$\nbegin\n  commit;\nend $$; call p();", 0, ""},
		{"do 'begin null; end'; create function f() returns int begin atomic select 1; select case when true then 1 end; end;", 0, ""},
		{"prepare transaction as select 1; prepare commit as select 1; set transaction_isolation = 'x'; set local lock_timeout = 1;", 0, ""},
		{"comment on table t is 'commit;'; -- commit;\n/* ; commit; */ select 'x; commit;';", 0, ""},
		{"\"commit\"; select 1 as end;", 0, ""},
	} {
		line, text, found := sqltext.TransactionControl([]byte(tt.sql))
		if line != tt.line || text != tt.text || found != (tt.line > 0) {
			t.Errorf("TransactionControl(%q) = %d, %q, %v; want %d, %q", tt.sql, line, text, found, tt.line, tt.text)
		}
	}
}

// Nothing panics, offsets are in order, and what lies between the statements
// has no token of its own.
func FuzzStatements(f *testing.F) {
	for _, s := range []string{"select 1; select 2", "select $a$;$a$", "/* /* */", "e'\\", "U&'", "create function f() begin atomic case end; end;", "$$", "$a", "\\x", "do $$begin create role x; end$$", "grant a, b on function f(int) to c with grant option", "drop function a, b()"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, sql []byte) {
		end := 0
		for _, s := range sqltext.Statements(sql) {
			if s.Start < end || s.End <= s.Start || s.End > len(sql) {
				t.Fatalf("statement %+v after offset %d of %d", s, end, len(sql))
			}
			if line := 1 + bytes.Count(sql[:s.Start], []byte("\n")); line != s.Line {
				t.Fatalf("statement %+v is on line %d", s, line)
			}
			if between := bytes.Trim(sql[end:s.Start], "; \t\r\n\f\v"); len(between) > 0 && !bytes.HasPrefix(between, []byte("--")) && !bytes.HasPrefix(between, []byte("/*")) {
				t.Fatalf("%q is in no statement", between)
			}
			end = s.End
		}
		objects := sqltext.Objects(sql)
		if changes := sqltext.Compare(objects, objects); len(changes) != 0 {
			t.Fatalf("a text differs from itself: %+v", changes)
		}
		sqltext.Version(sql)
		sqltext.MetaCommand(sql)
		sqltext.TransactionControl(sql)
		sqltext.StatementAt(sql, 0)
		sqltext.LineOfCharacter(sql, len(sql)/2)
	})
}

// Twice the text takes about twice the time, also where nothing is closed.
func BenchmarkHostile(b *testing.B) {
	for name, piece := range map[string]string{
		"dollar": "$a", "comment": "/*", "tags": "$a$ $b$", "brackets": "(", "words": "create function f(", "grants": "grant a to b,", "quotes": "'", "drops": "drop function f,", "alters": "create table t(); alter table t x;",
	} {
		for _, n := range []int{1 << 16, 1 << 17, 1 << 18} {
			sql := []byte(strings.Repeat(piece, n))
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(sql)))
				for b.Loop() {
					sqltext.Objects(sql)
				}
			})
		}
	}
}
