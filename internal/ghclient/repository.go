package ghclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// rename is what a redirect told about the repository's new place.
type rename struct {
	seen bool
	id   int64
	name string // "owner/name"; empty when GitHub did not say
}

// Renamed returns the repository's new name and its id, if GitHub redirected a
// request to it. The name is empty where GitHub told only the id.
func (c *Client) Renamed() (name string, id int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renamed.name, c.renamed.id, c.renamed.seen
}

// RepositoryID returns the number that stays the repository's own when its
// name changes, or is taken by another. It costs a request, unless a redirect
// told it already.
func (c *Client) RepositoryID(ctx context.Context) (int64, error) {
	if _, id, ok := c.Renamed(); ok && id != 0 {
		return id, nil
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	ctx, owner, name := c.prepare(ctx, nil, maxJSON)
	repo, _, err := c.api.Repositories.Get(ctx, owner, name)
	if err != nil {
		err = c.failed(ctx, err)
		if hasStatus(err, http.StatusNotFound) {
			err = c.noRepository(err)
		}
		return 0, err
	}
	if repo.GetID() <= 0 {
		return 0, c.incomplete("a repository without an id")
	}
	return repo.GetID(), nil
}

// noteRename learns the new name from a permanent redirect, says it once, and
// asks under it from then on. GitHub redirects to the id, so the name costs
// one request; where that fails, the old name goes on working.
func (c *Client) noteRename(ctx context.Context, to *url.URL) {
	repositoryByID := regexp.MustCompile(`/repositories/([0-9]{1,18})(/|$)`)
	repositoryByName := regexp.MustCompile(`/repos/([^/]+/[^/]+)(/|$)`)
	found := rename{seen: true}
	if m := repositoryByID.FindStringSubmatch(to.Path); m != nil {
		found.id, _ = strconv.ParseInt(m[1], 10, 64)
	} else if m := repositoryByName.FindStringSubmatch(to.Path); m != nil && !strings.EqualFold(m[1], c.fullName()) {
		found.name = m[1]
	} else {
		return
	}
	c.mu.Lock()
	known := c.renamed.seen
	if !known {
		c.renamed = found
	}
	c.mu.Unlock()
	if known {
		return
	}
	if found.id != 0 {
		found.name = c.nameOf(ctx, found.id)
	}
	old := c.fullName()
	if owner, name, ok := strings.Cut(found.name, "/"); ok && isRepositoryName(found.name) {
		c.mu.Lock()
		c.renamed.name, c.owner, c.name = found.name, owner, name
		c.mu.Unlock()
		c.transport.notice(fmt.Sprintf("the repository %q is %q now", old, found.name))
		return
	}
	c.transport.notice(fmt.Sprintf("the repository %q has a new name; its id is %d", old, found.id))
}

// nameOf asks for a repository's name by its id, once, and returns "" where
// that fails.
func (c *Client) nameOf(ctx context.Context, id int64) string {
	ctx = context.WithValue(ctx, callKey{}, nil) // not the limit of the request that was redirected
	to := c.transport.base.JoinPath("repositories", strconv.FormatInt(id, 10))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return ""
	}
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("User-Agent", c.api.UserAgent)
	a, f := c.transport.exchange(req, c.transport.sendsToken())
	if f != nil || a.status != http.StatusOK {
		return ""
	}
	var repo struct {
		FullName string `json:"full_name"`
	}
	if json.Unmarshal(a.body, &repo) != nil {
		return ""
	}
	return repo.FullName
}

// prepare sets what a request expects, and returns whom to ask for.
func (c *Client) prepare(ctx context.Context, check func(*answer) *failure, limit int64) (_ context.Context, owner, name string) {
	owner, name = c.repository()
	return context.WithValue(ctx, callKey{}, &call{check: check, limit: limit}), owner, name
}

// failed turns what go-github returned into what a person reads.
func (c *Client) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return cause // a signal, or another request's failure
		}
		return c.outOfTime(callOf(ctx).last)
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return fault.New(fault.Upstream, "%s answered with JSON of another shape than GitHub's: %s", c.host, c.transport.show(err.Error()))
}

func (c *Client) outOfTime(last *failure) error {
	text := fmt.Sprintf("%s gave no complete answer within %s", c.host, c.timeout)
	if last != nil {
		text += ": " + last.err.Text
	}
	return fault.New(fault.Upstream, "%s", text).Hint("try again, or give it more time with --timeout")
}

func (c *Client) noRepository(err error) error {
	f := fault.New(fault.Upstream, "no repository %q at %s, or none that may be seen: %w", c.fullName(), c.host, err)
	return f.Hint("check --repo; a private repository needs a token in GITHUB_TOKEN")
}

// incomplete says that an answer was JSON, but lacks what it must have.
func (c *Client) incomplete(format string, args ...any) error {
	return fault.New(fault.Upstream, "%s answered with %s", c.host, fmt.Sprintf(format, args...))
}

// id reads an object id from an answer.
func (c *Client) id(s, what string) (gitobject.ID, error) {
	id, err := gitobject.ParseID(s)
	if err != nil {
		return "", c.incomplete("no whole object id for %s: %q", what, c.transport.show(s))
	}
	return id, nil
}

// same checks that the answer is about the object that was asked for.
func (c *Client) same(got string, want gitobject.ID, what string) error {
	id, err := c.id(got, "the "+what)
	if err != nil {
		return err
	}
	if id != want {
		return fault.New(fault.Integrity, "%s was asked for the %s %s and answered with %s", c.host, what, want, id)
	}
	return nil
}
