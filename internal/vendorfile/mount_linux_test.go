package vendorfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"golang.org/x/sys/unix"
)

func mount(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		t.Skipf("mounting needs root and its rights: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(target, unix.MNT_DETACH) })
}

// B064: a single file that is mounted over can't be replaced. It is seen
// before anything is written, and nothing is left behind.
func TestMountedFile(t *testing.T) {
	old, next := contents("0.1.0"), nextFiles()
	source := sourceOf(t, "v0.2.0", next)
	for _, name := range []string{SQLName, SourceName} {
		t.Run(name, func(t *testing.T) {
			dir := vendored(t, "v0.1.0", old)
			before := tree(t, dir)
			path := filepath.Join(dir, name)
			mount(t, path, path, "", unix.MS_BIND, "")
			want := fmt.Sprintf("%q is a mount point and can't be replaced; mount the directory instead of the file", path)
			if err := CheckWritable(dir); !fault.Is(err, fault.Usage) || err.Error() != want {
				t.Errorf("CheckWritable: %v", err)
			}
			s, err := Begin(dir, "pgque-vendor update v0.2.0")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Commit(next, source); !fault.Is(err, fault.Usage) || err.Error() != want {
				t.Errorf("Commit: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if got := tree(t, dir); !reflect.DeepEqual(got, before) {
				t.Errorf("the folder changed to %v", got)
			}
		})
	}
}

// The same where the kernel does not tell, so that the rename is the first to
// know: the files that were renamed before it are put back.
func TestMountedFileOnAnOldKernel(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	before := tree(t, dir)
	s := realSeams()
	s.before = func(step, name string) error {
		if step == "rename once" && name == SourceName {
			return &os.LinkError{Op: "renameat", Old: "x", New: name, Err: unix.EBUSY}
		}
		return nil
	}
	err := runUpdate(dir, "v0.2.0", nextFiles(), sourceOf(t, "v0.2.0", nextFiles()), s)
	if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "is a mount point") {
		t.Errorf("got %v", err)
	}
	if got := tree(t, dir); !reflect.DeepEqual(got, before) {
		t.Errorf("the folder changed to %v", got)
	}
}

// A mounted folder is fine.
func TestMountedFolder(t *testing.T) {
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	mount(t, dir, dir, "", unix.MS_BIND, "")
	if err := CheckWritable(dir); err != nil {
		t.Error(err)
	}
	mustWrite(t, dir, nextFiles(), sourceOf(t, "v0.2.0", nextFiles()))
}

// A disk that is really full, at every page of free space: the old files stay,
// and with space the same update works.
func TestFullDisk(t *testing.T) {
	top := t.TempDir()
	mount(t, "tmpfs", top, "tmpfs", 0, "size=1m")
	old, next := contents("0.1.0"), nextFiles()
	next[SQLName] = []byte(strings.Repeat("select 'a long line, so that the file needs a few pages of the disk';\n", 300))
	source := sourceOf(t, "v0.2.0", next)
	dir := filepath.Join(top, "vendor", "pgque")
	filler := filepath.Join(top, "filler")
	failed, worked := 0, 0
	for free := 0; free < 40; free++ {
		os.RemoveAll(filepath.Join(top, "vendor"))
		mustWrite(t, dir, old, sourceOf(t, "v0.1.0", old))
		fillDisk(t, filler, free*os.Getpagesize())
		err := runUpdate(dir, "v0.2.0", next, source, realSeams())
		want := treeOf(old, sourceOf(t, "v0.1.0", old))
		if err == nil {
			want = treeOf(next, source)
			worked++
		} else {
			failed++
			if !errors.Is(err, unix.ENOSPC) || !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "no space left on device") {
				t.Errorf("%d pages free: %v", free, err)
			}
		}
		if got := tree(t, dir); !reflect.DeepEqual(got, want) {
			t.Errorf("%d pages free, %v: %s", free, err, summary(mustCheck(t, dir)))
		}
		os.Remove(filler)
		if err := runUpdate(dir, "v0.2.0", next, source, realSeams()); err != nil || !mustCheck(t, dir).Clean() {
			t.Errorf("%d pages free: with space it says %v", free, err)
		}
	}
	if failed < 5 || worked == 0 {
		t.Errorf("%d runs failed and %d worked: the disk was not full at each step", failed, worked)
	}
}

// fillDisk takes all space but so many bytes.
func fillDisk(t *testing.T, path string, free int) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		t.Fatal(err)
	}
	n := int64(st.Bavail)*st.Bsize - int64(free)
	if err := os.WriteFile(path, make([]byte, max(n, 0)), 0o644); err != nil {
		t.Fatal(err)
	}
}
