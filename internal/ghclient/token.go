package ghclient

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// cleanToken removes what shells and files leave around a token. What is left
// must fit into a header.
func cleanToken(token, source string) (string, error) {
	token = strings.Trim(strings.TrimSpace(token), `"'`)
	token = strings.TrimSpace(token)
	for _, c := range []byte(token) {
		if c <= ' ' || c >= 0x7f {
			return "", fault.New(fault.Usage, "the token%s holds a character that no token has", from(source))
		}
	}
	return token, nil
}

// from says where a token came from, as a part of a sentence.
func from(source string) string {
	if source == "" {
		return ""
	}
	return " from " + source
}

// fetch tries with the token, and once more without it where GitHub refuses
// the token itself: what is asked for is public as a rule, and a stale token in
// the environment is no reason to fail.
func (t *transport) fetch(req *http.Request) (*answer, *failure) {
	if !t.sendsToken() {
		return t.persist(req, false)
	}
	a, f := t.persist(req, true)
	if f == nil || !f.tokenRefused || !t.public {
		return a, f
	}
	t.dropToken(f)
	a, anonymous := t.persist(req, false)
	if anonymous != nil {
		return nil, anonymous.after(f)
	}
	return a, nil
}

func (t *transport) sendsToken() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token != "" && !t.refused
}

func (t *transport) dropToken(f *failure) {
	t.mu.Lock()
	first := !t.refused
	t.refused = true
	t.mu.Unlock()
	if first {
		t.notice(f.err.Text + "; going on without a token")
	}
}

func (t *transport) unauthorized(a *answer, withToken bool) *failure {
	if !withToken {
		return fail("%s wants a login: it answered %s", t.base.Host, t.says(a)).
			hint("set GITHUB_TOKEN to a token of %s", t.base.Host)
	}
	f := fail("%s refused the token%s: it answered %s", t.base.Host, from(t.source), t.says(a)).
		hint("%s", t.replaceToken())
	f.tokenRefused = true
	return f
}

// refusesToken recognises rules of an organisation that bind the token and
// would not bind an anonymous reader.
func refusesToken(a *answer, message string) bool {
	if a.header.Get("X-GitHub-SSO") != "" {
		return true
	}
	for _, rule := range []string{"SAML enforcement", "OAuth App access restrictions", "IP allow list"} {
		if strings.Contains(message, rule) {
			return true
		}
	}
	return false
}

func (t *transport) notForOrganisation(a *answer) *failure {
	f := fail("%s refused the token%s: it answered %s", t.base.Host, from(t.source), t.says(a)).
		hint("%s", t.replaceToken())
	// "required; url=https://…": the address holds a request's secret; its host does not.
	if _, address, ok := strings.Cut(a.header.Get("X-GitHub-SSO"), "url="); ok {
		if u, err := url.Parse(strings.TrimSpace(address)); err == nil && u.Host != "" {
			f.hint("the organisation asks to authorise the token for single sign-on at %s", t.show(u.Host))
		}
	}
	f.tokenRefused = true
	return f
}

func (t *transport) replaceToken() string {
	if t.source == "" {
		return "use another token, or --no-token"
	}
	return "put a valid token into " + t.source + ", unset it, or use --no-token"
}
