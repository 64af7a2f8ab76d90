package dbconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// attempt is the dialling of one attempt to connect with sslmode=prefer, the
// default. The driver then tries each address twice, with a connection for TLS
// and another for plain text. Here a server that says that it has no TLS gets
// the plain text on the same connection, as from libpq, so that it starts one
// process for us and not two. And an address that did not answer in time is not
// asked again: where a name has several addresses, it would be given its time
// twice.
type attempt struct {
	base pgconn.DialFunc

	mu      sync.Mutex
	over    bool
	waiting map[string]net.Conn // of servers without TLS, by address
	silent  map[string]bool     // the addresses that did not answer in time
}

// preferTLS puts an attempt in charge of a configuration's dialling, where TLS
// is to be tried before plain text. Call end when the attempt is over.
func preferTLS(config *pgx.ConnConfig) (end func()) {
	plain := slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil })
	if config.TLSConfig == nil || !plain {
		return func() {}
	}
	a := &attempt{base: config.DialFunc, waiting: map[string]net.Conn{}, silent: map[string]bool{}}
	config.DialFunc = a.dial
	return a.end
}

// dial is the driver's DialFunc. A connection keeps it, to dial for a cancel
// request when the attempt is long over.
func (a *attempt) dial(ctx context.Context, network, address string) (net.Conn, error) {
	a.mu.Lock()
	over, silent, conn := a.over, a.silent[address], a.waiting[address]
	delete(a.waiting, address)
	a.mu.Unlock()
	switch {
	case over:
		return a.base(ctx, network, address)
	case silent:
		return nil, fmt.Errorf("dial %s: %w", address, os.ErrDeadlineExceeded)
	case conn != nil:
		return conn, nil
	}
	conn, err := a.base(ctx, network, address)
	if err != nil {
		a.note(address, err)
		return nil, err
	}
	return &negotiation{Conn: conn, address: address, attempt: a}, nil
}

// note remembers an address that did not answer in time.
func (a *attempt) note(address string, err error) {
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.silent[address] = true
	}
}

// keep holds on to a connection until plain text is tried.
func (a *attempt) keep(address string, conn net.Conn) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over || a.waiting[address] != nil {
		return conn.Close()
	}
	a.waiting[address] = conn
	return nil
}

// end closes what plain text was not tried on.
func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, conn := range a.waiting {
		conn.Close()
	}
}

// negotiation is a connection that waits for the answer to a request for TLS,
// one byte: S for yes, N for no.
type negotiation struct {
	net.Conn
	address  string
	attempt  *attempt
	answered bool
	noTLS    bool
}

func (n *negotiation) Read(b []byte) (int, error) {
	count, err := n.Conn.Read(b)
	if n.answered {
		return count, err
	}
	if err != nil {
		n.attempt.note(n.address, err)
	}
	if count > 0 {
		n.answered, n.noTLS = true, count == 1 && b[0] == 'N'
	}
	return count, err
}

// Close is what the driver does next where there is no TLS.
func (n *negotiation) Close() error {
	if n.noTLS {
		n.noTLS = false
		return n.attempt.keep(n.address, n.Conn)
	}
	return n.Conn.Close()
}
