package ghtest

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Fault is a way to misbehave, and when. Its makers are the functions of this
// file; At, First, After and WithToken say which requests it meets. Without
// them it meets all.
type Fault struct {
	path      string
	first     int // how many requests; 0 is all
	after     int // how many pass before
	withToken bool
	delay     time.Duration
	change    func(*Answer)
}

// At limits the fault to paths with a prefix: of the whole path, or of what
// follows the repository ("git/blobs").
func (f Fault) At(prefix string) Fault { f.path = prefix; return f }

// First limits the fault to the first n requests that it meets.
func (f Fault) First(n int) Fault { f.first = n; return f }

// After lets n requests pass before.
func (f Fault) After(n int) Fault { f.after = n; return f }

// WithToken limits the fault to requests that carry a token.
func (f Fault) WithToken() Fault { f.withToken = true; return f }

// faultFor finds the fault that a request meets, and counts it as used.
func (s *Server) faultFor(r *http.Request, path string) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if !f.matches(r, path) || f.first < 0 {
			continue
		}
		if f.after > 0 {
			f.after--
			continue
		}
		if f.first > 0 {
			if f.first--; f.first == 0 {
				f.first = -1 // used up
			}
		}
		return f
	}
	return nil
}

var repositoryPart = regexp.MustCompile(`^/(repos/[^/]+/[^/]+|repositories/[0-9]+)/?`)

func (f *Fault) matches(r *http.Request, path string) bool {
	if f.withToken && r.Header.Get("Authorization") == "" {
		return false
	}
	return strings.HasPrefix(path, f.path) || strings.HasPrefix(repositoryPart.ReplaceAllString(path, ""), f.path)
}

// Change is a fault of the test's own.
func Change(f func(*Answer)) Fault { return Fault{change: f} }

// Meet answers nobody before n requests are waiting: a client that makes them
// one after another gets an error. Copies with different scopes count together.
func Meet(n int) Fault {
	const patience = 20 * time.Second
	var met atomic.Int32
	all := make(chan struct{})
	return Change(func(a *Answer) {
		if met.Add(1) == int32(n) {
			close(all)
		}
		select {
		case <-all:
		case <-a.Request.Context().Done():
		case <-time.After(patience):
			a.refuse(http.StatusTeapot, fmt.Sprintf("%d requests never came at once", n))
		}
	})
}

// Delay answers rightly, but late.
func Delay(d time.Duration) Fault { return Fault{delay: d} }

func onWire(w wire, cut int) Fault {
	return Change(func(a *Answer) { a.wire, a.cut = w, cut })
}

// Reset resets the connection instead of answering.
func Reset() Fault { return onWire(wireReset, 0) }

// Stall never answers.
func Stall() Fault { return onWire(wireStall, 0) }

// StallBody answers with the first n bytes of the body, and then nothing.
func StallBody(n int) Fault { return onWire(wireStallBody, n) }

// CutLength ends the body after n bytes, with a Content-Length of more.
func CutLength(n int) Fault { return onWire(wireCutLength, n) }

// CutChunked ends a chunked body after n bytes, without the last chunk.
func CutChunked(n int) Fault { return onWire(wireCutChunked, n) }

// CutHTTP10 ends a body that has no length after n bytes.
func CutHTTP10(n int) Fault { return onWire(wireCutHTTP10, n) }

// Gzip compresses the body, rightly.
func Gzip() Fault { return onWire(wireGzip, 0) }

// BrokenGzip compresses the body and spoils the checksum at its end.
func BrokenGzip() Fault { return onWire(wireBrokenGzip, 0) }

// Body answers 200 with another body.
func Body(contentType, body string) Fault {
	return Change(func(a *Answer) {
		a.Status, a.Body = http.StatusOK, []byte(body)
		a.Header.Set("Content-Type", contentType)
		a.Header.Del("Link")
	})
}

// HTML answers 200 with a login page, as proxies do.
func HTML() Fault {
	return Body("text/html; charset=utf-8", "<!DOCTYPE html>\n<html><head><title>Sign in to the network</title></head><body></body></html>\n")
}

// Empty answers 200 with nothing.
func Empty() Fault { return Body("application/json; charset=utf-8", "") }

// LFSPointer answers 200 with a pointer of Git LFS.
func LFSPointer() Fault {
	return Body("application/vnd.github.raw; charset=utf-8", LFSPointerText)
}

// LFSPointerText is a pointer file as Git LFS leaves it in a repository.
const LFSPointerText = "version https://git-lfs.github.com/spec/v1\noid sha256:e7ffe1c941666e6789e5c91a7d0b28196bb8a883ebaf407b13794271926a5b2f\nsize 259935\n"

// TruncatedJSON answers 200 with the first n bytes, and a Content-Length that
// agrees with them.
func TruncatedJSON(n int) Fault {
	return Change(func(a *Answer) { a.Body = a.Body[:min(n, len(a.Body))] })
}

// Tamper changes one byte of a raw body, or one digit of the last object id in
// JSON: an entry of a tree, a commit's tree.
func Tamper() Fault {
	return Change(func(a *Answer) {
		ids := objectIDs.FindAllSubmatchIndex(a.Body, -1)
		switch json := strings.Contains(a.Header.Get("Content-Type"), "json"); {
		case json && len(ids) > 0:
			digit := &a.Body[ids[len(ids)-1][2]]
			*digit = "123456789abcdef0"[strings.IndexByte("0123456789abcdef", *digit)]
		case len(a.Body) > 0:
			a.Body[len(a.Body)/2] ^= 1
		}
	})
}

var objectIDs = regexp.MustCompile(`"sha":"([0-9a-f]{40})"`)

// Replace replaces text in the body.
func Replace(old, replacement string) Fault {
	return Change(func(a *Answer) {
		a.Body = []byte(strings.ReplaceAll(string(a.Body), old, replacement))
	})
}

// Header sets a header of the right answer.
func Header(name, value string) Fault {
	return Change(func(a *Answer) { a.Header.Set(name, value) })
}

// Redirect answers with a redirect. A target without a host stays here.
func Redirect(status int, to string) Fault {
	return Change(func(a *Answer) {
		a.Status, a.Body = status, nil
		a.Header.Set("Location", to)
	})
}

// RedirectLoop redirects each request to itself.
func RedirectLoop() Fault {
	return Change(func(a *Answer) {
		a.Status, a.Body = http.StatusFound, nil
		a.Header.Set("Location", a.Request.URL.String())
	})
}

// Status refuses with a code and a message in GitHub's form.
func Status(code int, message string) Fault {
	return Change(func(a *Answer) { a.refuse(code, message) })
}

func (a *Answer) refuse(code int, message string) {
	r := refusal(a.Request, code, message)
	a.Status, a.Body = r.Status, r.Body
	a.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	a.Header.Del("Link")
}

// RateLimit is a used-up primary limit that is reset after some time.
func RateLimit(status int, reset time.Duration) Fault {
	return Change(func(a *Answer) {
		a.refuse(status, "API rate limit exceeded for 192.0.2.1. (But here's the good news: Authenticated requests get a higher rate limit. Check out the documentation for more details.)")
		a.Header.Set("X-RateLimit-Remaining", "0")
		a.Header.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(reset).Unix(), 10))
	})
}

// SecondaryLimit asks for fewer requests at a time. retryAfter is the header's
// value, seconds or a date; none is sent when it is empty.
func SecondaryLimit(status int, retryAfter string) Fault {
	return Change(func(a *Answer) {
		a.refuse(status, "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.")
		if retryAfter != "" {
			a.Header.Set("Retry-After", retryAfter)
		}
	})
}

// BadToken refuses requests that carry a token.
func BadToken() Fault { return Status(http.StatusUnauthorized, "Bad credentials").WithToken() }

// SSO refuses requests that carry a token, as an organisation does that wants
// single sign-on.
func SSO(url string) Fault {
	return Change(func(a *Answer) {
		a.refuse(http.StatusForbidden, "Resource protected by organization SAML enforcement. You must grant your Personal Access token access to this organization.")
		a.Header.Set("X-GitHub-SSO", "required; url="+url)
	}).WithToken()
}

// ParseFault reads a fault from a script: a kind, its arguments, and where it
// applies, in words separated by spaces:
//
//	rate-limit 403 3000s
//	secondary 429 1 first=2 at=git/blobs
//	status 502 after=1
//	cut-length 1000 | cut-chunked 1000 | cut-http10 1000 | truncated-json 20
//	redirect 302 https://elsewhere.example/x
//	html | empty | object | lfs | reset | stall | tamper | bad-token | broken-gzip | redirect-loop
//	sso https://github.com/orgs/o/sso
//	delay 2s
//
// at=PREFIX, first=N, after=N and the word token are At, First, After and
// WithToken.
func ParseFault(text string) (Fault, error) {
	var words []string
	var f Fault
	scope := func(f Fault) Fault { return f }
	for word := range strings.FieldsSeq(text) {
		then := scope
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "at":
			scope = func(f Fault) Fault { return then(f).At(value) }
		case "first":
			scope = func(f Fault) Fault { return then(f).First(n) }
		case "after":
			scope = func(f Fault) Fault { return then(f).After(n) }
		case "token":
			scope = func(f Fault) Fault { return then(f).WithToken() }
		default:
			words = append(words, word)
		}
	}
	words = append(words, "", "", "")
	n, _ := strconv.Atoi(words[1])
	switch words[0] {
	case "rate-limit":
		d, err := time.ParseDuration(words[2])
		if err != nil {
			return f, fmt.Errorf("fault %q: %w", text, err)
		}
		f = RateLimit(n, d)
	case "secondary":
		f = SecondaryLimit(n, words[2])
	case "status":
		f = Status(n, http.StatusText(n))
	case "cut-length":
		f = CutLength(n)
	case "cut-chunked":
		f = CutChunked(n)
	case "cut-http10":
		f = CutHTTP10(n)
	case "truncated-json":
		f = TruncatedJSON(n)
	case "redirect":
		f = Redirect(n, words[2])
	case "delay":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return f, fmt.Errorf("fault %q: %w", text, err)
		}
		f = Delay(d)
	case "sso":
		f = SSO(words[1])
	default:
		made, ok := plainFaults()[words[0]]
		if !ok {
			return f, fmt.Errorf("fault %q: no such kind", text)
		}
		f = made
	}
	return scope(f), nil
}

func plainFaults() map[string]Fault {
	return map[string]Fault{
		"html": HTML(), "empty": Empty(), "object": Body("application/json", "{}"), "lfs": LFSPointer(),
		"reset": Reset(), "stall": Stall(), "tamper": Tamper(), "bad-token": BadToken(),
		"broken-gzip": BrokenGzip(), "redirect-loop": RedirectLoop(),
	}
}
