package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// Entries returns what a commit has at each of the paths, in their order;
// paths that it doesn't have are left out. A symbolic link or a submodule
// comes back as what it is and is not followed. Size is -1: a tree doesn't
// say. The commit and each tree on the way are hashed again, so a returned id
// is proven to belong to the commit.
func (r *Repository) Entries(ctx context.Context, commit gitobject.ID, paths []string) ([]gitobject.Entry, error) {
	root, err := r.rootTree(ctx, commit)
	if err != nil {
		return nil, err
	}
	var entries []gitobject.Entry
	for _, path := range paths {
		entry, found, err := r.lookUp(ctx, root, path)
		if err != nil {
			return nil, err
		}
		if found {
			entries = append(entries, gitobject.Entry{Path: path, Mode: entry.Mode, ID: entry.ID, Size: -1})
		}
	}
	return entries, nil
}

// Blob returns a file's bytes, which are proven to be the id's. One of more
// than limit bytes is not read (fault.Upstream, with gitobject.TooLarge).
func (r *Repository) Blob(ctx context.Context, id gitobject.ID, limit int64) ([]byte, error) {
	got, err := r.objects.read(ctx, id, limit)
	var large tooLarge
	switch {
	case errors.As(err, &large):
		return nil, fault.New(fault.Upstream, "the blob %s is too large: %w", id, gitobject.TooLarge{Size: large.size, Limit: limit})
	case errors.Is(err, errMissing):
		return nil, r.lacks("the object %s, which the commit needs,", id)
	case err != nil:
		return nil, err
	case got.objectType != gitobject.TypeBlob:
		return nil, fault.New(fault.Integrity, "the object %s in %q is a %s, not a blob", id, r.path, got.objectType)
	}
	return got.content, nil
}

// rootTree returns the tree that a commit names.
func (r *Repository) rootTree(ctx context.Context, commit gitobject.ID) (gitobject.ID, error) {
	r.mu.Lock()
	root, known := r.roots[commit]
	r.mu.Unlock()
	if known {
		return root, nil
	}
	got, err := r.objects.read(ctx, commit, maxHeaderObject)
	switch {
	case errors.Is(err, errMissing):
		return "", r.lacks("the commit %s", commit)
	case errors.As(err, &tooLarge{}):
		return "", fault.New(fault.Integrity, "the object %s in %q is no commit: it is too large", commit, r.path)
	case err != nil:
		return "", err
	case got.objectType != gitobject.TypeCommit:
		return "", fault.New(fault.Integrity, "the object %s in %q is a %s, not a commit", commit, r.path, got.objectType)
	}
	if err := r.rememberRoot(commit, got.content); err != nil {
		return "", err
	}
	return r.rootTree(ctx, commit)
}

func (r *Repository) rememberRoot(commit gitobject.ID, raw []byte) error {
	root, err := gitobject.ParseCommit(raw)
	if err != nil {
		return fault.New(fault.Integrity, "the commit %s in %q: %s", commit, r.path, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roots[commit] = root
	return nil
}

// lookUp walks from a root tree down to a path.
func (r *Repository) lookUp(ctx context.Context, tree gitobject.ID, path string) (gitobject.TreeEntry, bool, error) {
	for {
		name, rest, deeper := strings.Cut(path, "/")
		entry, found, err := r.child(ctx, tree, name)
		if err != nil || !found || !deeper {
			return entry, found, err
		}
		if entry.Mode != gitobject.ModeTree {
			return gitobject.TreeEntry{}, false, nil
		}
		tree, path = entry.ID, rest
	}
}

func (r *Repository) child(ctx context.Context, tree gitobject.ID, name string) (gitobject.TreeEntry, bool, error) {
	r.mu.Lock()
	entries, known := r.trees[tree]
	r.mu.Unlock()
	if !known {
		var err error
		if entries, err = r.readTree(ctx, tree); err != nil {
			return gitobject.TreeEntry{}, false, err
		}
		r.mu.Lock()
		r.trees[tree] = entries
		r.mu.Unlock()
	}
	for _, e := range entries {
		if e.Name == name {
			return e, true, nil
		}
	}
	return gitobject.TreeEntry{}, false, nil
}

func (r *Repository) readTree(ctx context.Context, id gitobject.ID) ([]gitobject.TreeEntry, error) {
	got, err := r.objects.read(ctx, id, maxTree)
	switch {
	case errors.Is(err, errMissing):
		return nil, r.lacks("the tree %s, which the commit needs,", id)
	case errors.As(err, &tooLarge{}):
		return nil, fault.New(fault.Integrity, "the tree %s in %q is larger than %d bytes", id, r.path, maxTree)
	case err != nil:
		return nil, err
	case got.objectType != gitobject.TypeTree:
		return nil, fault.New(fault.Integrity, "the object %s in %q is a %s, not a tree", id, r.path, got.objectType)
	}
	entries, err := gitobject.ParseTree(got.content)
	if err != nil {
		return nil, fault.New(fault.Integrity, "the tree %s in %q: %s", id, r.path, err)
	}
	return entries, nil
}

// lacks is the failure for something that the repository doesn't have.
func (r *Repository) lacks(format string, args ...any) error {
	e := fault.New(fault.Upstream, "%s is not in the repository %q", fmt.Sprintf(format, args...), r.path)
	at := quotedPath(r.path)
	switch {
	case r.unpacked != "":
		return e.Hint("git bundle create FILE --all, in a full clone")
	case isFile(filepath.Join(r.gitDir, "shallow")):
		return e.Hint("git -C %s fetch --unshallow --tags", at)
	}
	return e.Hint("git -C %s fetch --tags", at).
		Hint("where that does not help: use a full clone, since a partial one (--filter) is never completed from the network")
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
