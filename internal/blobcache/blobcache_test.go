package blobcache

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stega/pgque-vendor/internal/gitobject"
)

func idOf(t *testing.T, data []byte) gitobject.ID {
	t.Helper()
	id, err := gitobject.BlobID(data)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestPutAndGet(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	c := New(dir, nil)
	for _, data := range [][]byte{[]byte("select 1;\n"), {}, bytes.Repeat([]byte{0, 0xff}, 100_000)} {
		id := idOf(t, data)
		if _, ok := c.Get(id); ok {
			t.Errorf("%d bytes are there before", len(data))
		}
		c.Put(id, data)
		if got, ok := c.Get(id); !ok || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %t; want %d", len(got), ok, len(data))
		}
	}
	if got := files(t, dir); len(got) != 3 {
		t.Errorf("files: %q", got)
	}
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A file that is not the blob any more is no hit, and does not stay.
func TestDamaged(t *testing.T) {
	t.Parallel()
	data := []byte("select 1;\n")
	for name, damage := range map[string][]byte{
		"changed": []byte("select 2;\n"), "cut": data[:4], "empty": {}, "longer": append(bytes.Clone(data), 'x'),
	} {
		dir := t.TempDir()
		c, id := New(dir, nil), idOf(t, data)
		c.Put(id, data)
		path := files(t, dir)[0]
		if err := os.WriteFile(path, damage, 0o644); err != nil {
			t.Fatal(err)
		}
		if got, ok := c.Get(id); ok {
			t.Errorf("%s: got %q", name, got)
		}
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
		c.Put(id, data)
		if _, ok := c.Get(id); !ok {
			t.Errorf("%s: not there after the next Put", name)
		}
	}
}

// B024: other users may read the file.
func TestMode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	dir := t.TempDir()
	data := []byte("x")
	New(dir, nil).Put(idOf(t, data), data)
	info, err := os.Stat(files(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o644 {
		t.Errorf("mode %s", info.Mode())
	}
}

// An id comes from a file or a server: it must not lead out of the cache.
func TestIDs(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	c := New(filepath.Join(parent, "cache"), nil)
	for _, id := range []gitobject.ID{"", "a", "../x", gitobject.ID("../" + strings.Repeat("a", 37)), gitobject.ID(strings.Repeat("A", 40))} {
		c.Put(id, []byte("x"))
		if left := files(t, parent); len(left) > 0 {
			t.Errorf("%q: written: %q", id, left)
		}
		if _, ok := c.Get(id); ok {
			t.Errorf("%q is there", id)
		}
	}
}

// A cache that can't be written, or is no directory, is slower and no more.
func TestUnwritable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	data := []byte("x")
	c := New(file, nil)
	c.Put(idOf(t, data), data)
	if _, ok := c.Get(idOf(t, data)); ok {
		t.Error("got a blob from a file")
	}

	dir := t.TempDir()
	c = New(dir, nil)
	id := idOf(t, data)
	// A directory in the place of the file can't be replaced.
	if err := os.MkdirAll(filepath.Join(dir, string(id[:2]), string(id[2:]), "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.Put(id, data)
	if _, ok := c.Get(id); ok {
		t.Error("got a blob from a directory")
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("a temporary file was left: %q", left)
	}
}

func TestAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := bytes.Repeat([]byte("select 1;\n"), 20_000)
	id := idOf(t, data)
	var group sync.WaitGroup
	failures := make(chan string, 100)
	for range 8 {
		group.Go(func() {
			c := New(dir, nil)
			for range 20 {
				c.Put(id, data)
				if got, ok := c.Get(id); !ok || !bytes.Equal(got, data) {
					failures <- fmt.Sprintf("%d bytes, %t", len(got), ok)
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	for f := range failures {
		// Windows refuses to replace a file that another process reads.
		if runtime.GOOS != "windows" {
			t.Error(f)
		}
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
}
