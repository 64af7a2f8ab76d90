package dbconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

// How long a failure to connect may last.
type patience int

const (
	giveUp    patience = iota // waiting does not help: a refused login, a wrong setting
	aWhile                    // the database may be about to be created: 15 seconds
	untilDone                 // the server may be about to start: until the deadline
)

// failure is one attempt's failure, sorted.
type failure struct {
	text     string // what went wrong, without the address
	hints    []string
	patience patience
	rank     int // of several failures in one attempt, the lowest says why
}

// Explain turns a failure to connect into one for a person. Of the tries that
// one attempt makes (TLS and then plain, several addresses), the one that says
// why comes first: with the default sslmode the last try's "no encryption"
// otherwise hides a wrong password.
func (s *Settings) Explain(err error) *fault.Error {
	f := s.sort(err)
	return &fault.Error{
		Class: fault.Database,
		Text:  fmt.Sprintf("connect to database %q at %s: %s", s.Database(), s.Address(), f.text),
		Hints: f.hints,
	}
}

// sort picks the failure that says why and appends the others, once each.
func (s *Settings) sort(err error) failure {
	var failures []failure
	for _, e := range tries(err) {
		failures = append(failures, s.classify(e))
	}
	slices.SortStableFunc(failures, func(a, b failure) int { return a.rank - b.rank })
	first := failures[0]
	seen := []string{first.text}
	for _, f := range failures[1:] {
		first.patience = max(first.patience, patienceOfOther(first, f))
		if f.rank < rankNoise && !slices.Contains(seen, f.text) {
			seen = append(seen, f.text)
		}
	}
	first.text = strings.Join(seen, "; another try: ")
	return first
}

// patienceOfOther lets one of several servers that is still starting extend
// the wait, but never past a refused login.
func patienceOfOther(first, other failure) patience {
	if first.rank <= rankRefused || other.rank >= rankNoise {
		return first.patience
	}
	return other.patience
}

const (
	rankPassword = iota
	rankRefused
	rankServer
	rankHBA
	rankTLS
	rankNetwork
	rankNoise // "server refused TLS connection" beside another reason
)

// tries takes an attempt's error apart: the driver joins one error for each
// address and each kind of encryption it tried.
func tries(err error) []error {
	var connectErr *pgconn.ConnectError
	if errors.As(err, &connectErr) {
		err = connectErr.Unwrap()
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			var all []error
			for _, one := range joined.Unwrap() {
				all = append(all, tries(one)...)
			}
			return all
		}
	}
	return []error{err}
}

func (s *Settings) classify(err error) failure {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return s.classifyServer(pgErr)
	}
	var dns *net.DNSError
	var unknownCA x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &dns):
		return failure{fmt.Sprintf("the host name %q cannot be resolved: %s", dns.Name, dns.Err),
			[]string{"is the server on the same network, and is the name spelt as its service is?"}, untilDone, rankNetwork}
	case errors.As(err, &hostname):
		return failure{fmt.Sprintf("the server's certificate is not for the host %q", hostname.Host),
			[]string{"connect by a name that the certificate has, or use sslmode=verify-ca"}, giveUp, rankTLS}
	case errors.As(err, &unknownCA):
		return failure{"the server's certificate is signed by an authority that is not known here",
			[]string{"name the authority's file: sslrootcert=/path/root.crt"}, giveUp, rankTLS}
	case errors.As(err, &invalid), errors.As(err, &verification):
		return failure{"the server's certificate cannot be verified: " + innermost(err), nil, giveUp, rankTLS}
	case strings.Contains(err.Error(), "server refused TLS connection"):
		return failure{"the server has no TLS, and sslmode asks for it",
			[]string{"turn TLS on in the server, or use sslmode=disable on a network that is trusted"}, giveUp, rankNoise}
	case errors.As(err, &record):
		return failure{"what answers there is not a PostgreSQL server", nil, giveUp, rankTLS}
	case errors.Is(err, pgconn.ErrReadOnlyConnection), errors.Is(err, pgconn.ErrStandbyConnection):
		return failure{"the server is in recovery (a standby), and a primary is asked for", nil, untilDone, rankServer}
	case errors.Is(err, pgconn.ErrReadWriteConnection), errors.Is(err, pgconn.ErrPrimaryConnection):
		return failure{"the server is a primary, and target_session_attrs asks for a standby", nil, untilDone, rankServer}
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure{"connection refused", []string{"is the server running, and is the port right?"}, untilDone, rankNetwork}
	case errors.Is(err, fs.ErrNotExist):
		return failure{"there is no server's socket", []string{"set PGHOST or DATABASE_URL when the server is not on this machine"}, untilDone, rankNetwork}
	case errors.Is(err, fs.ErrPermission):
		return failure{"the server's socket may not be opened by this user", nil, giveUp, rankNetwork}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), pgconn.Timeout(err):
		return failure{"no answer in time", nil, untilDone, rankNetwork}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return failure{"the server closed the connection", nil, untilDone, rankNetwork}
	}
	return failure{s.scrub(innermost(err)), nil, untilDone, rankNetwork}
}

// classifyServer sorts what the server, or a pooler in front of it, answered.
func (s *Settings) classifyServer(e *pgconn.PgError) failure {
	f := failure{text: fmt.Sprintf("%s (SQLSTATE %s)", s.scrub(e.Message), e.Code), patience: giveUp, rank: rankServer}
	if e.Detail != "" {
		f.text += ": " + s.scrub(e.Detail)
	}
	switch {
	case e.Code == "28P01" || strings.Contains(e.Message, "no such user"):
		f.rank = rankPassword
		f.hints = []string{s.passwordHint()}
		if s.oddPassword {
			f.hints = append(f.hints, "that password begins or ends with white space: is it meant to?")
		}
	case strings.Contains(e.Message, "pg_hba.conf"):
		f.rank = rankHBA
	case strings.HasPrefix(e.Code, "28"):
		f.rank = rankRefused
	case e.Code == "42501":
		f.rank = rankRefused
		f.hints = []string{fmt.Sprintf("run as the database's owner: GRANT CONNECT ON DATABASE %s TO %s;", quoteName(s.Database()), quoteName(s.User()))}
	case e.Code == "3D000" || strings.Contains(e.Message, "no such database"):
		f.patience = aWhile
		f.hints = []string{fmt.Sprintf("create it: CREATE DATABASE %s;", quoteName(s.Database()))}
	case strings.Contains(e.Message, "unsupported startup parameter"):
		f.hints = []string{"take options= (or PGOPTIONS, timezone=) out of the connection settings, or let PgBouncer drop it: ignore_startup_parameters = options"}
	case strings.HasPrefix(e.Code, "57P"), strings.HasPrefix(e.Code, "53"), strings.HasPrefix(e.Code, "08"), e.Code == "58000",
		e.Code == "57014": // a statement_timeout of milliseconds, and a busy machine
		f.patience = untilDone
	}
	return f
}

func (s *Settings) passwordHint() string {
	if s.config.Password == "" {
		return "no password is set: set PGPASSWORD_FILE to the name of a file that holds it, or PGPASSWORD, or put it into the password file (PGPASSFILE) or the URL"
	}
	return "the password came from " + s.passwordSource
}

// scrub is the second line of defence: no text that somebody else wrote leaves
// this package with the password in it.
func (s *Settings) scrub(text string) string {
	if len(s.config.Password) >= 4 {
		text = strings.ReplaceAll(text, s.config.Password, "…")
	}
	return text
}

func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// seconds writes a duration as a person would.
func seconds(d time.Duration) string { return d.Round(time.Second / 10).String() }
