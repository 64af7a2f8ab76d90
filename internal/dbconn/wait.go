package dbconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

// missingDatabaseLimit is how long a database may be missing: an image creates
// it while it initialises, and a misspelt name must not wait a minute.
const missingDatabaseLimit = 15 * time.Second

// WaitOptions say how long to wait for a database.
type WaitOptions struct {
	Limit time.Duration // 0 means one try
	// Say gets one line each time the reason for waiting changes. It may be nil.
	Say func(format string, args ...any)
	// Accept may refuse a connection that works: a reason that is not empty
	// means "not yet", an error ends the wait. It may be nil.
	Accept func(ctx context.Context, conn *pgx.Conn) (reason string, err error)
}

// Connect tries once. The error is a *fault.Error of class Database, or the
// context's.
func (s *Settings) Connect(ctx context.Context) (*pgx.Conn, error) {
	return s.Wait(ctx, WaitOptions{})
}

// Wait connects as soon as the server and the database answer. What waiting
// cannot mend ends it at once; a database that does not exist is waited for at
// most 15 seconds. The error is a *fault.Error of class Database with the last
// reason and the number of tries, also when the context's deadline was first;
// of a context that was cancelled it is the cause.
func (s *Settings) Wait(ctx context.Context, o WaitOptions) (*pgx.Conn, error) {
	start := time.Now()
	pause := 100 * time.Millisecond
	var said string
	var missingSince time.Time
	last := failure{text: "no answer in time"}
	for try := 1; ; try++ {
		conn, f, err := s.try(ctx, o)
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, s.gaveUp(last, try, time.Since(start))
		}
		if err != nil {
			return nil, err
		}
		last = f
		if conn != nil {
			return conn, nil
		}
		if f.patience != aWhile {
			missingSince = time.Time{}
		} else if missingSince.IsZero() {
			missingSince = time.Now()
		}
		left := o.Limit - time.Since(start)
		if f.patience == aWhile {
			left = min(left, missingDatabaseLimit-time.Since(missingSince))
		}
		if f.patience == giveUp || left <= 0 {
			return nil, s.gaveUp(f, try, time.Since(start))
		}
		if f.text != said && o.Say != nil {
			o.Say("waiting for the database: %s", f.text)
		}
		said = f.text
		select {
		case <-ctx.Done(): // the next try says why
		case <-time.After(min(pause, left)):
		}
		pause = min(pause*3/2, time.Second)
	}
}

func (s *Settings) gaveUp(f failure, tries int, waited time.Duration) *fault.Error {
	text := fmt.Sprintf("connect to database %q at %s: %s", s.Database(), s.Address(), f.text)
	if tries > 1 {
		text = fmt.Sprintf("database %q at %s was not reachable within %s (%d tries), last: %s", s.Database(), s.Address(), seconds(waited), tries, f.text)
	}
	return &fault.Error{Class: fault.Database, Text: text, Hints: f.hints}
}

// try makes one attempt: connect, then one round trip, since a pooler takes a
// client before it has a server.
func (s *Settings) try(ctx context.Context, o WaitOptions) (*pgx.Conn, failure, error) {
	conn, err := s.connectOnce(ctx)
	if err == nil {
		pingCtx, cancel := context.WithTimeout(ctx, s.config.ConnectTimeout)
		err = conn.Ping(pingCtx)
		cancel()
	}
	if ctx.Err() != nil {
		closeNow(conn)
		return nil, failure{}, context.Cause(ctx)
	}
	if err != nil {
		closeNow(conn)
		return nil, s.sort(err), nil
	}
	if o.Accept == nil {
		return conn, failure{}, nil
	}
	reason, err := o.Accept(ctx, conn)
	if err == nil && reason == "" {
		return conn, failure{}, nil
	}
	closeNow(conn)
	return nil, failure{text: reason, patience: untilDone}, err
}

// connectOnce prefers a primary where several hosts are given and the user did
// not say which kind to take; a standby is better than none.
func (s *Settings) connectOnce(ctx context.Context) (*pgx.Conn, error) {
	config := s.config.Copy()
	if s.wantsPrimary {
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	conn, err := connect(ctx, config)
	if s.wantsPrimary && errors.Is(err, pgconn.ErrStandbyConnection) {
		return connect(ctx, s.config.Copy())
	}
	return conn, err
}

func connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	defer preferTLS(config)()
	return pgx.ConnectConfig(ctx, config)
}

// closeNow ends a connection without waiting for a server that may be gone.
func closeNow(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}
