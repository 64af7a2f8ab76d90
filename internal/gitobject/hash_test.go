package gitobject_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// git runs the git program, which is the judge of everything here.
func git(t testing.TB, dir, stdin string, args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git program to compare with")
	}
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CEILING_DIRECTORIES=" + dir, "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_AUTHOR_DATE=1700000000 +0100",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.org", "GIT_COMMITTER_DATE=1700000000 +0100",
	}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.Output()
	return string(out), err
}

func mustGit(t testing.TB, dir, stdin string, args ...string) string {
	t.Helper()
	out, err := git(t, dir, stdin, args...)
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(out, "\n")
}

func TestBlobIDIsGits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, data := range []string{"", "\n", "select 1;\r\n", "\xff\x00\xfe", strings.Repeat("x", 1<<20)} {
		want := mustGit(t, dir, data, "hash-object", "--no-filters", "--stdin")
		got, err := gitobject.BlobID([]byte(data))
		if err != nil || string(got) != want {
			t.Errorf("BlobID of %d bytes = %q, %v; git says %s", len(data), got, err, want)
		}
	}
}

func TestCommitAndTag(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustGit(t, dir, "", "init", "-q")
	tree := mustGit(t, dir, "", "write-tree")
	commit := mustGit(t, dir, "a message\n", "commit-tree", tree)
	mustGit(t, dir, "", "tag", "-a", "-m", "one", "inner", commit)
	mustGit(t, dir, "", "tag", "-a", "-m", "two", "outer", "inner")

	raw, _ := git(t, dir, "", "cat-file", "commit", commit)
	if got, err := gitobject.CommitID([]byte(raw)); err != nil || string(got) != commit {
		t.Errorf("CommitID = %q, %v; want %s", got, err, commit)
	}
	if got, err := gitobject.ParseCommit([]byte(raw)); err != nil || string(got) != tree {
		t.Errorf("ParseCommit = %q, %v; want %s", got, err, tree)
	}

	inner := mustGit(t, dir, "", "rev-parse", "refs/tags/inner")
	outer := mustGit(t, dir, "", "rev-parse", "refs/tags/outer")
	for _, tt := range []struct{ id, object, objectType string }{
		{inner, commit, gitobject.TypeCommit},
		{outer, inner, gitobject.TypeTag},
	} {
		raw, _ := git(t, dir, "", "cat-file", "tag", tt.id)
		if got, err := gitobject.TagID([]byte(raw)); err != nil || string(got) != tt.id {
			t.Errorf("TagID = %q, %v; want %s", got, err, tt.id)
		}
		object, objectType, err := gitobject.ParseTag([]byte(raw))
		if err != nil || string(object) != tt.object || objectType != tt.objectType {
			t.Errorf("ParseTag = %q, %q, %v; want %s, %s", object, objectType, err, tt.object, tt.objectType)
		}
	}
}

func TestMalformedObjects(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 40)
	for _, raw := range []string{"", "tree", "tree " + id, "parent " + id + "\n", "tree " + id[1:] + "\n", " tree " + id + "\n"} {
		if tree, err := gitobject.ParseCommit([]byte(raw)); !fault.Is(err, fault.Integrity) {
			t.Errorf("ParseCommit(%q) = %q, %v; want an integrity failure", raw, tree, err)
		}
	}
	for _, raw := range []string{"", "object " + id, "object " + id + "\n", "object " + id + "\ntype commit", "object " + id + "\ntype ref\n", "object x\ntype commit\n", "type commit\nobject " + id + "\n"} {
		if object, typ, err := gitobject.ParseTag([]byte(raw)); !fault.Is(err, fault.Integrity) {
			t.Errorf("ParseTag(%q) = %q, %q, %v; want an integrity failure", raw, object, typ, err)
		}
	}
}

func TestParseID(t *testing.T) {
	t.Parallel()
	good := "e8ee488d2c1d87ab09eed2581ec4bbc1e68315f6"
	if id, err := gitobject.ParseID(good); err != nil || string(id) != good || id.Short() != "e8ee488d2c1d" {
		t.Errorf("ParseID(%q) = %q, %v", good, id, err)
	}
	for _, bad := range []string{"", good[:39], good + "0", strings.ToUpper(good), good[:39] + "g", good[:39] + "\n", strings.Repeat("0", 64)} {
		if id, err := gitobject.ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %q, want an error", bad, id)
		}
	}
}
