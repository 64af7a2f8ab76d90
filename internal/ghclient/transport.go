package ghclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"sync"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

const (
	maxTries     = 4
	maxRedirects = 5
	maxJSON      = 64 << 20 // GitHub cuts a tree's listing at 7 MB
	maxRefusal   = 1 << 20

	shortestStall = 10 * time.Second // a server that is slow is not gone
	longestStall  = 30 * time.Second
)

var (
	errBudget  = errors.New("the time is used up")
	errStalled = errors.New("no byte came for too long")
)

// transport carries go-github's requests. It gives back a whole, checked
// answer with status 200, or one failure that a person can read: go-github
// takes an empty 200 for success, follows redirects to other hosts with the
// token, knows no time limit, and sees no rate limit in a 429.
type transport struct {
	base   *url.URL
	http   *http.Transport
	token  string         // empty: ask anonymously
	secret *regexp.Regexp // the token in any case, to be kept out of all output
	source string         // the variable the token came from
	public bool           // a refused token is worth a try without it

	stall     time.Duration // how long a connection may bring nothing
	firstWait time.Duration // before the first retry; doubles from there
	now       func() time.Time
	log       *slog.Logger
	notice    func(string)
	renamed   func(ctx context.Context, to *url.URL) // after a permanent redirect

	mu      sync.Mutex
	refused bool // the token was refused, and is not sent again
}

func newTransport(base *url.URL, o Options) (*transport, error) {
	token, err := cleanToken(o.Token, o.TokenSource)
	if err != nil {
		return nil, err
	}
	t := &transport{
		base:      base,
		http:      o.Transport,
		token:     token,
		source:    o.TokenSource,
		public:    isPublic(base),
		stall:     min(max(o.Timeout/4, shortestStall), longestStall),
		firstWait: 250 * time.Millisecond,
		now:       time.Now,
		log:       o.Log,
		notice:    o.Notice,
	}
	if token != "" {
		t.secret = regexp.MustCompile("(?i)" + regexp.QuoteMeta(token))
	}
	if t.http.OnProxyConnectResponse == nil {
		t.http = t.http.Clone()
		t.http.OnProxyConnectResponse = refusedByProxy
	}
	if t.token != "" && base.Scheme != "https" && !isLoopback(base.Hostname()) {
		t.token = ""
		t.notice("the token" + from(t.source) + " is not sent to " + origin(base) + ": it would travel unencrypted")
	}
	return t, nil
}

// call is what is expected of one request. It travels in the context, since
// go-github's methods have no parameter for it.
type call struct {
	limit int64                    // bytes of the body
	check func(a *answer) *failure // of an answer with status 200; its failures can be retried
	last  *failure                 // of the try before, to be named when the time runs out
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{limit: maxJSON}
}

// RoundTrip sends req as often as it takes, within the context's deadline.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet {
		return nil, fault.New(fault.Upstream, "a %s request: only reading is allowed", req.Method)
	}
	a, f := t.fetch(req)
	if f != nil {
		return nil, f.err
	}
	header := http.Header{}
	// Not the rate limit's headers: go-github would refuse the next request by
	// itself, by its own clock.
	for _, name := range []string{"Content-Type", "Link"} {
		if v := a.header.Values(name); len(v) > 0 {
			header[name] = v
		}
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)), Request: req,
	}, nil
}

// follow sends one request and goes along with redirects on the one origin.
func (t *transport) follow(req *http.Request, withToken bool) (*answer, *failure) {
	for range maxRedirects + 1 {
		a, f := t.exchange(req, withToken)
		if f != nil {
			return nil, f
		}
		if !a.isRedirect() {
			return a, t.judge(req, a, withToken)
		}
		to, f := t.redirect(req, a)
		if f != nil {
			return nil, f
		}
		if a.status == http.StatusMovedPermanently || a.status == http.StatusPermanentRedirect {
			t.renamed(req.Context(), to)
		}
		req = req.Clone(req.Context())
		req.URL, req.Host = to, to.Host
	}
	return nil, fail("%s redirects more than %d times", t.base.Host, maxRedirects)
}

func (t *transport) redirect(req *http.Request, a *answer) (*url.URL, *failure) {
	to, err := req.URL.Parse(a.header.Get("Location"))
	if err != nil || a.header.Get("Location") == "" {
		return nil, fail("%s redirects (status %d) without saying where to", t.base.Host, a.status)
	}
	if !sameOrigin(to, t.base) {
		return nil, fail("%s redirects to %q, which was not followed: only %s is ever contacted", t.base.Host, t.show(origin(to)), origin(t.base)).
			hint("check --api-url and GITHUB_API_URL, and what stands between here and %s", t.base.Host)
	}
	return to, nil
}

// exchange sends one request and reads its answer to the end.
func (t *transport) exchange(req *http.Request, withToken bool) (*answer, *failure) {
	if !sameOrigin(req.URL, t.base) {
		return nil, fail("a request for %q: only %s is ever contacted", origin(req.URL), origin(t.base))
	}
	proxy, f := t.proxyFor(req)
	if f != nil {
		return nil, f
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	stalled := time.AfterFunc(t.stall, func() { cancel(errStalled) })
	defer stalled.Stop()

	out := req.Clone(ctx)
	out.Header.Del("Authorization")
	if withToken {
		out.Header.Set("Authorization", "Bearer "+t.token)
	}
	began := time.Now()
	resp, err := t.http.RoundTrip(out)
	if err != nil {
		t.log.Debug("request failed", "path", t.show(req.URL.Path), "error", t.redact(err.Error(), proxy))
		return nil, t.broken(ctx, err, proxy)
	}
	defer resp.Body.Close()
	a := &answer{
		url:    req.URL,
		status: resp.StatusCode,
		header: resp.Header,
		// Without a length, the end of an HTTP/1 body looks like a lost connection.
		endKnown: resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed || resp.ProtoMajor >= 2,
	}
	limit := callOf(ctx).limit
	if a.status != http.StatusOK {
		limit = max(limit, maxRefusal) // the limit is meant for what was asked for
	}
	body := &steadyReader{r: resp.Body, progress: func() { stalled.Reset(t.stall) }}
	a.body, err = io.ReadAll(io.LimitReader(body, limit+1))
	t.log.Debug("request", "path", t.show(req.URL.Path), "query", t.show(req.URL.RawQuery), "status", a.status, "bytes", len(a.body),
		"token", withToken, "took", time.Since(began).Round(time.Millisecond), "remaining", resp.Header.Get("X-RateLimit-Remaining"))
	if err != nil {
		return nil, t.cut(ctx, a, err, proxy)
	}
	if int64(len(a.body)) > limit {
		return nil, fail("the answer of %s is larger than %d bytes", t.base.Host, limit)
	}
	return a, nil
}

// steadyReader reports each piece that arrives.
type steadyReader struct {
	r        io.Reader
	progress func()
}

func (s *steadyReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 {
		s.progress()
	}
	return n, err
}
