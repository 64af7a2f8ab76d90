package ghclient

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/ghtest"
)

// B074: what stands between here and GitHub, and what to set.

func TestCertificates(t *testing.T) {
	t.Parallel()
	f := shared
	s := f.serve(t, ghtest.Options{TLS: true})
	byName := strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	tests := []struct {
		name      string
		base      string
		transport *http.Transport
		words     []string // none: it succeeds
	}{
		{"known authority", s.URL, s.Transport(), nil},
		{"unknown authority", s.URL, &http.Transport{}, []string{"certificate of an authority that this machine does not know", trustHint("linux")}},
		{"another name", byName, s.Transport(), []string{"was not reached over TLS", "localhost"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, _ := connect(t, s, Options{BaseURL: tt.base, Transport: tt.transport, Token: secret})
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			if tt.words == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			f := wantFault(t, err, fault.Upstream, tt.words[0])
			if strings.Contains(f.Text, "insecure") {
				t.Error(f)
			}
		})
	}
	plain := f.serve(t, ghtest.Options{})
	c, _ := connect(t, plain, Options{BaseURL: strings.Replace(plain.URL, "http:", "https:", 1)})
	_, err := c.ResolveTag(context.Background(), "v0.2.0")
	wantFault(t, err, fault.Upstream, "was not reached over TLS")
}

func TestTrustHint(t *testing.T) {
	t.Parallel()
	for goos, word := range map[string]string{"linux": "SSL_CERT_FILE", "freebsd": "SSL_CERT_FILE", "darwin": "keychain", "windows": "certificate store"} {
		if h := trustHint(goos); !strings.Contains(h, word) {
			t.Errorf("%s: %q", goos, h)
		}
	}
}

// tunnel is a proxy that connects, or wants a login.
func tunnel(t *testing.T, login string) *url.URL {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != login {
			w.Header().Set("Proxy-Authenticate", "Basic")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			there.Close()
			return
		}
		io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { io.Copy(there, here); there.Close() }()
		go func() { io.Copy(here, there); here.Close() }()
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestProxies(t *testing.T) {
	t.Parallel()
	const password = "hunter2%2F"
	const basic = "Basic am9lOmh1bnRlcjIv" // joe:hunter2/
	f := shared
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	with := func(user string, u *url.URL) *url.URL {
		p, err := url.Parse("http://" + user + u.Host)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	tests := []struct {
		name  string
		tls   bool
		proxy func(*http.Request) (*url.URL, error)
		words []string // none: it succeeds
	}{
		{"works", true, http.ProxyURL(with("joe:"+password+"@", tunnel(t, basic))), nil},
		{"wants a login", true, http.ProxyURL(with("", tunnel(t, basic))), []string{"the proxy", "wants a login (407)", "HTTPS_PROXY"}},
		{"refuses the login", true, http.ProxyURL(with("joe:"+password+"@", tunnel(t, "Basic x"))), []string{"the proxy", "wants a login (407)"}},
		{"wants a login, http", false, http.ProxyURL(with("joe:"+password+"@", tunnel(t, "Basic x"))), []string{"the proxy wants a login (407)"}},
		{"is not there", true, http.ProxyURL(with("joe:"+password+"@", &url.URL{Host: closed.Addr().String()})), []string{"was not reached through the proxy", closed.Addr().String(), "HTTPS_PROXY"}},
		{"is no URL", true, func(*http.Request) (*url.URL, error) {
			return nil, errors.New(`invalid proxy address "joe:hunter2/@proxy": bad port`)
		}, []string{"the proxy setting", "is no URL", "percent-encoded"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := f.serve(t, ghtest.Options{TLS: tt.tls})
			transport := s.Transport()
			transport.Proxy = tt.proxy
			var log strings.Builder
			c, _ := connect(t, s, Options{Transport: transport, Log: debugLog(&log), Token: secret})
			_, err := c.ResolveTag(context.Background(), "v0.2.0")
			if tt.words == nil {
				if err != nil {
					t.Error(err)
				}
				return
			}
			f := wantFault(t, err, fault.Upstream, tt.words...)
			if all := f.Text + strings.Join(f.Hints, "") + log.String(); strings.Contains(all, "hunter2") || strings.Contains(all, "joe") {
				t.Errorf("the proxy's login is shown: %s", all)
			}
		})
	}
}

func TestNotThere(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	f := shared
	s := f.serve(t, ghtest.Options{})
	c, _ := connect(t, s, Options{BaseURL: "http://" + closed.Addr().String()})
	_, err = c.ResolveTag(context.Background(), "v0.2.0")
	wantFault(t, err, fault.Upstream, "was not reached", "refused", "--from DIR")

	tries := 0
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		tries++
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "ghe.example", IsNotFound: true}}
	}}
	c, _ = connect(t, s, Options{BaseURL: "https://ghe.example", Transport: transport})
	_, err = c.ResolveTag(context.Background(), "v0.2.0")
	wantFault(t, err, fault.Upstream, "ghe.example was not found", "HTTPS_PROXY")
	if tries != 1 {
		t.Errorf("%d tries for a host that does not exist", tries)
	}
}
