package linediff

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestUnified(t *testing.T) {
	t.Parallel()
	file := func(name, data string) File { return File{Name: name, Data: []byte(data)} }
	gone := func(name string) File { return File{Name: name, Missing: true} }
	for _, test := range []struct {
		name    string
		a, b    File
		options Options
		want    string
		stat    Stat
	}{
		{
			name: "a line in the middle", options: Options{Context: 1},
			a: file("d/x.sql", "1\n2\n3\n4\n5\n"), b: file("d/x.sql", "1\n2\nthree\n4\n5\n"),
			want: "--- a/d/x.sql\n+++ b/d/x.sql\n@@ -2,3 +2,3 @@\n 2\n-3\n+three\n 4\n",
			stat: Stat{Added: 1, Removed: 1},
		},
		{
			name: "hunks that touch are one", options: Options{Context: 1},
			a: file("x", "1\n2\n3\n4\n5\n6\n7\n"), b: file("x", "one\n2\n3\n4\nfive\n6\n7\n8\n"),
			want: "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n@@ -4,4 +4,5 @@\n 4\n-5\n+five\n 6\n 7\n+8\n",
			stat: Stat{Added: 3, Removed: 2},
		},
		{
			name: "no context",
			a:    file("x", "1\n2\n3\n"), b: file("x", "1\n3\n4\n"),
			want: "--- a/x\n+++ b/x\n@@ -2 +1,0 @@\n-2\n@@ -3,0 +3 @@\n+4\n",
			stat: Stat{Added: 1, Removed: 1},
		},
		{
			name: "the final newline", options: Options{Context: 1},
			a: file("x", "1\n2"), b: file("x", "1\n2\n"),
			want: "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n 1\n-2\n\\ No newline at end of file\n+2\n",
			stat: Stat{Added: 1, Removed: 1},
		},
		{
			name: "no final newline on both sides", options: Options{Context: 1},
			a: file("x", "1\n2"), b: file("x", "one\n2"),
			want: "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-1\n+one\n 2\n\\ No newline at end of file\n",
			stat: Stat{Added: 1, Removed: 1},
		},
		{
			name: "only LF ends a line", options: Options{Context: 3},
			a: file("x", "a\rb\u2028c\fd\n"), b: file("x", "a\rb\u2028c\fd\r\n\xff"),
			want: "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n-a\rb\u2028c\fd\n+a\rb\u2028c\fd\r\n+\xff\n\\ No newline at end of file\n",
			stat: Stat{Added: 2, Removed: 1},
		},
		{
			name: "a block slides down",
			a:    file("x", "begin\nend\n\nbegin\nend\n"), b: file("x", "begin\nend\n\nbegin\nend\n\nbegin\nend\n"),
			want: "--- a/x\n+++ b/x\n@@ -5,0 +6,3 @@\n+\n+begin\n+end\n",
			stat: Stat{Added: 3},
		},
		{
			name: "new", a: gone("x"), b: file("x", "1\n"),
			want: "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+1\n", stat: Stat{Added: 1},
		},
		{
			name: "gone", a: file("x", "1\n2\n"), b: gone("x"),
			want: "--- a/x\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-1\n-2\n", stat: Stat{Removed: 2},
		},
		{
			name: "from empty", a: file("x", ""), b: file("x", "1\n"),
			want: "--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+1\n", stat: Stat{Added: 1},
		},
		{
			name: "new and empty", a: gone("x"), b: file("x", ""),
			want: "New empty file b/x\n", stat: Stat{Note: `"x" is new and empty; a patch cannot create an empty file`},
		},
		{
			name: "gone and was empty", a: file("x", ""), b: gone("x"),
			want: "Removed empty file a/x\n", stat: Stat{Note: `"x" was empty and is gone; a patch cannot remove an empty file`},
		},
		{name: "same", a: file("x", "1\n"), b: file("x", "1\n"), stat: Stat{Identical: true}},
		{name: "both empty", a: file("x", ""), b: file("x", ""), stat: Stat{Identical: true}},
		{name: "both missing", a: gone("x"), b: gone("x"), stat: Stat{Identical: true}},
		{
			name: "NUL", a: file("x", "1\n"), b: file("x", "1\n\x00"),
			want: "Binary files a/x and b/x differ\n", stat: Stat{Binary: true, Note: `"x" has NUL bytes; it is not compared by lines`},
		},
		{
			name: "new binary", a: gone("x y"), b: file("x y", "\x00"),
			want: "Binary files /dev/null and b/x y differ\n", stat: Stat{Binary: true, Note: `"x y" has NUL bytes; it is not compared by lines`},
		},
		{
			name: "a name with a space", a: file("x y", "1\n"), b: file("x y", "2\n"),
			want: "--- a/x y\t\n+++ b/x y\t\n@@ -1 +1 @@\n-1\n+2\n", stat: Stat{Added: 1, Removed: 1},
		},
		{
			name: "a name that git quotes", a: gone("x"), b: file("é \"\\\n\x01\x7f", "2\n"),
			want: "--- /dev/null\n+++ \"b/\\303\\251 \\\"\\\\\\n\\001\\177\"\t\n@@ -0,0 +1 @@\n+2\n", stat: Stat{Added: 1},
		},
		{
			name: "colour", options: Options{Color: true},
			a: file("x", "1\n"), b: file("x", "2"),
			want: "\x1b[1m--- a/x\x1b[m\n\x1b[1m+++ b/x\x1b[m\n\x1b[36m@@ -1 +1 @@\x1b[m\n\x1b[31m-1\x1b[m\n\x1b[32m+2\x1b[m\n\\ No newline at end of file\n",
			stat: Stat{Added: 1, Removed: 1},
		},
		{
			// B079: what a file says must not steer the terminal.
			name: "sanitized", options: Options{Sanitize: true},
			a: gone("x"), b: file("x", "\x1b]0;t\x07\tcafé\r\n\xff\u009b\u202e\u2028\n"),
			want: "--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+\\x1b]0;t\\x07\tcafé\\x0d\n+\\xff\\x9b\\u202e\u2028\n", stat: Stat{Added: 2},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var w bytes.Buffer
			stat, err := Unified(&w, test.a, test.b, test.options)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.String(); got != test.want {
				t.Errorf("patch:\n%q\nwant:\n%q", got, test.want)
			}
			if stat != test.stat {
				t.Errorf("stat = %+v, want %+v", stat, test.stat)
			}
		})
	}
}

// brokenWriter fails from the second write on.
type brokenWriter struct{ writes int }

var errBroken = errors.New("the reader has gone")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.writes++; w.writes > 1 {
		return 0, errBroken
	}
	return len(p), nil
}

// TestWriteError checks that a write error comes back as it is: the caller
// must know a closed pipe (B079) from a full disk.
func TestWriteError(t *testing.T) {
	t.Parallel()
	b := File{Name: "x", Data: []byte(strings.Repeat("a line\n", 100_000))}
	s, err := Unified(&brokenWriter{}, File{Name: "x", Missing: true}, b, Options{})
	if !errors.Is(err, errBroken) {
		t.Errorf("err = %v, want %v", err, errBroken)
	}
	if s.Added != 100_000 {
		t.Errorf("added = %d, want 100000", s.Added)
	}
}
