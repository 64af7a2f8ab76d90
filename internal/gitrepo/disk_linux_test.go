package gitrepo_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitrepo"
	"golang.org/x/sys/unix"
)

// A disk that is full is the machine's trouble, and not a damaged bundle's.
func TestBundleOnAFullDisk(t *testing.T) {
	t.Parallel()
	up := newRepo(t)
	noise := make([]byte, 1<<20) // nothing compresses it
	_, _ = rand.Read(noise)
	up.commit(map[string]string{"noise": string(noise)})
	up.git("tag", "v1.0.0")
	bundle := filepath.Join(up.dir, "a.bundle")
	up.git("bundle", "create", "-q", bundle, "--tags")
	temp := t.TempDir()
	if err := unix.Mount("tmpfs", temp, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting needs root and its rights: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(temp, unix.MNT_DETACH) })
	_, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: bundle, TempDir: temp})
	assertHint(t, err, fault.Usage, "TMPDIR")
	if err != nil && !strings.Contains(err.Error(), "No space left on device") {
		t.Errorf("Open: %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestMain lets a test be git: one that says what SAID holds, and gives up.
func TestMain(m *testing.M) {
	if said := os.Getenv("SAID"); said != "" {
		os.Stderr.WriteString(said)
		os.Exit(128)
	}
	os.Exit(m.Run())
}

// What git says when the machine, and not the data, is why it gave up.
func TestLocalTrouble(t *testing.T) {
	t.Parallel()
	git, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{
		"fatal: write error: No space left on device\nerror: index-pack died\n",
		"fatal: sha1 file '<stdin>' write error. Out of diskspace\n",
		"error: file write error: Disk quota exceeded\nfatal: index-pack failed\n",
		"error: index-pack died of signal 9\n",
		"fatal: Out of memory, malloc failed (tried to allocate 8192 bytes)\nerror: index-pack died\n",
		"error: unable to open loose object 3f: Permission denied\nfatal: unable to read 3f\n",
	} {
		bundle := filepath.Join(t.TempDir(), "x.bundle")
		if err := os.WriteFile(bundle, []byte("# v2 git bundle\n\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		env := append(os.Environ(), "SAID="+said)
		if _, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: bundle, Git: git, Env: env, TempDir: t.TempDir()}); !fault.Is(err, fault.Usage) {
			t.Errorf("a bundle, %q: %v", said, err)
		}
		up := newRepo(t)
		r, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: up.dir, Git: git, Env: env})
		if err == nil {
			_, err = r.Tags(t.Context())
			r.Close()
		}
		var f *fault.Error
		if !errors.As(err, &f) || f.Class != fault.Usage || strings.Contains(strings.Join(f.Hints, " "), "fsck") {
			t.Errorf("a repository, %q: %v", said, err)
		}
	}
}
