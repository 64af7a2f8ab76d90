package ghclient

import (
	"net"
	"net/url"
	"strings"
)

// sameOrigin reports whether two URLs have scheme, host and port in common. A
// token must never reach anything else.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// origin is a URL without what may be private in it: path, query and user.
func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// isPublic reports whether the API is github.com's, where a public repository
// can be read without a token. A test server on the loopback is taken for it.
func isPublic(base *url.URL) bool {
	if strings.HasSuffix(base.Path, enterprisePath+"/") {
		return false
	}
	return base.Hostname() == "api.github.com" || isLoopback(base.Hostname())
}
