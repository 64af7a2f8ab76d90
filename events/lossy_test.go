package events_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// lossy is a network that can lose the answer to a statement: the server has done
// it, the client learns only that the connection is gone.
type lossy struct {
	late bool // the answer is not lost but never comes

	mu   sync.Mutex
	lose func(sent []byte) bool // asked of everything that is sent
}

func (l *lossy) when(lose func(sent []byte) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose = lose
}

// onceAfter loses the answer to the next thing sent that contains second, once
// something was sent that contains first.
func (l *lossy) onceAfter(first, second string) {
	seen, done := false, false
	l.when(func(sent []byte) bool {
		seen = seen || bytes.Contains(sent, []byte(first))
		if done || !seen || !bytes.Contains(sent, []byte(second)) {
			return false
		}
		done = true
		return true
	})
}

func (l *lossy) asked(sent []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lose != nil && l.lose(sent)
}

func (l *lossy) pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	return newPool(t, url, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &lossyConn{Conn: conn, net: l}, err
		}
	})
}

type lossyConn struct {
	net.Conn
	net *lossy

	mu   sync.Mutex
	lost bool
}

func (c *lossyConn) Write(p []byte) (int, error) {
	if c.net.asked(p) {
		c.mu.Lock()
		c.lost = true
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

var errLost = errors.New("the answer was lost")

func (c *lossyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p) // so the server has done it
	for c.isLost() && c.net.late && err == nil {
		n, err = c.Conn.Read(p)
	}
	if c.isLost() && !c.net.late {
		_ = c.Conn.Close()
		return 0, errLost
	}
	return n, err
}

func (c *lossyConn) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}
