package gitrepo_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/gitrepo"
)

// repo is a repository that a test makes with the real git.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T, initArgs ...string) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git program")
	}
	r := repo{t, filepath.Join(t.TempDir(), "upstream")}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.git(append([]string{"init", "-q", "-b", "main"}, initArgs...)...)
	return r
}

func (r repo) run(stdin string, args ...string) (string, error) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(),
		"HOME="+r.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.org")
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func (r repo) git(args ...string) string {
	r.t.Helper()
	out, err := r.run("", args...)
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (r repo) id(rev string) gitobject.ID {
	r.t.Helper()
	return gitobject.ID(r.git("rev-parse", rev))
}

// commit writes files and commits them.
func (r repo) commit(files map[string]string) gitobject.ID {
	r.t.Helper()
	for path, text := range files {
		full := filepath.Join(r.dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	r.git("add", "-A")
	r.git("commit", "-q", "-m", "a commit")
	return r.id("HEAD")
}

func open(t *testing.T, path string) *gitrepo.Repository {
	t.Helper()
	r, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: path, TempDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

var files = map[string]string{"LICENSE": "a licence\n", "NOTICE": "a notice\n", "sql/pgque.sql": "select 1;\n"}

// Every form of a repository gives the same answers.
func TestForms(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	commit := up.commit(files)
	up.git("tag", "v0.1.0")
	up.git("tag", "-a", "-m", "x", "v0.2.0")
	base := filepath.Dir(up.dir)
	up.git("clone", "-q", "--bare", up.dir, filepath.Join(base, "bare.git"))
	up.git("worktree", "add", "-q", "--detach", filepath.Join(base, "linked"))
	up.git("bundle", "create", "-q", filepath.Join(base, "a.bundle"), "--all")
	up.git("gc", "-q")
	up.git("clone", "-q", "--mirror", up.dir, filepath.Join(base, "-dash"))
	super := newRepo(t)
	super.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", up.dir, "third party/pgque")

	for name, path := range map[string]string{
		"work tree": up.dir, "its .git": filepath.Join(up.dir, ".git"), "bare": filepath.Join(base, "bare.git"),
		"linked work tree": filepath.Join(base, "linked"), "bundle": filepath.Join(base, "a.bundle"), "dash": filepath.Join(base, "-dash"),
		"submodule": filepath.Join(super.dir, "third party", "pgque"),
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, path)
			tags, err := r.Tags(t.Context())
			want := []gitobject.Tag{{Name: "v0.1.0", Object: commit, Commit: commit}, {Name: "v0.2.0", Object: up.id("v0.2.0"), Commit: commit}}
			if err != nil || !slices.Equal(tags, want) {
				t.Errorf("Tags = %v, %v; want %v", tags, err, want)
			}
			tag, err := r.ResolveTag(t.Context(), "v0.2.0")
			if err != nil || tag != want[1] {
				t.Errorf("ResolveTag = %v, %v; want %v", tag, err, want[1])
			}
			entries, err := r.Entries(t.Context(), commit, []string{"sql/pgque.sql", "devel/sql/pgque.sql", "LICENSE"})
			if err != nil || len(entries) != 2 || entries[0].Path != "sql/pgque.sql" || entries[1].Path != "LICENSE" {
				t.Fatalf("Entries = %v, %v", entries, err)
			}
			data, err := r.Blob(t.Context(), entries[0].ID, 1000)
			if err != nil || string(data) != files["sql/pgque.sql"] {
				t.Errorf("Blob = %q, %v", data, err)
			}
		})
	}
}

// B022: what the ref points at is not always the commit.
func TestResolveTag(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	old := up.commit(files)
	commit := up.commit(map[string]string{"new": "n"})
	up.git("tag", "light", string(commit))
	up.git("tag", "-a", "-m", "x", "annotated", string(commit))
	up.git("tag", "-a", "-m", "x", "nested", "annotated")
	up.git("tag", "-a", "-m", "x", "nested2", "nested")
	up.git("tag", "tree", "HEAD^{tree}")
	up.git("tag", "blob", "HEAD:LICENSE")
	up.git("tag", "-a", "-m", "x", "annotated-tree", "HEAD^{tree}")
	// Names that git could take for something else.
	up.git("tag", "both", string(commit))
	up.git("branch", "both", string(old))
	up.git("branch", "only-a-branch")
	up.git("update-ref", "refs/heads/refs/tags/hidden", string(old))
	up.git("update-ref", "refs/tags/HEAD", string(old))
	up.git("update-ref", "refs/tags/tags/v1", string(commit))
	up.git("tag", "clients/go/v0.2.0")
	up.git("tag", "deadbee")
	up.git("tag", "ü")
	up.git("tag", "a%2Fb")
	up.git("tag", "v0.2.0+b1")

	for _, refs := range []string{"as files", "packed", "moved after packing"} {
		switch refs {
		case "packed":
			up.git("pack-refs", "--all")
		case "moved after packing": // to the same place in the end
			up.git("tag", "-f", "light", string(old))
			up.git("pack-refs", "--all")
			up.git("tag", "-f", "light", string(commit))
		}
		t.Run(refs, func(t *testing.T) {
			r := open(t, up.dir)
			for name, want := range map[string]gitobject.ID{
				"light": commit, "annotated": commit, "nested": commit, "nested2": commit, "both": commit, "HEAD": old, "tags/v1": commit,
				"clients/go/v0.2.0": commit, "deadbee": commit, "ü": commit, "a%2Fb": commit, "v0.2.0+b1": commit,
			} {
				tag, err := r.ResolveTag(t.Context(), name)
				if err != nil || tag.Commit != want || tag.Object != up.id("refs/tags/"+name) || tag.Name != name {
					t.Errorf("ResolveTag(%q) = %+v, %v; want commit %s", name, tag, err, want)
				}
			}
			short := string(commit[:7])
			for name, class := range map[string]fault.Class{
				"tree": fault.Upstream, "blob": fault.Upstream, "annotated-tree": fault.Upstream,
				"only-a-branch": fault.Upstream, "hidden": fault.Upstream, "v1": fault.Upstream, "LIGHT": fault.Upstream, "ligh": fault.Upstream,
				"clients/go": fault.Upstream, "light-1-g" + short: fault.Upstream, string(commit): fault.Upstream, "main": fault.Upstream, "refs/tags/light": fault.Upstream,
				"-rf": fault.Usage, "light^{}": fault.Usage, "../heads/main": fault.Usage, "light\nboth": fault.Usage, "": fault.Usage, "*": fault.Usage,
			} {
				tag, err := r.ResolveTag(t.Context(), name)
				if !fault.Is(err, class) {
					t.Errorf("ResolveTag(%q) = %+v, %v; want class %d", name, tag, err, class)
				}
			}
			tags, err := r.Tags(t.Context())
			if err != nil || len(tags) != 12 {
				t.Errorf("Tags = %d, %v; want the 12 that lead to a commit", len(tags), err)
			}
			_, err = r.ResolveTag(t.Context(), "tree")
			if want := `the tag "tree" in "` + up.dir + `" points at a tree, not at a commit`; err.Error() != want {
				t.Errorf("the error says %q, want %q", err, want)
			}
		})
	}
}

func TestEntriesAreWhatTheTreeHas(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	up.commit(map[string]string{"sql/pgque.sql": "x", "sql.d/a": "y", "tool": "#!"})
	if err := os.Symlink("sql/pgque.sql", filepath.Join(up.dir, "link")); err != nil {
		t.Skip(err)
	}
	if err := os.Symlink("sql", filepath.Join(up.dir, "linkdir")); err != nil {
		t.Fatal(err)
	}
	up.git("add", "-A")
	up.git("update-index", "--chmod=+x", "tool")
	up.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
	up.git("commit", "-q", "-m", "x")
	commit := up.id("HEAD")

	r := open(t, up.dir)
	for path, want := range map[string]string{
		"sql/pgque.sql": gitobject.ModeFile, "tool": gitobject.ModeExecutable, "link": gitobject.ModeSymlink, "sub": gitobject.ModeSubmodule,
		"sql": gitobject.ModeTree, "linkdir/pgque.sql": "", "sub/x": "", "sql/pgque.sql/x": "", "absent": "", "": "", "/sql": "", "sql/": "", "sql//pgque.sql": "", "SQL/pgque.sql": "",
	} {
		entries, err := r.Entries(t.Context(), commit, []string{path})
		switch {
		case err != nil:
			t.Errorf("Entries(%q): %v", path, err)
		case want == "" && len(entries) != 0:
			t.Errorf("Entries(%q) = %v, want nothing", path, entries)
		case want != "" && (len(entries) != 1 || entries[0].Mode != want || entries[0].Size != -1):
			t.Errorf("Entries(%q) = %v, want mode %s", path, entries, want)
		}
	}
	if _, err := r.Entries(t.Context(), up.id("HEAD^{tree}"), nil); !fault.Is(err, fault.Integrity) {
		t.Errorf("Entries of a tree's id: %v, want an integrity failure", err)
	}
	absent := gitobject.ID(strings.Repeat("1", 40))
	if _, err := r.Entries(t.Context(), absent, nil); !fault.Is(err, fault.Upstream) {
		t.Errorf("Entries of an absent commit: %v, want class upstream", err)
	}
	if _, err := r.Entries(t.Context(), "HEAD", nil); !fault.Is(err, fault.Integrity) {
		t.Errorf("Entries of HEAD: %v, want a refused id", err)
	}
}

func TestBlob(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	large := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB, far more than a pipe holds
	up.commit(map[string]string{"large": large, "small": "s", "empty": ""})
	r := open(t, up.dir)
	for _, tt := range []struct {
		path  string
		limit int64
		class fault.Class
	}{
		{"small", 1, 0}, {"small", 0, fault.Upstream}, {"large", 1 << 20, fault.Upstream}, {"small", 1, 0}, {"large", 1 << 22, 0}, {"empty", 0, 0},
	} {
		id := up.id("HEAD:" + tt.path)
		data, err := r.Blob(t.Context(), id, tt.limit)
		if tt.class != 0 {
			if !fault.Is(err, tt.class) {
				t.Errorf("Blob(%s, %d) = %d bytes, %v; want class %d", tt.path, tt.limit, len(data), err, tt.class)
			}
			continue
		}
		if got, _ := gitobject.BlobID(data); err != nil || got != id {
			t.Errorf("Blob(%s, %d) = %d bytes, %v", tt.path, tt.limit, len(data), err)
		}
	}
	if _, err := r.Blob(t.Context(), up.id("HEAD"), 1000); !fault.Is(err, fault.Integrity) {
		t.Errorf("Blob of a commit: %v, want an integrity failure", err)
	}
	if _, err := r.Blob(t.Context(), "x\ny", 1000); !fault.Is(err, fault.Integrity) {
		t.Errorf("Blob of no id: %v, want a refused id", err)
	}
}

// Replace refs show another object under an id; what git stores must count.
func TestReplaceRefsDoNotCount(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	commit := up.commit(files)
	want := up.id("HEAD:sql/pgque.sql")
	evil := up.commit(map[string]string{"sql/pgque.sql": "drop database;"})
	up.git("tag", "v1.0.0", string(commit))
	up.git("replace", string(commit), string(evil))
	up.git("replace", string(want), string(up.id("HEAD:sql/pgque.sql")))
	r := open(t, up.dir)
	tag, err := r.ResolveTag(t.Context(), "v1.0.0")
	if err != nil || tag.Commit != commit {
		t.Fatalf("ResolveTag = %v, %v", tag, err)
	}
	entries, err := r.Entries(t.Context(), commit, []string{"sql/pgque.sql"})
	if err != nil || len(entries) != 1 || entries[0].ID != want {
		t.Fatalf("Entries = %v, %v; want blob %s", entries, err, want)
	}
	if data, err := r.Blob(t.Context(), want, 100); err != nil || string(data) != files["sql/pgque.sql"] {
		t.Errorf("Blob = %q, %v", data, err)
	}
}

// A repository whose objects are not what their ids say, at every level.
func TestDamage(t *testing.T) {
	t.Parallel()
	type victim struct{ name, rev string }
	for _, v := range []victim{{"commit", "HEAD"}, {"root tree", "HEAD^{tree}"}, {"sub tree", "HEAD:sql"}, {"blob", "HEAD:sql/pgque.sql"}, {"tag object", "refs/tags/v1.0.0"}, {"packed tag's object", "refs/tags/v1.0.0"}} {
		for _, how := range []string{"garbage", "another object", "truncated", "gone"} {
			t.Run(v.name+" "+how, func(t *testing.T) {
				t.Parallel()
				up := newRepo(t)
				commit := up.commit(files)
				blob := up.id("HEAD:sql/pgque.sql")
				up.git("tag", "-a", "-m", "x", "v1.0.0")
				file := up.looseFile(up.id(v.rev))
				other := up.looseFile(up.twin(v.rev))
				if v.name == "packed tag's object" { // which is asked for by the tag's name
					up.git("pack-refs", "--all")
				}
				damage(t, file, other, how)

				r := open(t, up.dir)
				_, err := r.ResolveTag(t.Context(), "v1.0.0")
				if err == nil {
					_, err = r.Entries(t.Context(), commit, []string{"sql/pgque.sql"})
				}
				if err == nil {
					_, err = r.Blob(t.Context(), blob, 1000)
				}
				want := fault.Integrity
				if how == "gone" {
					want = fault.Upstream
				}
				if !fault.Is(err, want) {
					t.Errorf("got %v, want class %d", err, want)
				}
			})
		}
	}
}

// twin writes a well-formed object of the same type as rev's with other
// content.
func (r repo) twin(rev string) gitobject.ID {
	r.t.Helper()
	objectType := r.git("cat-file", "-t", rev)
	stdin, err := r.run("", "cat-file", objectType, rev)
	if err != nil {
		r.t.Fatal(err)
	}
	if objectType == "tree" {
		return gitobject.ID(r.git("mktree")) // the empty tree
	}
	id, err := r.run(stdin+"x\n", "hash-object", "-w", "-t", objectType, "--stdin")
	if err != nil {
		r.t.Fatal(id)
	}
	return gitobject.ID(id)
}

func (r repo) looseFile(id gitobject.ID) string {
	return filepath.Join(r.dir, ".git", "objects", string(id[:2]), string(id[2:]))
}

func damage(t *testing.T, file, other, how string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	switch how {
	case "garbage":
		data = bytes.Repeat([]byte{0xff}, len(data))
	case "truncated":
		data = data[:len(data)/2]
	case "another object":
		if data, err = os.ReadFile(other); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if how == "gone" {
		return
	}
	if err := os.WriteFile(file, data, 0o444); err != nil {
		t.Fatal(err)
	}
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	commit := up.commit(files)
	up.git("bundle", "create", "-q", filepath.Join(up.dir, "a.bundle"), "--all")
	temp := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted by SIGINT")
	r, err := gitrepo.Open(ctx, gitrepo.Options{Path: filepath.Join(up.dir, "a.bundle"), TempDir: temp})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(temp); len(left) != 1 {
		t.Fatalf("the bundle is unpacked in %v, want one folder", left)
	}
	cancel(why)
	if _, err := r.Entries(ctx, commit, []string{"LICENSE"}); !errors.Is(err, why) {
		t.Errorf("Entries after cancel: %v, want %v", err, why)
	}
	// Nobody may get to call Close any more: the cancelled context is enough.
	for deadline := time.Now().Add(2 * time.Minute); ; runtime.Gosched() {
		left, _ := os.ReadDir(temp)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", left)
		}
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
	if _, err := gitrepo.Open(ctx, gitrepo.Options{Path: filepath.Join(up.dir, "a.bundle"), TempDir: temp}); !errors.Is(err, why) {
		t.Errorf("Open with a cancelled context: %v, want %v", err, why)
	}
	if left, _ := os.ReadDir(temp); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
