package ghtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// TB is the part of testing.TB that a Repo needs, so that a program that uses
// this package does not link the package testing.
type TB interface {
	Helper()
	Fatal(args ...any)
	TempDir() string
}

// Repo is a git repository made by a test. Authors and dates are fixed, so the
// same steps give the same ids everywhere.
type Repo struct {
	Dir     string // with a work tree
	tb      TB
	commits int
}

// NewRepo makes an empty repository with the branch main.
func NewRepo(tb TB) *Repo {
	tb.Helper()
	r := &Repo{Dir: tb.TempDir(), tb: tb}
	r.Git("init", "-q", "-b", "main")
	r.Git("config", "core.autocrlf", "false")
	return r
}

// Git runs the git program in the repository and returns what it printed.
func (r *Repo) Git(args ...string) string {
	r.tb.Helper()
	date := fmt.Sprintf("2026-01-01T00:%02d:%02dZ", r.commits/60%60, r.commits%60)
	out, err := runGit(r.Dir, []string{
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=" + date,
	}, args...)
	if err != nil {
		r.tb.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// Commit writes files by path and commits them; the others stay. It returns
// the commit's id.
func (r *Repo) Commit(files map[string]string) string {
	r.tb.Helper()
	for name, content := range files {
		path := filepath.Join(r.Dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			r.tb.Fatal(err)
		}
	}
	r.commits++
	r.Git("add", "-A")
	r.Git("commit", "-q", "--allow-empty", "-m", fmt.Sprintf("commit %d", r.commits))
	return r.Git("rev-parse", "HEAD")
}

// Tag makes a lightweight tag of any object.
func (r *Repo) Tag(name, object string) {
	r.tb.Helper()
	r.Git("update-ref", "refs/tags/"+name, object)
}

// AnnotatedTag makes an annotated tag of any object, a tag's included, and
// returns the id of its tag object.
func (r *Repo) AnnotatedTag(name, object string) string {
	r.tb.Helper()
	r.Git("tag", "-a", "-m", "tag "+name, "--", name, object)
	return r.Git("rev-parse", "refs/tags/"+name)
}

// Branch makes or moves a branch.
func (r *Repo) Branch(name, commit string) {
	r.tb.Helper()
	r.Git("update-ref", "refs/heads/"+name, commit)
}

// ID returns the id of a revision, "v1:sql/pgque.sql" for example.
func (r *Repo) ID(revision string) string {
	r.tb.Helper()
	return r.Git("rev-parse", "--verify", revision)
}
