package ghclient

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/google/go-github/v62/github"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"golang.org/x/sync/errgroup"
)

// Entries returns what the paths are in the commit's tree, in the order of
// paths; one that is not there is left out. The listing is hashed up to the
// root tree that the commit names, so a returned ID is proven
// (fault.Integrity where the proof fails); Size is what GitHub says. It costs
// two requests, made at once, and one more for each directory on the way where
// GitHub cuts the listing of a very large tree.
func (c *Client) Entries(ctx context.Context, commit gitobject.ID, paths []string) ([]gitobject.Entry, error) {
	if _, err := gitobject.ParseID(string(commit)); err != nil {
		return nil, err
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	var root gitobject.ID
	var listing []gitobject.Entry
	var truncated bool
	group, both := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		root, err = c.rootTree(both, commit)
		return err
	})
	group.Go(func() (err error) {
		listing, truncated, err = c.tree(both, commit, true)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if truncated {
		return c.walk(ctx, root, paths)
	}
	got, err := gitobject.RecomputeTree(listing)
	if err != nil {
		return nil, fault.New(fault.Integrity, "the tree of commit %s, as %s lists it, is not sound: %w", commit.Short(), c.host, err)
	}
	if got != root {
		return nil, fault.New(fault.Integrity, "commit %s has the tree %s, but the listing of %s hashes to %s", commit.Short(), root, c.host, got)
	}
	return pick(listing, paths), nil
}

func pick(listing []gitobject.Entry, paths []string) []gitobject.Entry {
	byPath := make(map[string]gitobject.Entry, len(listing))
	for _, e := range listing {
		byPath[e.Path] = e
	}
	var found []gitobject.Entry
	for _, p := range paths {
		if e, ok := byPath[p]; ok {
			found = append(found, e)
		}
	}
	return found
}

// walk goes down from the root to each path, one directory at a time, and
// proves each.
func (c *Client) walk(ctx context.Context, root gitobject.ID, paths []string) ([]gitobject.Entry, error) {
	directories := map[gitobject.ID][]gitobject.Entry{}
	var found []gitobject.Entry
	for _, path := range paths {
		at := gitobject.Entry{Mode: gitobject.ModeTree, ID: root}
		present := true
		for name := range strings.SplitSeq(path, "/") {
			if at.Mode != gitobject.ModeTree {
				present = false // a file stands where a directory should
				break
			}
			if _, ok := directories[at.ID]; !ok {
				entries, err := c.directory(ctx, at.ID)
				if err != nil {
					return nil, err
				}
				directories[at.ID] = entries
			}
			below := pick(directories[at.ID], []string{name})
			if present = len(below) > 0; !present {
				break
			}
			at = below[0]
		}
		if present {
			at.Path = path
			found = append(found, at)
		}
	}
	return found, nil
}

// directory returns the entries of one tree object, proven by its id.
func (c *Client) directory(ctx context.Context, id gitobject.ID) ([]gitobject.Entry, error) {
	entries, truncated, err := c.tree(ctx, id, false)
	if err != nil {
		return nil, err
	}
	if truncated {
		return nil, fault.New(fault.Upstream, "the directory %s in %q is too large for %s to list", id.Short(), c.fullName(), c.host).
			Hint("take a clone instead: --from DIR")
	}
	lines := make([]gitobject.TreeEntry, len(entries))
	for i, e := range entries {
		lines[i] = gitobject.TreeEntry{Mode: e.Mode, Name: e.Path, ID: e.ID}
	}
	got, err := gitobject.TreeID(lines)
	if err != nil {
		return nil, fault.New(fault.Integrity, "the directory %s, as %s lists it, is not sound: %w", id.Short(), c.host, err)
	}
	if got != id {
		return nil, fault.New(fault.Integrity, "the directory %s, as %s lists it, hashes to %s", id, c.host, got)
	}
	return entries, nil
}

// rootTree returns the tree that a commit names.
func (c *Client) rootTree(ctx context.Context, commit gitobject.ID) (gitobject.ID, error) {
	ctx, owner, name := c.prepare(ctx, nil, maxJSON)
	got, _, err := c.api.Git.GetCommit(ctx, owner, name, string(commit))
	if err != nil {
		return "", c.noObject(c.failed(ctx, err), "commit", commit)
	}
	if err := c.same(got.GetSHA(), commit, "commit"); err != nil {
		return "", err
	}
	return c.id(got.GetTree().GetSHA(), "the tree of a commit")
}

// tree lists a tree, named by its own id or by a commit's.
func (c *Client) tree(ctx context.Context, id gitobject.ID, recursive bool) (entries []gitobject.Entry, truncated bool, err error) {
	ctx, owner, name := c.prepare(ctx, nil, maxJSON)
	got, _, err := c.api.Git.GetTree(ctx, owner, name, string(id), recursive)
	if err != nil {
		what := "tree"
		if recursive {
			what = "commit"
		}
		return nil, false, c.noObject(c.failed(ctx, err), what, id)
	}
	if got.SHA == nil {
		return nil, false, c.incomplete("a tree without an id")
	}
	if got.GetTruncated() {
		return nil, true, nil
	}
	for _, e := range got.Entries {
		entry, err := c.entry(e)
		if err != nil {
			return nil, false, err
		}
		entries = append(entries, entry)
	}
	return entries, false, nil
}

func (c *Client) entry(e *github.TreeEntry) (gitobject.Entry, error) {
	id, err := c.id(e.GetSHA(), "an entry of a tree")
	if err != nil {
		return gitobject.Entry{}, err
	}
	entry := gitobject.Entry{Path: e.GetPath(), Mode: e.GetMode(), ID: id, Size: -1}
	if e.Size != nil {
		entry.Size = int64(*e.Size)
	}
	return entry, nil
}

// Blob returns the bytes of a blob, which have its id (fault.Integrity where
// they don't). One of more than limit bytes is refused, not cut. Pages of a
// proxy and pointers of Git LFS are named for what they are.
func (c *Client) Blob(ctx context.Context, id gitobject.ID, limit int64) ([]byte, error) {
	if _, err := gitobject.ParseID(string(id)); err != nil {
		return nil, err
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	ctx, owner, name := c.prepare(ctx, func(a *answer) *failure { return c.checkBlob(a, id) }, limit)
	data, _, err := c.api.Git.GetBlobRaw(ctx, owner, name, string(id))
	if err != nil {
		return nil, c.noObject(c.failed(ctx, err), "blob", id)
	}
	return data, nil
}

// checkBlob proves a blob's bytes. Where the answer may have been cut without
// a sign, wrong bytes are worth another try.
func (c *Client) checkBlob(a *answer, id gitobject.ID) *failure {
	got, err := gitobject.BlobID(a.body)
	switch {
	case err != nil:
		return &failure{err: fault.New(fault.Integrity, "blob %s: %w", id, err)}
	case isLFSPointer(a.body):
		return fail("blob %s is a pointer of Git LFS: the file itself is stored elsewhere, and was not fetched", id.Short())
	case got == id:
		return nil
	case a.isHTML():
		return fail("expected the bytes of blob %s from %s, got %s (proxy or login page?)", id.Short(), c.host, c.transport.show(a.contentType())).
			hint("look at what stands between here and %s: a proxy, or a network that wants a login", c.host)
	case len(a.body) == 0:
		return passing("expected the bytes of blob %s from %s, got an empty answer", id.Short(), c.host)
	case !a.endKnown:
		return passing("the answer of %s for blob %s ended early or was changed: %d bytes came, which do not have its id", c.host, id.Short(), len(a.body))
	}
	return &failure{err: fault.New(fault.Integrity, "%s sent %d bytes for blob %s, but they are blob %s", c.host, len(a.body), id, got)}
}

func isLFSPointer(data []byte) bool {
	const longest = 1024 // by the specification of Git LFS
	return len(data) < longest && bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/"))
}

// noObject says which object is missing, where GitHub says only "not found".
func (c *Client) noObject(err error, what string, id gitobject.ID) error {
	if hasStatus(err, http.StatusNotFound, http.StatusConflict, http.StatusUnprocessableEntity) {
		return fault.New(fault.Upstream, "no %s %s in %q", what, id, c.fullName())
	}
	return err
}
