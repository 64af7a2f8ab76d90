package vendorfile

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// B037, B070: each of these must not become a file.
func TestCheckPath(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"LICENSE", "sql/pgque.sql", "devel/sql/pgque.sql", "a b/c", "ü/→.sql", ".github/x", "a..b", "...x", "console.sql", "com10", "nullable", ".gitkeep",
		strings.Repeat("a", 255),
	} {
		if err := CheckPath(good); err != nil {
			t.Errorf("CheckPath(%q): %v", good, err)
		}
	}
	for _, bad := range []string{
		"", ".", "..", "../../etc/x", "/abs", "a/../../b", "a/..", "a/./b", "./a", "a//b", "a/", `C:\x`, "C:/x", "c:x", `\\srv\s`, `sql\..\..\x`, `a\b`, "//srv/s",
		"NUL", "nul", "nul.txt", "sql/AUX.sql", "con", "CONIN$", "com1", "COM¹.sql", "LPT9.x.y", "com0", "nul .txt", "a/prn/b",
		".git", ".git/hooks/post-checkout", "a/.GIT/config", "GIT~1/x", ".git ", ".git.", "a/.git./x",
		"a\x00b", "a\nb", "a\x1b[2Jb", "a\x7f", "a\u0085b", "a\u202eb", "\xff", "a.", "a ", "x/a. /y", "a:b", "file:stream", "a<b", "a>b", `a"b`, "a|b", "a?b", "a*b",
		strings.Repeat("a", 256), strings.Repeat("a/", 600) + "a",
	} {
		if CheckPath(bad) == nil {
			t.Errorf("CheckPath(%q) accepts it", bad)
		}
	}
}

func FuzzCheckPath(f *testing.F) {
	for _, s := range []string{"sql/pgque.sql", "../x", "a/./b", "NUL", `a\b`, ".git/x", "COM¹", "a\u202eb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if CheckPath(path) != nil {
			return
		}
		if !fs.ValidPath(path) || !filepath.IsLocal(path) || path == "." {
			t.Fatalf("not local: %q", path)
		}
		if filepath.ToSlash(filepath.Clean(filepath.FromSlash(path))) != path {
			t.Fatalf("not clean: %q", path)
		}
		for part := range strings.SplitSeq(path, "/") {
			if strings.EqualFold(part, ".git") || strings.ContainsAny(part, "\x00\\:") {
				t.Fatalf("part %q of %q", part, path)
			}
		}
	})
}
