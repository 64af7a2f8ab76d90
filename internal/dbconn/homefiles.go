package dbconn

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// homeFiles are the files of TLS that libpq takes where their settings are not
// given: in ~/.postgresql, on Windows in %APPDATA%\postgresql.
var homeFiles = []struct{ setting, variable, file string }{
	{"sslrootcert", "PGSSLROOTCERT", "root.crt"},
	{"sslcert", "PGSSLCERT", "postgresql.crt"},
	{"sslkey", "PGSSLKEY", "postgresql.key"},
}

// parseWithoutHomeFiles parses again after a failure, without the files that
// nobody asked for. libpq reads them only when it talks TLS, and goes on without
// TLS where sslmode allows that. Where TLS is asked for they count, so that the
// failure stands, in words that name them.
func parseWithoutHomeFiles(in Input, connString string, failure error) (*pgx.ConnConfig, string, *stringError) {
	said := explainParse(failure)
	var unasked []string
	for _, f := range homeFiles {
		named := "the file named by " + f.setting
		if v, _ := in.Lookup(f.variable); v == "" && !hasSetting(connString, f.setting) {
			unasked = append(unasked, f.setting)
			said.reason = strings.Replace(said.reason, named, "~/.postgresql/"+f.file+", which is read where "+f.setting+" is not set,", 1)
		}
	}
	// A half of a pair is somebody's, and so may be the settings of a service.
	pair := slices.Contains(unasked, "sslcert") && slices.Contains(unasked, "sslkey")
	service, _ := in.Lookup("PGSERVICE")
	if !isFileFailure(failure) || !pair || service != "" || hasSetting(connString, "service") {
		return nil, "", said
	}
	var empty []string
	for _, setting := range unasked {
		empty = append(empty, setting+"=")
	}
	without := withSettings(connString, empty...)
	config, err := parse(without)
	if err != nil || !allowsPlain(config) {
		return nil, "", said
	}
	return config, without, nil
}

func isFileFailure(err error) bool {
	text := err.Error()
	return slices.ContainsFunc([]string{"CA file", "add CA", "sslkey", "sslpassword", "decrypt key", "read cert", "load cert"},
		func(words string) bool { return strings.Contains(text, words) })
}

// withSettings adds settings to a connection string that does not have them. They
// are given as in a URL: "name=value".
func withSettings(connString string, settings ...string) string {
	if isURL(connString) {
		separator := "?"
		if strings.Contains(connString, "?") {
			separator = "&"
		}
		return connString + separator + strings.Join(settings, "&")
	}
	var b strings.Builder
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		b.WriteString(name + "='" + value + "' ")
	}
	return b.String() + connString
}

// allowsPlain reports whether sslmode is disable, allow or prefer: a server's
// certificate is proved in none of them.
func allowsPlain(config *pgx.ConnConfig) bool {
	return !isSocket(config.Host) && config.TLSConfig == nil ||
		slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool { return !isSocket(f.Host) && f.TLSConfig == nil })
}

// isSocket reports whether a host is the folder of a socket.
func isSocket(host string) bool {
	network, _ := pgconn.NetworkAddress(host, 0)
	return network == "unix"
}
