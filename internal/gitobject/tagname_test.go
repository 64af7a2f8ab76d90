package gitobject_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// B076: names with slashes, names like an object id, names git forbids.
func TestCheckTagName(t *testing.T) {
	t.Parallel()
	good := []string{
		"v0.2.0", "tags/v1", "clients/go/v0.2.0", "20260817", "deadbee", strings.Repeat("a", 40), "v0.2.0+b1", "ü", "a%2Fb",
		"HEAD", "@", "a@b", "a{b}", "a..."[:1], "refs/heads/main", "a-", "a/-b", "#1", "'", "\"", "$(id)", "|", "😀", "a.b.c", "lock", "a.lockx",
	}
	bad := []string{
		"", "-rf", "--upload-pack=x", "v0.2.0^{}", "v0.2.0^", "a~1", "a:b", "a b", "a..b", "../heads/main", ".a", "a/.b", "a.", "a/", "/a", "a//b",
		"a.lock", "a.lock/b", "a@{1}", "a?", "a*", "a[b", "a\\b", "a\x00b", "a\nb", "a\x7fb", "a\tb", "\xff", "/", ".",
	}
	for _, name := range good {
		if err := gitobject.CheckTagName(name); err != nil {
			t.Errorf("CheckTagName(%q) = %v, want it to pass", name, err)
		}
		compareWithGit(t, name)
	}
	for _, name := range bad {
		err := gitobject.CheckTagName(name)
		if !fault.Is(err, fault.Usage) {
			t.Errorf("CheckTagName(%q) = %v, want a usage failure", name, err)
		}
		compareWithGit(t, name)
	}
}

// compareWithGit lets git check-ref-format decide.
func compareWithGit(t *testing.T, name string) {
	t.Helper()
	if strings.Contains(name, "\x00") {
		return // can't be an argument of a process
	}
	_, gitErr := git(t, t.TempDir(), "", "check-ref-format", "refs/tags/"+name)
	err := gitobject.CheckTagName(name)
	stricter := strings.HasPrefix(name, "-") || !utf8.ValidString(name)
	if err == nil && gitErr != nil {
		t.Errorf("CheckTagName(%q) passes, git refuses it", name)
	}
	if err != nil && gitErr == nil && !stricter {
		t.Errorf("CheckTagName(%q) = %v, git takes it", name, err)
	}
}

func FuzzCheckTagName(f *testing.F) {
	for _, s := range []string{"v0.2.0", "a/b", "-a", "a.lock", "a..b", "a@{", "ü", ".", "a/.b", "\x7f", "a\\b"} {
		f.Add(s)
	}
	f.Fuzz(compareWithGit)
}
