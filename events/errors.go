package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
)

// What callers may match with errors.Is. The error's chain also holds the
// *pgconn.PgError where the database gave one, so its SQLSTATE is never lost.
var (
	// ErrInvalid: a name, type, payload or setting that would be refused; found
	// before anything was sent. Also a connection whose client_encoding is not UTF8:
	// nothing is published or consumed through it.
	ErrInvalid = errors.New("not valid")
	// ErrTooLarge: a payload, headers or a type above their size limit; also matches
	// ErrInvalid.
	ErrTooLarge = fmt.Errorf("too large: %w", ErrInvalid)
	// ErrNotInstalled: the database has no PgQue, or one older than 0.2.0.
	ErrNotInstalled = errors.New("PgQue 0.2.0 or newer is not installed in this database")
	// ErrQueueNotFound: no queue has this name.
	ErrQueueNotFound = errors.New("no such queue")
	// ErrNotSubscribed: the consumer is not subscribed to the queue.
	ErrNotSubscribed = errors.New("consumer is not subscribed to the queue")
	// ErrNotFound: the thing asked for (a dead letter, a consumer) is not there,
	// or somebody else took it first.
	ErrNotFound = errors.New("not found")
	// ErrPermission: the login lacks a role: pgque_writer to publish,
	// pgque_reader to consume, pgque_admin for everything else (42501).
	ErrPermission = errors.New("permission denied")
	// ErrReadOnly: the server is a standby or was told to be read-only (25006).
	ErrReadOnly = errors.New("server is read-only")
	// ErrLeased: another process is active for the consumer. Run waits for it to
	// end; Step returns this.
	ErrLeased = errors.New("another process is active for this consumer")
	// ErrLeaseLost: the connection that made this process the active one is gone, so
	// that another may have the batch. Nothing of ours was settled. It is the cause
	// (context.Cause) of the handlers' contexts then. Run begins anew; Step returns it.
	ErrLeaseLost = errors.New("lost the consumer's lease; another process may have the batch")
	// ErrStaleBatch: the batch was finished by another process. Nothing of ours
	// was settled.
	ErrStaleBatch = errors.New("batch was finished by another process")
	// ErrGraceExceeded: handlers did not return within ConsumerConfig.Grace and
	// their contexts were ended. What they had not finished comes again.
	ErrGraceExceeded = errors.New("handlers did not finish within the grace period")
	// ErrAborted: Consumer.Abort ended the run. Nothing of the open batch was
	// settled; it comes again.
	ErrAborted = errors.New("aborted")
)

// errNotUTF8 is what comes of a connection that fails inUTF8.
var errNotUTF8 = fmt.Errorf("the connection's client_encoding is not UTF8: set it in the pool's configuration (RuntimeParams[\"client_encoding\"] = \"UTF8\"): %w", ErrInvalid)

// wrap says what was tried, adds the sentinel that fits and keeps the cause.
// It returns nil for nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	kind := classify(err)
	if kind == nil || errors.Is(err, kind) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, kind, err)
}

// classify finds the sentinel for an error of the server. PgQue raises its own
// errors as P0001 with a text, so there the text is all there is to go by.
func classify(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil
	}
	switch pg.Code {
	case "42501":
		return ErrPermission
	case "25006":
		return ErrReadOnly
	case "22021": // a name that is not UTF-8
		return ErrInvalid
	case "3F000", "42883", undefinedTable:
		return ErrNotInstalled
	case "P0001":
		return classifyRaised(strings.ToLower(pg.Message))
	}
	return nil
}

func classifyRaised(text string) error {
	switch {
	case strings.HasPrefix(text, "not subscriber to queue"), strings.Contains(text, "consumer not registered"):
		return ErrNotSubscribed
	case strings.Contains(text, "queue not found"), strings.Contains(text, "no such event queue"),
		strings.Contains(text, "no such queue"), strings.Contains(text, "event queue not created"):
		return ErrQueueNotFound
	case strings.Contains(text, "batch not found"), strings.Contains(text, "event not found"):
		return ErrStaleBatch
	case strings.Contains(text, "dead letter entry not found"):
		return ErrNotFound
	}
	return nil
}

// sqlState is the SQLSTATE in err's chain, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// connectionLost says that the connection, not the statement, is at fault: the
// network, a restart, a terminated session, a failover. Trying again on a new
// connection is right.
func connectionLost(err error) bool {
	state := sqlState(err)
	if state == "" {
		return err != nil && !errors.Is(err, context.Canceled) && !said(err)
	}
	class := state[:min(2, len(state))]
	return class == "08" || class == "57" && state != "57014" || errors.Is(err, ErrReadOnly) || state == "25006" || state == "53300"
}

// said says that the server has answered, and the answer is one of ours.
func said(err error) bool {
	for _, answer := range []error{ErrQueueNotFound, ErrNotSubscribed, ErrNotInstalled, ErrStaleBatch, ErrPermission, ErrInvalid} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// transient says that the same statement may well succeed in a moment:
// deadlocks, serialization failures, lock timeouts, and the error that PgQue
// raises when a receive waited for another session's ack (it speaks of
// corruption and means nothing).
func transient(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01", "55P03":
		return true
	case "P0001":
		var pg *pgconn.PgError
		errors.As(err, &pg)
		return strings.HasPrefix(pg.Message, "PgQ corruption:") && strings.HasSuffix(pg.Message, "does not see tick <NULL>")
	}
	return false
}

// undefinedTable is the SQLSTATE for a table that is not there.
const undefinedTable = "42P01"

// maxNameBytes is PgQue's limit for queue names: the channel of a queue's
// notifications, "pgque_" and the name, must fit an identifier.
const maxNameBytes = 57

func checkQueue(queue string) error {
	switch {
	case queue == "":
		return fmt.Errorf("queue name is empty: %w", ErrInvalid)
	case len(queue) > maxNameBytes:
		return fmt.Errorf("queue name %q has %d bytes, at most %d are allowed: %w", queue, len(queue), maxNameBytes, ErrInvalid)
	}
	return checkText("queue name", queue)
}

func checkConsumer(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("consumer name is empty: %w", ErrInvalid)
	case strings.ContainsAny(name, "#."):
		return fmt.Errorf("consumer name %q contains %q or %q, which PgQue keeps for parts of a consumer: %w", name, "#", ".", ErrInvalid)
	}
	return checkText("consumer name", name)
}

// checkText refuses what PostgreSQL's text cannot hold.
func checkText(what, s string) error {
	switch {
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("%s contains a NUL byte: %w", what, ErrInvalid)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not valid UTF-8: %w", what, ErrInvalid)
	}
	return nil
}
