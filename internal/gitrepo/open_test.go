package gitrepo_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitrepo"
)

// What is no repository is said when it is opened, or at the first call.
func TestNoRepository(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	up.commit(files)
	up.git("bundle", "create", "-q", filepath.Join(up.dir, "thin.bundle"), "main")
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tt := range map[string]struct{ path, hint string }{
		"absent":                    {filepath.Join(up.dir, "nowhere"), ""},
		"empty folder":              {t.TempDir(), "git clone"},
		"a folder in a repository":  {filepath.Join(up.dir, "sql"), up.dir},
		"a plain file":              {file("x.sql", "select 1;"), "git bundle create"},
		"an empty file":             {file("x.bundle", ""), "git bundle create"},
		"a bundle's head only":      {file("y.bundle", "# v2 git bundle\n"), ""},
		"a .git file that is wrong": {filepath.Dir(file(".git", "gitdir: /nowhere\n")), ""},
		"a URL":                     {"https://github.com/NikolayS/PgQue", "git clone --bare https://github.com/NikolayS/PgQue pgque.git, then pass --from pgque.git"},
		"a URL of ssh":              {"git@github.com:NikolayS/PgQue.git", "git clone --bare git@github.com:NikolayS/PgQue.git pgque.git"},
		"an empty HEAD":             {filepath.Dir(file("HEAD", "")), ""},
	} {
		r, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: tt.path, TempDir: t.TempDir()})
		if err == nil {
			_, err = r.Tags(t.Context())
			r.Close()
		}
		if !fault.Is(err, fault.Usage) {
			t.Errorf("%s: %v, want a usage failure", name, err)
			continue
		}
		var f *fault.Error
		errors.As(err, &f)
		if !strings.Contains(strings.Join(f.Hints, "\n"), tt.hint) {
			t.Errorf("%s: %v with hints %q, want one with %q", name, err, f.Hints, tt.hint)
		}
	}
}

func TestNoGit(t *testing.T) {
	t.Parallel()
	_, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: t.TempDir(), Git: filepath.Join(t.TempDir(), "git")})
	var f *fault.Error
	if !errors.As(err, &f) || f.Class != fault.Usage || len(f.Hints) != 1 {
		t.Errorf("Open without git: %v", err)
	}
}

func TestSHA256Refused(t *testing.T) {
	t.Parallel()
	up := newRepo(t, "--object-format=sha256")
	up.commit(files)
	up.git("tag", "v1.0.0")
	r := open(t, up.dir)
	if _, err := r.ResolveTag(t.Context(), "v1.0.0"); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("ResolveTag: %v, want SHA-256 refused", err)
	}
	if _, err := r.Entries(t.Context(), up.id("HEAD")[:40], nil); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("Entries by the first 40 digits: %v, want SHA-256 refused", err)
	}
}

// The user's environment and the repository's configuration don't steer git.
func TestEnvironmentIsClean(t *testing.T) {
	t.Parallel()
	other := newRepo(t)
	other.commit(map[string]string{"x": "y"})
	up := newRepo(t)
	up.commit(files)
	up.git("tag", "v1.0.0")
	r, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: up.dir, Env: append(os.Environ(),
		"GIT_DIR="+filepath.Join(other.dir, ".git"), "GIT_OBJECT_DIRECTORY="+t.TempDir(), "GIT_NAMESPACE=x", "GIT_WORK_TREE=/nowhere",
		"GIT_INDEX_FILE=/nowhere", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.bare", "GIT_CONFIG_VALUE_0=maybe", "LC_ALL=de_DE.UTF-8")})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tag, err := r.ResolveTag(t.Context(), "v1.0.0")
	if err != nil || tag.Commit != up.id("HEAD") {
		t.Errorf("ResolveTag = %v, %v", tag, err)
	}
}

// Shallow and partial clones lack objects; nothing is fetched for them, and no
// program that their configuration names is run.
func TestIncompleteClones(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the remote helper is a shell script")
	}
	up := newRepo(t)
	first := up.commit(files)
	up.commit(map[string]string{"LICENSE": "new"})
	up.git("tag", "v1.0.0")
	up.git("config", "uploadpack.allowFilter", "true")
	base := t.TempDir()

	shallow := filepath.Join(base, "shallow")
	up.git("-c", "protocol.file.allow=always", "clone", "-q", "--depth=1", "file://"+up.dir, shallow)
	r := open(t, shallow)
	_, err := r.Entries(t.Context(), first, nil)
	assertHint(t, err, fault.Upstream, "fetch --unshallow")

	partial := filepath.Join(base, "partial")
	up.git("-c", "protocol.file.allow=always", "clone", "-q", "--no-checkout", "--filter=blob:none", "file://"+up.dir, partial)
	ran := filepath.Join(base, "ran")
	script := filepath.Join(base, "upload-pack")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+ran+"\nexec git-upload-pack \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := repo{t, partial}
	p.git("config", "remote.origin.uploadpack", script)
	r = open(t, partial)
	tag, err := r.ResolveTag(t.Context(), "v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := r.Entries(t.Context(), tag.Commit, []string{"LICENSE"})
	if err != nil || len(entries) != 1 {
		t.Fatalf("Entries = %v, %v", entries, err)
	}
	_, err = r.Blob(t.Context(), entries[0].ID, 100)
	assertHint(t, err, fault.Upstream, "full clone")
	if _, err := os.Stat(ran); err == nil {
		t.Error("git ran the program that the partial clone's configuration names")
	}
	// The trap is real: plain git does run it.
	p.run("", "cat-file", "blob", string(entries[0].ID))
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("plain git doesn't fetch either, so the test proves nothing: %v", err)
	}
}

func assertHint(t *testing.T, err error, class fault.Class, hint string) {
	t.Helper()
	var f *fault.Error
	if !errors.As(err, &f) || f.Class != class || !strings.Contains(strings.Join(f.Hints, "\n"), hint) {
		t.Errorf("got %#v, want class %d with a hint at %q", err, class, hint)
	}
}

func TestBundles(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	up.commit(files)
	up.git("tag", "v1.0.0")
	up.commit(map[string]string{"LICENSE": strings.Repeat("new\n", 1000)})
	up.git("tag", "-a", "-m", "x", "v2.0.0")
	base := t.TempDir()
	thin := filepath.Join(base, "thin.bundle")
	up.git("bundle", "create", "-q", thin, "v1.0.0..v2.0.0")
	_, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: thin, TempDir: base})
	assertHint(t, err, fault.Usage, "git bundle create FILE --all")

	whole := filepath.Join(base, "whole.bundle")
	up.git("bundle", "create", "-q", whole, "--tags")
	r := open(t, whole)
	if tags, err := r.Tags(t.Context()); err != nil || len(tags) != 2 {
		t.Errorf("Tags = %v, %v", tags, err)
	}

	data, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(base, "damaged.bundle")
	for name, bad := range map[string][]byte{"cut": data[:len(data)-30], "one byte": flip(data, len(data)-60)} {
		if err := os.WriteFile(damaged, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: damaged, TempDir: base}); !fault.Is(err, fault.Integrity) {
			t.Errorf("%s: %v, want an integrity failure", name, err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(base, "pgque-vendor-*"))
	if len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func flip(data []byte, at int) []byte {
	data = append([]byte(nil), data...)
	data[at] ^= 0xff
	return data
}
