package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// maxTagChain is how many tags of tags are followed to a commit.
const maxTagChain = 100

// ref is a name below refs/tags and the object it points at.
type ref struct {
	name   string
	id     gitobject.ID
	object *object // nil where it was not read yet
}

// Tags returns all tags that lead to a commit, in git's order.
func (r *Repository) Tags(ctx context.Context) ([]gitobject.Tag, error) {
	refs, err := r.tagRefs(ctx)
	if err != nil {
		return nil, err
	}
	tags := make([]gitobject.Tag, 0, len(refs))
	for _, ref := range refs {
		commit, err := r.peel(ctx, ref)
		var other notACommit
		if errors.As(err, &other) {
			r.git.log.DebugContext(ctx, "tag left out", "tag", ref.name, "points at a", other.objectType)
			continue
		}
		if err != nil {
			return nil, err
		}
		tags = append(tags, gitobject.Tag{Name: ref.name, Object: ref.id, Commit: commit})
	}
	return tags, nil
}

// ResolveTag returns the tag with exactly this name: never a branch, never an
// abbreviated name. A name that git forbids is fault.Usage; no such tag, or
// one that leads to no commit, fault.Upstream.
func (r *Repository) ResolveTag(ctx context.Context, name string) (gitobject.Tag, error) {
	if err := gitobject.CheckTagName(name); err != nil {
		return gitobject.Tag{}, err
	}
	found, err := r.tagRef(ctx, name)
	if err != nil {
		return gitobject.Tag{}, err
	}
	commit, err := r.peel(ctx, found)
	var other notACommit
	if errors.As(err, &other) {
		return gitobject.Tag{}, fault.New(fault.Upstream, "the tag %q in %q points at a %s, not at a commit", name, r.path, other.objectType)
	}
	return gitobject.Tag{Name: name, Object: found.id, Commit: commit}, err
}

// tagRef finds the ref of a tag. The process that reads objects resolves names
// too, which saves starting another, but it may be asked only for a tag that
// is known to exist: for "refs/tags/NAME" without such a tag, git goes on to a
// branch of that whole name, or reads "…-g1234567" as an abbreviated id. So
// packed-refs, where a clone has its tags, is looked at before; for a tag that
// isn't there (a new one is a file at first, and file names may ignore case)
// git lists them all.
func (r *Repository) tagRef(ctx context.Context, name string) (ref, error) {
	if packed, err := os.ReadFile(filepath.Join(r.gitDir, "packed-refs")); err == nil && bytes.Contains(packed, []byte(" refs/tags/"+name+"\n")) {
		got, err := r.objects.ask(ctx, "refs/tags/"+name, maxHeaderObject)
		if err == nil {
			return ref{name, got.id, &got}, nil
		}
		if !errors.Is(err, errMissing) && !errors.As(err, &tooLarge{}) {
			return ref{}, err
		}
	}
	refs, err := r.tagRefs(ctx)
	if err != nil {
		return ref{}, err
	}
	for _, ref := range refs {
		if ref.name == name {
			return ref, nil
		}
	}
	missing := fault.New(fault.Upstream, "there is no tag %q in %q", name, r.path).
		Hint("pgque-vendor list --from %s", quotedPath(r.path))
	if r.unpacked != "" {
		return ref{}, missing.Hint("if upstream has it by now: git bundle create FILE --all, in a full clone")
	}
	return ref{}, missing.Hint("if upstream has it by now: git -C %s fetch --tags", quotedPath(r.path))
}

// tagRefs lists refs/tags once.
func (r *Repository) tagRefs(ctx context.Context) ([]ref, error) {
	r.refsMu.Lock()
	defer r.refsMu.Unlock()
	if r.refs != nil {
		return r.refs, nil
	}
	out, said, err := r.git.output(ctx, "--git-dir="+r.gitDir, "for-each-ref", "--format=%(objectname) %(refname)", "refs/tags")
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return nil, r.explain(said, err)
	}
	refs := []ref{}
	for line := range strings.Lines(string(out)) {
		id, refname, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if len(id) == 64 {
			return nil, r.sha256Refused()
		}
		checked, err := gitobject.ParseID(id)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref{name: strings.TrimPrefix(refname, "refs/tags/"), id: checked})
	}
	r.refs = refs
	return refs, nil
}

// notACommit says what a tag points at instead of a commit.
type notACommit struct{ objectType string }

func (e notACommit) Error() string { return "it points at a " + e.objectType }

// peel follows a tag, and tags of tags, to the commit.
func (r *Repository) peel(ctx context.Context, ref ref) (gitobject.ID, error) {
	id, got := ref.id, ref.object
	for range maxTagChain {
		if got == nil {
			var err error
			if got, err = r.readTagged(ctx, id, ref.name); err != nil {
				return "", err
			}
		}
		switch got.objectType {
		case gitobject.TypeCommit:
			return id, r.rememberRoot(id, got.content)
		case gitobject.TypeTag:
			next, _, err := gitobject.ParseTag(got.content)
			if err != nil {
				return "", err
			}
			id, got = next, nil
		default:
			return "", notACommit{got.objectType}
		}
	}
	return "", fault.New(fault.Upstream, "the tag %q in %q leads through more than %d tag objects", ref.name, r.path, maxTagChain)
}

// readTagged reads an object on a tag's way to its commit.
func (r *Repository) readTagged(ctx context.Context, id gitobject.ID, tag string) (*object, error) {
	got, err := r.objects.read(ctx, id, maxHeaderObject)
	switch {
	case errors.As(err, &tooLarge{}):
		return nil, notACommit{"blob or tree"} // the pipe is closed: no more is known
	case errors.Is(err, errMissing):
		return nil, r.lacks("the object %s, to which the tag %q leads,", id, tag)
	}
	return &got, err
}

func (r *Repository) sha256Refused() error {
	return fault.New(fault.Usage, "the repository %q uses SHA-256 object ids; only SHA-1 is supported, which GitHub uses", r.path)
}
