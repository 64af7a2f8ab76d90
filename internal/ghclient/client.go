// Package ghclient is GitHub as a source of tags, trees and blobs. It proves
// what it returns: an entry's object id is hashed up to the root tree that the
// commit names, and a blob's bytes have the blob's id. So neither GitHub's
// content hosts nor a proxy in between need trust; GitHub's word is taken only
// for which commit a tag is, and which tree a commit has.
//
// The package knows no disk and no environment. Requests are built and answers
// decoded by go-github; how they travel (retries, redirects, tokens, limits)
// is the transport's business, in transport.go.
package ghclient

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v62/github"
	"github.com/stega/pgque-vendor/internal/fault"
)

// DefaultTimeout is the budget of a client whose Options name none.
const DefaultTimeout = 60 * time.Second

// Options say which repository, where, and as whom.
type Options struct {
	// BaseURL is the API's root. Empty means https://api.github.com/. For an
	// Enterprise server "https://HOST" is enough; /api/v3 is added. A trailing
	// slash makes no difference.
	BaseURL string
	// Repository is "owner/name".
	Repository string
	// Token authenticates. White space and quotes around it, which shells and
	// files leave there, are removed; an empty one is none.
	Token string
	// TokenSource names the variable that the token came from, for messages.
	TokenSource string
	// Timeout is the budget of everything that this client does, waits and
	// retries included, from its first request on. 0 means DefaultTimeout.
	Timeout time.Duration
	// UserAgent is sent with each request; GitHub refuses requests without one.
	UserAgent string
	// Transport makes the connections. nil means a copy of Go's default one,
	// which takes proxies and certificate authorities from where Go takes them.
	Transport *http.Transport
	// List is the command that shows the tags, for a hint; "" is pgque-vendor list.
	List string
	// Log gets a line for each request, never with a secret. nil is silent.
	Log *slog.Logger
	// Notice gets what a person should know although all went well: a refused
	// token, a new name of the repository, a wait. nil is silent.
	Notice func(string)
}

// Client asks one repository on one GitHub. It is safe for concurrent use.
type Client struct {
	api       *github.Client
	transport *transport
	timeout   time.Duration
	host      string // for messages
	list      string // for hints

	budget   sync.Once
	deadline time.Time // set by the first request

	mu      sync.Mutex
	owner   string
	name    string
	renamed rename
}

// isRepositoryName keeps to GitHub's own limits, and to what can't change a
// request's path. Patterns are compiled where they are used: a package variable
// would cost every start of the program a third of a millisecond.
func isRepositoryName(s string) bool {
	ok, _ := regexp.MatchString(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[A-Za-z0-9._-]{1,100}$`, s)
	return ok
}

// New returns a client. It makes no request. The failures are fault.Usage.
func New(o Options) (*Client, error) {
	owner, name, _ := strings.Cut(o.Repository, "/")
	if !isRepositoryName(o.Repository) || name == "." || name == ".." {
		return nil, fault.New(fault.Usage, "%q is no GitHub repository: it must be OWNER/NAME", o.Repository)
	}
	base, err := parseBaseURL(o.BaseURL)
	if err != nil {
		return nil, err
	}
	if o.Timeout < 0 {
		return nil, fault.New(fault.Usage, "the timeout is %s: it must be more than 0", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport.(*http.Transport).Clone()
		o.Transport.MaxIdleConnsPerHost = 8 // blobs are fetched side by side
	}

	c := &Client{timeout: o.Timeout, host: base.Host, list: cmp.Or(o.List, "pgque-vendor list"), owner: owner, name: name}
	c.transport, err = newTransport(base, o)
	if err != nil {
		return nil, err
	}
	c.transport.renamed = c.noteRename
	c.api = github.NewClient(&http.Client{
		Transport:     c.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	c.api.BaseURL = base
	c.api.UserAgent = o.UserAgent
	return c, nil
}

// begin binds a call to the client's budget, which starts with the first one.
func (c *Client) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	c.budget.Do(func() { c.deadline = time.Now().Add(c.timeout) })
	return context.WithDeadlineCause(ctx, c.deadline, errBudget)
}

// repository returns the name to ask for: the new one after a rename, which
// saves each later request a redirect.
func (c *Client) repository() (owner, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner, c.name
}

// fullName is the repository as messages show it.
func (c *Client) fullName() string {
	owner, name := c.repository()
	return owner + "/" + name
}

// parseBaseURL returns the API's root, ending in "/".
func parseBaseURL(s string) (*url.URL, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		s = "https://api.github.com/"
	}
	u, err := url.Parse(s)
	if err != nil {
		// The cause would repeat the text, which may hold a password.
		return nil, fault.New(fault.Usage, "the API's URL is no URL")
	}
	switch {
	case u.User != nil:
		return nil, fault.New(fault.Usage, "the API's URL for %q holds a user name or password: a token comes in by its variable", u.Host)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return nil, fault.New(fault.Usage, "the API's URL is %q: it must be https://HOST", s)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fault.New(fault.Usage, "the API's URL is %q: it takes no query", s)
	}
	u.Host = strings.ToLower(u.Host)
	path := strings.TrimRight(u.Path, "/")
	switch host := u.Hostname(); {
	case host == "github.com" || host == "www.github.com":
		u.Host, path = "api.github.com", "" // what a person copies from the browser
	case host == "api.github.com" || isLoopback(host):
	case strings.HasSuffix(host, ".ghe.com"):
		if !strings.HasPrefix(host, "api.") {
			u.Host = "api." + u.Host
		}
	case path == "":
		path = enterprisePath
	}
	u.Path, u.RawPath = path+"/", ""
	return u, nil
}

// enterprisePath is where a GitHub Enterprise Server has its API.
const enterprisePath = "/api/v3"
