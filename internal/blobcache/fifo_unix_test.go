//go:build unix

package blobcache

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Opening a named pipe would wait for a writer for ever.
func TestNamedPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := idOf(t, []byte("x"))
	if err := os.Mkdir(filepath.Join(dir, string(id[:2])), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, string(id[:2]), string(id[2:])), 0o644); err != nil {
		t.Skip(err)
	}
	if _, ok := New(dir, nil).Get(id); ok {
		t.Error("got a blob from a pipe")
	}
}
