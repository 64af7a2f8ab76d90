package ghclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/internal/fault"
)

// answer is one response, read to its end.
type answer struct {
	url      *url.URL
	status   int
	header   http.Header
	body     []byte
	endKnown bool // the protocol says that the body is whole
}

func (a *answer) isRedirect() bool {
	switch a.status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

func (a *answer) contentType() string {
	t, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || len(t) > 60 {
		return "no content type"
	}
	return t
}

// isHTML looks at the bytes as well: a proxy's page may claim to be anything.
func (a *answer) isHTML() bool {
	start := bytes.ToLower(bytes.TrimSpace(a.body[:min(len(a.body), 512)]))
	return bytes.HasPrefix(start, []byte("<!doctype html")) || bytes.HasPrefix(start, []byte("<html"))
}

// message is what GitHub says in a refusal.
func (a *answer) message() (text, documentation string) {
	var m struct {
		Message          string `json:"message"`
		DocumentationURL string `json:"documentation_url"`
	}
	if json.Unmarshal(a.body, &m) != nil {
		return "", ""
	}
	return m.Message, m.DocumentationURL
}

// failure is why a request did not bring what it should.
type failure struct {
	err          *fault.Error
	temporary    bool          // it may go away by itself
	wait         time.Duration // how long GitHub asks to wait; 0: it doesn't say
	stale        bool          // a cache in between answered for GitHub
	tokenRefused bool          // the token, not what was asked for
}

// fail is a failure that no repetition mends.
func fail(format string, args ...any) *failure {
	return &failure{err: fault.New(fault.Upstream, format, args...)}
}

// passing is a failure that may go away by itself.
func passing(format string, args ...any) *failure {
	f := fail(format, args...)
	f.temporary = true
	return f
}

func (f *failure) hint(format string, args ...any) *failure {
	f.err.Hint(format, args...)
	return f
}

// after reports both answers: f, which came without the token, and the one
// that refused the token.
func (f *failure) after(refused *failure) *failure {
	both := *f.err
	both.Err = nil // a 404 to an anonymous reader doesn't say that there is nothing
	both.Text = fmt.Sprintf("%s; and without a token: %s", refused.err.Text, f.err.Text)
	both.Hints = append(append([]string{}, refused.err.Hints...), f.err.Hints...)
	return &failure{err: &both}
}

// statusError is the cause of a failure that a status code stands for.
type statusError struct{ code int }

func (e statusError) Error() string { return "status " + strconv.Itoa(e.code) }

// hasStatus reports whether err comes from an answer with one of the codes.
func hasStatus(err error, codes ...int) bool {
	var s statusError
	if !errors.As(err, &s) {
		return false
	}
	for _, code := range codes {
		if s.code == code {
			return true
		}
	}
	return false
}

// judge says what is wrong with an answer, or nil.
func (t *transport) judge(req *http.Request, a *answer, withToken bool) *failure {
	f := t.judgeStatus(a, withToken)
	switch {
	case f != nil:
		f.err.Err = statusError{a.status}
		return f
	case callOf(req.Context()).check != nil:
		return callOf(req.Context()).check(a)
	}
	return t.checkJSON(a)
}

func (t *transport) judgeStatus(a *answer, withToken bool) *failure {
	host := t.base.Host
	switch {
	case a.status == http.StatusOK:
		return nil
	case a.status == http.StatusNotModified:
		f := passing("%s answered 304 to a question without conditions (a cache in between?)", host)
		f.stale = true
		return f
	case a.status == http.StatusUnauthorized:
		return t.unauthorized(a, withToken)
	case a.status == http.StatusForbidden || a.status == http.StatusTooManyRequests:
		return t.forbidden(a, withToken)
	case a.status == http.StatusProxyAuthRequired:
		return proxyWantsLogin("")
	case a.status >= 500:
		f := passing("%s answered %s", host, t.says(a))
		f.wait, _ = retryAfter(a.header, t.now())
		return f
	}
	return fail("%s answered %s", host, t.says(a))
}

// checkJSON makes sure that there is a whole JSON object or array. Whether it
// is the right one, the caller sees at its fields.
func (t *transport) checkJSON(a *answer) *failure {
	body := bytes.TrimSpace(a.body)
	switch {
	case len(body) == 0:
		return passing("expected JSON from %s, got an empty answer", t.base.Host)
	case body[0] != '{' && body[0] != '[':
		return fail("expected JSON from %s, got %s%s: %q", t.base.Host, t.show(a.contentType()), t.suspect(a), t.excerpt(a.body)).
			hint("look at what stands between here and %s: a proxy, or a network that wants a login", t.base.Host)
	case !json.Valid(body):
		return passing("the answer of %s ends within its JSON, after %d bytes", t.base.Host, len(a.body))
	}
	return nil
}

func (t *transport) suspect(a *answer) string {
	if a.isHTML() || a.contentType() == "text/html" {
		return " (proxy or login page?)"
	}
	return ""
}

// says is a refusal as a part of a sentence: the status, and the words.
func (t *transport) says(a *answer) string {
	if text, _ := a.message(); text != "" {
		return fmt.Sprintf("%d %q", a.status, t.show(text))
	}
	if len(bytes.TrimSpace(a.body)) == 0 {
		return fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	}
	return fmt.Sprintf("%d with %s%s: %q", a.status, t.show(a.contentType()), t.suspect(a), t.excerpt(a.body))
}

// excerpt is the start of a body that should have been something else, at most
// 80 bytes of it.
func (t *transport) excerpt(body []byte) string {
	const most = 80
	// The token is looked for before the cut, which could leave a part of it.
	text := t.redact(string(body[:min(len(body), 4096)]), nil)
	var b strings.Builder
	for _, r := range text {
		if unicode.IsSpace(r) {
			r = ' '
		}
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			continue
		}
		if b.Len()+utf8.RuneLen(r) > most {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// show makes what a server said fit for a message.
func (t *transport) show(s string) string {
	const most = 300
	s = t.redact(s, nil)
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// redact removes what must not be shown: the token, and the proxy's login.
func (t *transport) redact(s string, proxy *url.URL) string {
	if t.secret != nil {
		s = t.secret.ReplaceAllLiteralString(s, "***")
	}
	var secrets []string
	if proxy != nil && proxy.User != nil {
		password, _ := proxy.User.Password()
		secrets = append(secrets, proxy.User.String(), password, url.QueryEscape(password))
	}
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "***")
		}
	}
	return s
}
