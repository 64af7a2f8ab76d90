package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/sqltext"
)

// fileError is a failure of the file's run.
type fileError struct {
	err       error
	completed int // statements that were done before it
}

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// statementError is a failure of one of our own statements, which are short
// and hold no secret.
type statementError struct {
	sql string
	err error
}

func (e *statementError) Error() string { return e.sql + ": " + e.err.Error() }
func (e *statementError) Unwrap() error { return e.err }

// retryable says whether the same run may succeed next time. It names each
// SQLSTATE, and for a unique violation the constraint: those of the catalogs
// mean that somebody else made the same role or schema at the same moment,
// while one on a table of PgQue's is a problem of the data. Every failed run
// writes the whole file into the server's log, so nothing is retried in hope.
func retryable(err error) bool {
	if errors.Is(err, errNotCommitted) || errors.Is(err, errNotBegun) {
		return true
	}
	var f *fault.Error
	if errors.As(err, &f) {
		return false
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return connectionLost(err)
	}
	switch pgErr.Code {
	case "40P01", "40001", "55P03": // deadlock, serialization, lock not available
		return true
	case "57P01", "57P02", "57P03": // the server is going down, or coming up
		return true
	case "XX000":
		return pgErr.Message == "tuple concurrently updated"
	case "42710": // the role was made between our look and our CREATE ROLE
		return strings.HasPrefix(pgErr.Message, "role ")
	case "23505":
		return slices.Contains([]string{
			"pg_authid_rolname_index", "pg_auth_members_role_member_index", "pg_auth_members_oid_index",
			"pg_namespace_nspname_index", "pg_proc_proname_args_nsp_index", "pg_type_typname_nsp_index", "pg_class_relname_nsp_index",
		}, pgErr.ConstraintName)
	}
	return strings.HasPrefix(pgErr.Code, "08")
}

// lockNotGot reports that lock_timeout ended a wait for a table.
func lockNotGot(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "55P03"
}

func connectionLost(err error) bool {
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.As(err, &network)
}

// short is an error in one line, for talk.
func short(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return fmt.Sprintf("%s (SQLSTATE %s)", oneLine(pgErr.Message), pgErr.Code)
	}
	return oneLine(err.Error())
}

// oneLine keeps the head of a text: what a server says may quote half the file.
func oneLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	const limit = 500
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return text
}

// explain turns any failure into one for a person. It returns nil for nil.
func explain(err error, f File) error {
	var already *fault.Error
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &already):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Database, "the time limit (--timeout) was over; rolled back, nothing was changed").Hint("pgque-vendor bootstrap --timeout 10m")
	case errors.As(err, &pgErr):
		return explainServer(err, pgErr, f)
	case connectionLost(err):
		return fault.New(fault.Database, "the connection was lost again and again; nothing was changed: %s", short(err))
	}
	return fault.New(fault.SQL, "%s", oneLine(err.Error()))
}

func explainServer(err error, pgErr *pgconn.PgError, f File) error {
	class := fault.SQL
	switch {
	case pgErr.Code == "55P03":
		return fault.New(fault.Database, "a lock on PgQue's tables was not got in time; rolled back, nothing was changed (%s)", oneLine(pgErr.Message))
	case pgErr.Code == "42501":
		class = fault.Policy
	case strings.HasPrefix(pgErr.Code, "57P"), strings.HasPrefix(pgErr.Code, "08"):
		class = fault.Database
	}
	where, context := place(err, pgErr, f)
	text := fmt.Sprintf("%s%s (SQLSTATE %s)", where, oneLine(pgErr.Message), pgErr.Code)
	if pgErr.Detail != "" {
		text += "\n  detail: " + strings.Join(head(pgErr.Detail, 5), "\n  ")
	}
	if context != "" {
		text += "\n" + context
	}
	out := fault.New(class, "%s; rolled back, nothing was changed", text)
	if context != "" || pgErr.Detail != "" {
		out.Text = text + "\n  rolled back, nothing was changed"
	}
	out.Err = err
	for _, h := range hints(pgErr, f) {
		out.Hint("%s", h)
	}
	return out
}

// place finds where in the file a statement failed: the server rarely says, but
// the number of answers before the failure is the number of statements done.
// Positions count characters, not bytes.
func place(err error, pgErr *pgconn.PgError, f File) (prefix, context string) {
	var inFile *fileError
	if !errors.As(err, &inFile) {
		prefix, _, _ = strings.Cut(err.Error(), pgErr.Error())
		return oneLine(prefix), ""
	}
	line, text := sqltext.StatementAt(f.SQL, inFile.completed)
	if pgErr.Position > 0 {
		line = sqltext.LineOfCharacter(f.SQL, int(pgErr.Position))
		text = sqltext.Excerpt(f.SQL, line)
	}
	if line == 0 {
		return "pgque.sql: ", ""
	}
	return fmt.Sprintf("pgque.sql:%d: ", line), text
}

func head(text string, lines int) []string {
	all := strings.Split(text, "\n")
	return all[:min(lines, len(all))]
}

func hints(pgErr *pgconn.PgError, f File) []string {
	var out []string
	known, _ := releaseByFile(f.SHA256)
	switch {
	case pgErr.Code == "2BP01":
		out = append(out, "the file drops and makes this function anew; drop what depends on it, run bootstrap, and create it again")
	case pgErr.Code == "42P13":
		out = append(out, "the database's functions have another shape, so they are of a release that the file is not an upgrade of")
	case pgErr.Code == "42501" && strings.Contains(pgErr.Message, "create role") && !known.open:
		out = append(out, "the file makes its roles itself, which an owner of its own may not; later releases do not", "pgque-vendor update --latest")
	case pgErr.Code == "42501" && strings.Contains(pgErr.Message, "create role"):
		out = append(out, "the file of the first release makes its roles itself, which an owner of its own may not", ownedByLogin)
	case pgErr.Code == "P0001" || pgErr.Code == "P0004":
		out = append(out, "this is the text of a trigger or function of the database's own, such as an event trigger that forbids changes")
	}
	if pgErr.Hint != "" {
		out = append(out, "the server says: "+oneLine(pgErr.Hint))
	}
	return out
}
