package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// B041: a command that is told to end does not wait for a server that has fallen
// silent: its pool would, 15 s for each connection with a call that was given up.
func TestClosePoolOfASilentServer(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	proxy := pgtest.Proxy(t, db.Server.Address())
	pool, err := pgxpool.New(t.Context(), proxy.URL(t, db.URL))
	if err != nil {
		t.Fatal(err)
	}
	var conns []*pgxpool.Conn
	for range 4 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	proxy.Silence(pgtest.Both)
	for _, conn := range conns { // as a call ends whose time is over
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, err := conn.Exec(ctx, "select 1"); err == nil {
			t.Error("the proxy is not silent")
		}
		cancel()
		conn.Release()
	}
	returned, closed := make(chan struct{}), make(chan struct{})
	go func() { closePool(pool); close(returned) }()
	go func() { pool.Close(); close(closed) }()
	select {
	case <-returned:
	case <-closed:
		t.Error("it waited until no connection was left")
	}
	proxy.CutAll()
	<-closed
}
