package ghclient

import (
	"context"
	"net/http"

	"github.com/google/go-github/v62/github"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

const (
	tagsPerPage = 100 // GitHub's most
	maxPeel     = 10  // tags of tags; real ones have one
)

// Tags returns all tags of the repository that lead to a commit, in GitHub's
// order, which is neither by date nor by version. It costs one request for
// each 100. Object is left empty: GitHub's list tells only the commit. A page
// that fails fails the whole list.
func (c *Client) Tags(ctx context.Context) ([]gitobject.Tag, error) {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	var tags []gitobject.Tag
	seen := map[string]bool{} // a tag made meanwhile moves others to the next page
	for page := 1; ; {
		listed, next, err := c.tagsPage(ctx, page)
		if err != nil {
			return nil, err
		}
		for _, t := range listed {
			if !seen[t.Name] {
				seen[t.Name] = true
				tags = append(tags, t)
			}
		}
		if next == 0 {
			return tags, nil
		}
		page = next
	}
}

// tagsPage returns one page and the number of the next, or 0 after the last.
func (c *Client) tagsPage(ctx context.Context, page int) (tags []gitobject.Tag, next int, err error) {
	ctx, owner, name := c.prepare(ctx, nil, maxJSON)
	listed, resp, err := c.api.Repositories.ListTags(ctx, owner, name, &github.ListOptions{Page: page, PerPage: tagsPerPage})
	if err != nil {
		err = c.failed(ctx, err)
		if hasStatus(err, http.StatusNotFound) {
			err = c.noRepository(err)
		}
		return nil, 0, err
	}
	for _, t := range listed {
		if t.GetName() == "" {
			return nil, 0, c.incomplete("a tag without a name")
		}
		commit, err := c.id(t.GetCommit().GetSHA(), "the commit of a tag")
		if err != nil {
			return nil, 0, err
		}
		tags = append(tags, gitobject.Tag{Name: t.GetName(), Commit: commit})
	}
	next, err = c.transport.nextPage(resp.Header.Values("Link"), page)
	return tags, next, err
}

// ResolveTag returns the tag of exactly this name: never a branch, never a
// longer name. It costs one request, and one more for an annotated tag. The
// name is checked by git's rules before any request (fault.Usage).
func (c *Client) ResolveTag(ctx context.Context, name string) (gitobject.Tag, error) {
	if err := gitobject.CheckTagName(name); err != nil {
		return gitobject.Tag{}, err
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	object, err := c.tagRef(ctx, name)
	if err != nil {
		return gitobject.Tag{}, err
	}
	tag := gitobject.Tag{Name: name}
	for range maxPeel {
		id, err := c.id(object.GetSHA(), "the object of a tag")
		if err != nil {
			return gitobject.Tag{}, err
		}
		if tag.Object == "" {
			tag.Object = id
		}
		switch object.GetType() {
		case gitobject.TypeCommit:
			tag.Commit = id
			return tag, nil
		case gitobject.TypeTag:
		case gitobject.TypeTree, gitobject.TypeBlob:
			return gitobject.Tag{}, fault.New(fault.Upstream, "the tag %q in %q points at a %s, not at a commit", name, c.fullName(), object.GetType())
		default:
			return gitobject.Tag{}, c.incomplete("an object of a tag of the type %q", c.transport.show(object.GetType()))
		}
		if object, err = c.tagObject(ctx, id); err != nil {
			return gitobject.Tag{}, err
		}
	}
	return gitobject.Tag{}, fault.New(fault.Upstream, "the tag %q in %q is a tag of a tag, more than %d times", name, c.fullName(), maxPeel)
}

// tagRef returns what refs/tags/NAME points at.
func (c *Client) tagRef(ctx context.Context, tag string) (*github.GitObject, error) {
	ctx, owner, name := c.prepare(ctx, nil, maxJSON)
	ref, _, err := c.api.Git.GetRef(ctx, owner, name, "tags/"+tag)
	if err != nil {
		err = c.failed(ctx, err)
		if hasStatus(err, http.StatusNotFound, http.StatusConflict) { // 409: the repository is empty
			err = fault.New(fault.Upstream, "no tag %q in %q", tag, c.fullName()).Hint("%s", c.list)
		}
		return nil, err
	}
	switch got := ref.GetRef(); got {
	case "refs/tags/" + tag:
		return ref.GetObject(), nil
	case "":
		return nil, c.incomplete("a ref without a name")
	default:
		return nil, fault.New(fault.Integrity, "%s was asked for the tag %q and answered with %q", c.host, tag, c.transport.show(got))
	}
}

// tagObject returns what an annotated tag's object points at.
func (c *Client) tagObject(ctx context.Context, id gitobject.ID) (*github.GitObject, error) {
	ctx, owner, name := c.prepare(ctx, nil, maxJSON)
	tag, _, err := c.api.Git.GetTag(ctx, owner, name, string(id))
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	if err := c.same(tag.GetSHA(), id, "tag object"); err != nil {
		return nil, err
	}
	return tag.GetObject(), nil
}
