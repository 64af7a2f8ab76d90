package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/sqltext"
	"github.com/stega/pgque-vendor/internal/vendorfile"
	"golang.org/x/sync/errgroup"
)

// target is what a commit upstream holds for the vendored folder.
type target struct {
	tag     gitobject.Tag
	sqlPath string
	entries map[string]gitobject.Entry // by the name in the folder
	devel   gitobject.ID               // the blob at develSQLPath, "" where there is none
}

// vendoredNames are the files of the folder, in the order of every output.
var vendoredNames = []string{vendorfile.LicenseName, vendorfile.NoticeName, vendorfile.SQLName}

// upstreamPath is where a vendored file lies upstream.
func upstreamPath(name, sqlPath string) string {
	if name == vendorfile.SQLName {
		return sqlPath
	}
	return name
}

// lookUpTarget asks upstream which blobs the tag's commit holds. From here on
// nothing names the tag any more: it can move, a commit can't.
func lookUpTarget(ctx context.Context, up upstream, tag gitobject.Tag, sqlPath string) (*target, error) {
	paths := []string{develSQLPath}
	for _, name := range vendoredNames {
		paths = append(paths, upstreamPath(name, sqlPath))
	}
	entries, err := up.Entries(ctx, tag.Commit, paths)
	if err != nil {
		return nil, err
	}
	t := &target{tag: tag, sqlPath: sqlPath, entries: map[string]gitobject.Entry{}}
	for _, e := range entries {
		if e.Path == develSQLPath {
			t.devel = e.ID
		}
		for _, name := range vendoredNames {
			if e.Path == upstreamPath(name, sqlPath) {
				t.entries[name] = e
			}
		}
	}
	for _, name := range vendoredNames {
		if err := t.check(name); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// check refuses what must not become a file of the folder.
func (t *target) check(name string) error {
	path := upstreamPath(name, t.sqlPath)
	e, ok := t.entries[name]
	if !ok {
		err := fault.New(fault.Upstream, "%s (%s) has no file %q", t.tag.Name, shortID(t.tag.Commit), path)
		switch {
		case name != vendorfile.SQLName:
		case path != defaultSQLPath:
			err.Hint("PgQue keeps its SQL at --sql-path %s", defaultSQLPath)
		case t.devel != "":
			err.Hint("this tag has it at --sql-path %s", develSQLPath)
		}
		return err
	}
	switch e.Mode {
	case gitobject.ModeFile, gitobject.ModeExecutable:
	case gitobject.ModeSymlink:
		return notRegular(t, path, "a symbolic link")
	case gitobject.ModeTree:
		return notRegular(t, path, "a directory")
	case gitobject.ModeSubmodule:
		return notRegular(t, path, "a submodule")
	default:
		return notRegular(t, path, "an entry of mode "+e.Mode)
	}
	if limit := vendorfile.SizeLimit(name); e.Size > limit {
		return overSize(t, path, e.Size, limit)
	}
	return nil
}

func overSize(t *target, path string, size, limit int64) error {
	return fault.New(fault.Upstream, "%q at %s has %s bytes; at most %s are taken", path, t.tag.Name, thousands(size), thousands(limit))
}

func notRegular(t *target, path, what string) error {
	return fault.New(fault.Upstream, "%q at %s is not a regular file: it is %s", path, t.tag.Name, what)
}

// fetchTarget returns the target's files: from have where the bytes are there
// already (have is by blob id), else from upstream, all at once.
func fetchTarget(ctx context.Context, up upstream, t *target, have map[gitobject.ID][]byte) (map[string][]byte, error) {
	contents := make([][]byte, len(vendoredNames))
	group, ctx := errgroup.WithContext(ctx)
	for i, name := range vendoredNames {
		id := t.entries[name].ID
		if data, ok := have[id]; ok {
			contents[i] = data
			continue
		}
		group.Go(func() error {
			data, err := up.Blob(ctx, id, vendorfile.SizeLimit(name))
			var large gitobject.TooLarge
			if errors.As(err, &large) { // git's trees do not tell a size
				return overSize(t, upstreamPath(name, t.sqlPath), large.Size, large.Limit)
			}
			contents[i] = data
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for i, name := range vendoredNames {
		if err := checkContent(t.tag.Name, upstreamPath(name, t.sqlPath), contents[i]); err != nil {
			return nil, err
		}
		files[name] = contents[i]
	}
	return files, nil
}

// checkContent refuses bytes that are upstream's, proved, and yet not what
// they should be.
func checkContent(tag, path string, data []byte) error {
	switch {
	case len(data) == 0:
		return fault.New(fault.Upstream, "%q at %s is empty", path, tag)
	case bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/")):
		return fault.New(fault.Upstream, "%q at %s is stored in Git LFS: git has only a pointer to it", path, tag)
	}
	return nil
}

// source describes files as SOURCE.json does.
func (t *target) source(repository string, repositoryID int64, files map[string][]byte) *vendorfile.Source {
	src := &vendorfile.Source{
		Repository:   repository,
		RepositoryID: repositoryID,
		Tag:          t.tag.Name,
		Commit:       string(t.tag.Commit),
		SQLVersion:   sqltext.Version(files[vendorfile.SQLName]),
		Files:        map[string]vendorfile.File{},
	}
	for name, data := range files {
		sum := sha256.Sum256(data)
		src.Files[name] = vendorfile.File{
			Path:    upstreamPath(name, t.sqlPath),
			Size:    int64(len(data)),
			SHA256:  hex.EncodeToString(sum[:]),
			GitBlob: string(t.entries[name].ID),
		}
	}
	return src
}
