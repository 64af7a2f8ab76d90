// Package blobcache keeps downloaded blobs in a directory, one file each,
// named after the blob's git id. The id is checked on every read, so an entry
// can be missing but never wrong: a damaged one is deleted and counts as
// missing. A cache that can't be written is no failure, only slower.
//
// Nothing is ever evicted: a release of PgQue adds about 300 kB. Whoever wants
// the space back deletes the directory; it may vanish at any time.
package blobcache

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/stega/pgque-vendor/internal/gitobject"
)

// maxSize bounds what is read from a file that something else may have put
// there. Vendored files are capped far below it.
const maxSize = 64 << 20

// Cache is a directory of blobs. Any number of processes may share it.
type Cache struct {
	dir string
	log *slog.Logger
}

// New returns the cache in dir, which is made when the first blob is put.
// A nil log keeps it silent.
func New(dir string, log *slog.Logger) *Cache {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Cache{dir: dir, log: log}
}

// Get returns the blob's bytes, or false when they are not there whole.
func (c *Cache) Get(id gitobject.ID) ([]byte, bool) {
	path, ok := c.path(id)
	if !ok {
		return nil, false
	}
	data, err := readRegular(path)
	if err != nil {
		if !os.IsNotExist(err) {
			c.log.Debug("cache entry not read", "blob", id, "error", err)
		}
		return nil, false
	}
	got, err := gitobject.BlobID(data)
	if err != nil || got != id {
		c.log.Warn("damaged cache entry deleted", "blob", id, "path", path)
		if err := os.Remove(path); err != nil {
			c.log.Debug("damaged cache entry not deleted", "path", path, "error", err)
		}
		return nil, false
	}
	c.log.Debug("blob from the cache", "blob", id, "bytes", len(data))
	return data, true
}

// Put stores the bytes of a blob that the caller has verified. A failure is
// logged and otherwise forgotten: the caller has the bytes.
func (c *Cache) Put(id gitobject.ID, data []byte) {
	path, ok := c.path(id)
	if !ok || len(data) > maxSize {
		return
	}
	if err := writeAtomically(path, data); err != nil {
		c.log.Debug("blob not cached", "blob", id, "error", err)
	}
}

// path spreads the files over 256 directories, as git does. An id that is none
// has no path: it must not become a file name.
func (c *Cache) path(id gitobject.ID) (string, bool) {
	if _, err := gitobject.ParseID(string(id)); err != nil {
		return "", false
	}
	return filepath.Join(c.dir, string(id[:2]), string(id[2:])), true
}

func readRegular(path string) ([]byte, error) {
	// Before opening: opening a named pipe would wait for ever.
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return nil, fmt.Errorf("%q is no regular file of at most %d bytes", path, maxSize)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

// writeAtomically lets a reader see the whole file or none. It does not sync:
// what a power cut leaves behind, Get finds damaged and deletes.
func writeAtomically(path string, data []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after the rename there is nothing of that name
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644) // CreateTemp's 0600 would shut other users out
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
