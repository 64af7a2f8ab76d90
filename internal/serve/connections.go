package serve

import (
	"container/list"
	"net"
	"sync"
)

// newestConnections keeps at most a number of connections open. One more is
// accepted all the same, and the oldest closed: so whoever holds many connections
// open, slowly or silently, takes neither file descriptors and memory from what the
// process is for, nor its turn from a health check.
type newestConnections struct {
	net.Listener
	most int

	mu   sync.Mutex
	open list.List // of *countedConn, the oldest first
}

func (l *newestConnections) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &countedConn{Conn: conn, of: l}
	l.mu.Lock()
	c.place = l.open.PushBack(c)
	var oldest *countedConn
	if l.open.Len() > l.most {
		oldest = l.open.Front().Value.(*countedConn)
	}
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return c, nil
}

type countedConn struct {
	net.Conn
	of    *newestConnections
	place *list.Element
	once  sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.of.mu.Lock()
		c.of.open.Remove(c.place)
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}
