package pgtest

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Direction names one or both ways through a TCPProxy.
type Direction int

const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// TCPProxy is a network between a program and its server that a test can
// break.
type TCPProxy struct {
	listener net.Listener
	upstream string

	mu     sync.Mutex
	change *sync.Cond
	silent Direction
	delay  time.Duration
	conns  map[net.Conn]struct{}
	closed bool
}

// Proxy starts a proxy in front of host:port. It ends with the test.
func Proxy(t testing.TB, upstream string) *TCPProxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &TCPProxy{listener: l, upstream: upstream, conns: map[net.Conn]struct{}{}}
	p.change = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.change.Broadcast()
		p.mu.Unlock()
		l.Close()
		p.CutAll()
	})
	return p
}

// Address returns the proxy's host:port.
func (p *TCPProxy) Address() string { return p.listener.Addr().String() }

// URL returns a connection string that goes through the proxy.
func (p *TCPProxy) URL(t testing.TB, direct string) string {
	t.Helper()
	u, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Address()
	return u.String()
}

// Silence lets nothing more through in a direction, without closing anything:
// neither side is told, as when a cable is pulled. New connections are
// accepted and stay silent too. Bytes wait; Resume delivers them.
func (p *TCPProxy) Silence(d Direction) { p.set(func() { p.silent |= d }) }

// Resume ends every Silence.
func (p *TCPProxy) Resume() { p.set(func() { p.silent = 0 }) }

// Delay holds back each piece for a time, in both directions.
func (p *TCPProxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// CutAll resets all connections, as a firewall or a restarted router does.
func (p *TCPProxy) CutAll() {
	p.set(func() {
		for conn := range p.conns {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // RST, not FIN
			}
			conn.Close()
		}
	})
}

// Conns returns the number of connections that clients hold.
func (p *TCPProxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

func (p *TCPProxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.change.Broadcast()
}

func (p *TCPProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *TCPProxy) serve(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.upstream)
	if err != nil {
		client.Close()
		return
	}
	p.set(func() { p.conns[client], p.conns[server] = struct{}{}, struct{}{} })
	var both sync.WaitGroup
	both.Go(func() { p.pump(server, client, ToServer) })
	both.Go(func() { p.pump(client, server, ToClient) })
	both.Wait()
	p.set(func() { delete(p.conns, client); delete(p.conns, server) })
	client.Close()
	server.Close()
}

// pump copies one direction. An end of the stream is passed on like bytes are,
// so that a silent proxy hides that too.
func (p *TCPProxy) pump(to, from net.Conn, d Direction) {
	buf := make([]byte, 32*1024)
	for {
		n, err := from.Read(buf)
		if !p.pass(d) {
			return
		}
		if n > 0 {
			if _, writeErr := to.Write(buf[:n]); writeErr != nil {
				from.Close()
				return
			}
		}
		if err != nil {
			if tcp, ok := to.(*net.TCPConn); ok && !errors.Is(err, net.ErrClosed) {
				_ = tcp.CloseWrite()
				return
			}
			to.Close()
			return
		}
	}
}

// pass waits as long as the direction is silent, then for the delay. It
// reports false when the proxy has ended.
func (p *TCPProxy) pass(d Direction) bool {
	p.mu.Lock()
	for p.silent&d != 0 && !p.closed {
		p.change.Wait()
	}
	delay, closed := p.delay, p.closed
	p.mu.Unlock()
	time.Sleep(delay)
	return !closed
}
