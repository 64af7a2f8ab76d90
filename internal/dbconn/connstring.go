package dbconn

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

const escapeHint = `write the special characters of a password percent-encoded: @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, % as %25`

// stringError says what is wrong with a connection string, in words that
// repeat nothing of it.
type stringError struct {
	reason string
	hints  []string
}

// about makes the failure that the user sees.
func (e *stringError) about(source string) *fault.Error {
	return &fault.Error{Class: fault.Usage, Text: "the connection settings from " + source + ": " + e.reason, Hints: e.hints}
}

// knownKeys are the parameters of a connection string. Others are refused, as
// libpq refuses them: a misspelt sslmode must not turn encryption off, and a
// piece of a password must not become a setting sent to the server.
var knownKeys = map[string]bool{
	"host": true, "port": true, "database": true, "dbname": true, "user": true, "password": true, "passfile": true,
	"service": true, "servicefile": true, "application_name": true, "connect_timeout": true, "options": true,
	"ssl": true, "sslmode": true, "sslkey": true, "sslcert": true, "sslcertmode": true, "sslrootcert": true, "sslnegotiation": true,
	"sslpassword": true, "sslsni": true, "krbspn": true, "krbsrvname": true, "target_session_attrs": true,
	"min_protocol_version": true, "max_protocol_version": true, "channel_binding": true, "require_auth": true,
	"timezone": true, "default_query_exec_mode": true, "statement_cache_capacity": true, "description_cache_capacity": true,
	"pool_max_conns": true, "pool_min_conns": true, "pool_min_idle_conns": true, "pool_max_conn_lifetime": true,
	"pool_max_conn_idle_time": true, "pool_health_check_period": true, "pool_max_conn_lifetime_jitter": true,
	"pool_ping_timeout": true,
}

// checkConnString finds the mistakes that a parser takes for something else.
// It returns nil for a string that may be given to the parser.
func checkConnString(s string) *stringError {
	if strings.ContainsAny(s, "\x00\r\n") {
		return &stringError{reason: "it has a line break or a NUL in it"}
	}
	for _, scheme := range []string{"postgres://", "postgresql://"} {
		if rest, ok := strings.CutPrefix(s, scheme); ok {
			return checkURL(rest)
		}
	}
	if strings.HasPrefix(s, "jdbc:") {
		return &stringError{"it is a JDBC URL", []string{"it must start with postgres://, with the user and the password before the host: postgres://USER:PASSWORD@HOST:PORT/DATABASE"}}
	}
	if strings.Contains(s, "://") && !strings.Contains(strings.SplitN(s, "://", 2)[0], "=") || !strings.Contains(s, "=") {
		return &stringError{"it must start with postgres://", []string{"postgres://USER:PASSWORD@HOST:PORT/DATABASE, or keywords: host=HOST dbname=DATABASE user=USER"}}
	}
	return nil
}

// isURL tells the two forms of a connection string apart.
func isURL(s string) bool {
	return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

// checkURL looks at what follows the scheme. The authority ends at the first
// "/", "?" or "#": an "@" beyond it means that one of these three stands
// unescaped in the password, and then host, port and database are pieces of it.
func checkURL(rest string) *stringError {
	if strings.ContainsAny(rest, " \t") {
		return &stringError{"it has a space in it", []string{"write a space as %20", escapeHint}}
	}
	if badPercent(rest) {
		return &stringError{`it has a "%" that two hexadecimal digits do not follow`, []string{escapeHint}}
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.Count(authority, "@") > 1 {
		return unescaped("@")
	}
	path, query, _ := strings.Cut(tail, "?")
	if strings.Contains(path, "#") || strings.Contains(query, "#") {
		return unescaped("#")
	}
	if strings.Contains(path, "@") {
		return unescaped("/")
	}
	if strings.Count(strings.TrimPrefix(path, "/"), "/") > 0 {
		return &stringError{`the database's name has an unescaped "/"`, []string{"write it as %2F", escapeHint}}
	}
	for pair := range strings.SplitSeq(query, "&") {
		key, _, hasValue := strings.Cut(pair, "=")
		_, libpqs := libpqOnly[key]
		if pair == "" || hasValue && (knownKeys[key] || libpqs) {
			continue
		}
		if strings.Contains(pair, "@") {
			return unescaped("?")
		}
		return &stringError{`a parameter after the "?" is not one that PostgreSQL's clients know`,
			[]string{"known are, among others: sslmode, sslrootcert, connect_timeout, application_name, target_session_attrs, options", escapeHint}}
	}
	_, server, hasUser := strings.Cut(authority, "@")
	if !hasUser {
		server = authority
	}
	if !hasUser && strings.Contains(query, "@") {
		return unescaped("?")
	}
	if !portsAreNumbers(server) {
		return &stringError{"the port is not a number", []string{escapeHint}}
	}
	return nil
}

func unescaped(char string) *stringError {
	return &stringError{`the user or the password has an unescaped "` + char + `", or one before it`, []string{escapeHint}}
}

func badPercent(s string) bool {
	for i := range len(s) {
		if s[i] == '%' && (i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2])) {
			return true
		}
	}
	return false
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// portsAreNumbers checks "host:port,host:port", where a host may be an IPv6
// address in brackets.
func portsAreNumbers(server string) bool {
	for part := range strings.SplitSeq(server, ",") {
		if i := strings.LastIndexByte(part, ']'); i >= 0 {
			part = part[i+1:]
		}
		if _, port, ok := strings.Cut(part, ":"); ok && strings.Trim(port, "0123456789") != "" {
			return false
		}
	}
	return true
}

// parseReasons maps what the driver's parser says, which quotes the string and
// is never shown, to our own words.
var parseReasons = []struct{ contains, reason string }{
	{"invalid port", "the port is not a number from 1 to 65535"},
	{"sslmode is invalid", "sslmode is none of disable, allow, prefer, require, verify-ca, verify-full"},
	{"invalid sslcertmode", "sslcertmode is none of disable, allow, require"},
	{"unable to read CA file", "the file named by sslrootcert cannot be read"},
	{"unable to add CA", "the file named by sslrootcert holds no certificate"},
	{"unable to read sslkey", "the file named by sslkey cannot be read"},
	{"failed to decode sslkey", "the file named by sslkey holds no key"},
	{"unable to find sslpassword", "the key named by sslkey is encrypted and sslpassword is not set"},
	{"unable to decrypt key", "sslpassword does not open the key named by sslkey"},
	{"unable to read cert", "the file named by sslcert cannot be read"},
	{"unable to load cert", "sslcert and sslkey do not belong together"},
	{`both "sslcert" and "sslkey"`, "sslcert and sslkey are needed together"},
	{"failed to read service file", "PGSERVICE or service= is set and the service file cannot be read"},
	{"unable to find service", "the service file has no such service"},
	{"invalid connect_timeout", "connect_timeout is not a number of seconds"},
	{"unknown target_session_attrs", "target_session_attrs is none of any, read-write, read-only, primary, standby, prefer-standby"},
	{"unknown channel_binding", "channel_binding is none of disable, prefer, require"},
	{"invalid require_auth", "require_auth names a method that is not known"},
	{"could not match", "there are not as many ports as hosts"},
	{"is not in ConnStringAllowedKeys", "it has a parameter that PostgreSQL's clients do not know"},
	{"unterminated quoted string", "a quoted value does not end"},
	{`missing "="`, `a "=" is missing: a value with a space in it needs single quotes`},
	{"invalid keyword/value", `a "=" is missing: a value with a space in it needs single quotes`},
	{"protocol_version", "min_protocol_version or max_protocol_version is not valid"},
}

// explainParse says in our own words why the driver refused a string, or a
// PG* variable. A path of a file is no secret and helps, so it is named.
func explainParse(err error) *stringError {
	reason := "it cannot be read as a connection string"
	hints := []string{"postgres://USER:PASSWORD@HOST:PORT/DATABASE", escapeHint}
	var parseErr *pgconn.ParseConfigError
	if errors.As(err, &parseErr) {
		text := err.Error()
		if i := strings.LastIndex(text, "`: "); i >= 0 {
			text = text[i:]
		}
		for _, r := range parseReasons {
			if strings.Contains(text, r.contains) {
				reason, hints = r.reason, nil
				break
			}
		}
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		reason += ": " + pathErr.Err.Error()
	}
	return &stringError{reason, hints}
}
