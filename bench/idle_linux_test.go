package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/events"
)

// A consumer with nothing to do looks once a second and writes nothing.
func TestIdleConsumer(t *testing.T) {
	wanted(t)
	_, pool := database(t, server(t))
	run(t, pool, "select pgque.subscribe($1, 'idle')", queue)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	leased := make(chan struct{}, 1)
	c := events.NewConsumer(pool, queue, "idle", events.ConsumerConfig{Observer: func(o events.Observation) {
		if l, ok := o.(events.Leased); ok && l.Active {
			leased <- struct{}{}
		}
	}})
	c.HandleAny(nothing)
	go func() { _ = c.Run(ctx) }()
	<-leased
	time.Sleep(4 * time.Second) // it listens, and has proven that it does
	state := func() (xid, wal int64) {
		err := pool.QueryRow(ctx, "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, pg_current_wal_insert_lsn() - '0/0'::pg_lsn").Scan(&xid, &wal)
		if err != nil {
			t.Fatal(err)
		}
		return xid, wal
	}
	xid, wal := state()
	time.Sleep(20 * time.Second)
	xidAfter, walAfter := state()
	row(t, "idle consumer, 20 s", fmt.Sprintf("%d transaction ids, %d bytes of WAL", xidAfter-xid, walAfter-wal), "", "", "0, 0", xidAfter == xid && walAfter == wal)
}

// A ticker of 500 queues in which nothing happens, with PgQue's default settings:
// its own processor time and that of its server together.
func TestIdleTicker(t *testing.T) {
	wanted(t)
	pg := server(t)
	db, pool := database(t, pg)
	for i := range 499 {
		run(t, pool, "select pgque.create_queue($1)", fmt.Sprintf("idle_%03d", i))
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = events.NewTicker(pool, events.TickerConfig{}).Run(ctx) }()
	// PgQue's idle ticks grow rarer up to one a minute; then it is at rest.
	time.Sleep(150 * time.Second)
	postmaster := db.Value(t, "select pg_read_file('postmaster.pid', 0, 20)")
	pid, _, _ := strings.Cut(postmaster, "\n")
	const during = 60 * time.Second
	self, server := ownTime(t), serverTime(t, pid)
	time.Sleep(during)
	self, server = ownTime(t)-self, serverTime(t, pid)-server
	share := 100 * (self + server).Seconds() / during.Seconds()
	row(t, "idle ticker, 500 queues", fmt.Sprintf("%.1f %% of a core (ticker %.1f, server %.1f)", share,
		100*self.Seconds()/during.Seconds(), 100*server.Seconds()/during.Seconds()), "", "", "< 5 %", share < 5)
}

func ownTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// serverTime sums up the processes of a server that are alive.
func serverTime(t *testing.T, postmaster string) time.Duration {
	t.Helper()
	const tick = time.Second / 100 // of the kernel's accounts
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var total time.Duration
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, rest, _ := strings.Cut(string(data), " ")
		fields := strings.Fields(rest[strings.LastIndex(rest, ")")+1:]) // state, ppid, …; utime is the 12th
		if len(fields) < 13 || pid != postmaster && fields[1] != postmaster {
			continue
		}
		for _, field := range fields[11:13] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += time.Duration(n) * tick
		}
	}
	return total
}
