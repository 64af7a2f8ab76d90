package ghclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
)

// proxyLogin is the cause when a proxy wants a login before it connects.
type proxyLogin struct{ host string }

func (e proxyLogin) Error() string { return fmt.Sprintf("the proxy %q wants a login", e.host) }

// refusedByProxy keeps the status of a CONNECT, of which Go's transport would
// leave only the words.
func refusedByProxy(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusProxyAuthRequired {
		return proxyLogin{proxy.Host}
	}
	return nil
}

// proxyFor returns the proxy of a request, or nil. Asked here first, since
// Go's own failure repeats a setting that it can't read, password and all.
func (t *transport) proxyFor(req *http.Request) (*url.URL, *failure) {
	if t.http.Proxy == nil {
		return nil, nil
	}
	proxy, err := t.http.Proxy(req)
	if err != nil {
		return nil, fail("the proxy setting for %s is no URL", t.base.Host).
			hint("set HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT, with other characters of the password percent-encoded")
	}
	return proxy, nil
}

func proxyWantsLogin(proxyHost string) *failure {
	if proxyHost != "" {
		proxyHost = fmt.Sprintf(" %q", proxyHost)
	}
	return fail("the proxy%s wants a login (407)", proxyHost).
		hint("set HTTPS_PROXY to http://USER:PASSWORD@HOST:PORT, or NO_PROXY to hosts that need no proxy")
}

// broken explains why no answer came.
func (t *transport) broken(ctx context.Context, err error, proxy *url.URL) *failure {
	var login proxyLogin
	var dns *net.DNSError
	text, host := t.redact(err.Error(), proxy), t.base.Host
	switch {
	case errors.Is(context.Cause(ctx), errStalled):
		return passing("%s did not answer within %s", host, t.stall)
	case errors.As(err, &login):
		return proxyWantsLogin(login.host)
	case isCertificate(err):
		return t.certificate(err, text)
	case errors.As(err, &dns) && dns.IsNotFound:
		return fail("%s was not found: %s", host, text).
			hint("check the network; a proxy is named by HTTPS_PROXY; without a network, take a clone: --from DIR")
	case proxy != nil:
		return passing("%s was not reached through the proxy %q: %s", host, proxy.Host, text).
			hint("check HTTPS_PROXY and NO_PROXY")
	}
	return passing("%s was not reached: %s", host, text).
		hint("check the network; without one, take a clone: --from DIR")
}

func isCertificate(err error) bool {
	var verification *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	return errors.As(err, &verification) || errors.As(err, &header)
}

func (t *transport) certificate(err error, text string) *failure {
	var authority x509.UnknownAuthorityError
	var noRoots x509.SystemRootsError
	if errors.As(err, &authority) || errors.As(err, &noRoots) {
		return fail("%s has a certificate of an authority that this machine does not know: %s", t.base.Host, text).
			hint("%s", trustHint(runtime.GOOS))
	}
	return fail("%s was not reached over TLS: %s", t.base.Host, text)
}

// trustHint says how to make an authority known. Go reads SSL_CERT_FILE on
// Linux and the BSDs only.
func trustHint(goos string) string {
	switch goos {
	case "darwin", "ios":
		return "add your organisation's authority to the system keychain, and trust it for TLS"
	case "windows":
		return `add your organisation's authority to the certificate store "Trusted Root Certification Authorities"`
	}
	return "set SSL_CERT_FILE to a PEM file with your organisation's authority, or install the package ca-certificates"
}

// cut explains why an answer ended before its end.
func (t *transport) cut(ctx context.Context, a *answer, err error, proxy *url.URL) *failure {
	if errors.Is(context.Cause(ctx), errStalled) {
		return passing("%s stopped sending after %d bytes, for %s", t.base.Host, len(a.body), t.stall)
	}
	if want := a.header.Get("Content-Length"); want != "" {
		return passing("the answer of %s ended early, after %d of %q bytes: %s", t.base.Host, len(a.body), t.show(want), t.redact(err.Error(), proxy))
	}
	return passing("the answer of %s ended early, after %d bytes: %s", t.base.Host, len(a.body), t.redact(err.Error(), proxy))
}
