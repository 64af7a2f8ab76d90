package serve

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// Listener is an address that is listened on.
type Listener struct {
	net.Listener
	// Loopback says that only this machine can ask.
	Loopback bool
}

// Listen opens the address of --listen, HOST:PORT or :PORT. Without a host it is
// loopback, unlike in net: what listens has no login, so who wants it to be seen
// by others has to say so, with 0.0.0.0 or [::]. Port 0 takes any that is free.
func Listen(ctx context.Context, address string) (*Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return nil, fault.New(fault.Usage, "--listen is %q: it takes HOST:PORT or :PORT", address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	network := "tcp"
	if ip := net.ParseIP(host); ip != nil && ip.To4() != nil {
		network = "tcp4" // net takes 0.0.0.0 for every address of IPv6 as well
	}
	l, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, port))
	if err != nil {
		var op *net.OpError // its own text names the address again
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fault.New(fault.Usage, "cannot listen on %q: %s", address, err)
	}
	tcp, ok := l.Addr().(*net.TCPAddr)
	return &Listener{Listener: l, Loopback: ok && tcp.IP.IsLoopback()}, nil
}

// URL is where a browser on this machine finds the page.
func (l *Listener) URL() string {
	host, port, _ := net.SplitHostPort(l.Addr().String())
	switch ip := net.ParseIP(host); {
	case ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/"
}

// isLoopbackHost says that a Host header names this machine in a way that no web
// site can: a site may point its own name to 127.0.0.1 and have its visitors'
// browsers read what listens there, but not one of these.
func isLoopbackHost(header string) bool {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback()
	}
	host = strings.TrimSuffix(host, ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
