// Package dbconn finds out which database to connect to, waits for it, and
// explains why it could not be reached.
//
// Secrets are the hard part. A connection string that is broken shows its
// password in the oddest places: as the host, as the port, as the name of a
// database. So a string is checked before anything of it is used, and no text
// of this package quotes it or what a parser says about it.
package dbconn

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stega/pgque-vendor/internal/fault"
)

// Input is what connection settings are made from.
type Input struct {
	// URLFile is the value of --database-url-file when it was typed, or "".
	URLFile string
	// Lookup reads an environment variable. The driver reads PG* from the
	// process's environment itself, so that Lookup has to be that environment.
	Lookup func(name string) (string, bool)
	// ReadFile reads a file that holds a connection string or a password.
	ReadFile func(path string) ([]byte, error)
	// ApplicationName is what pg_stat_activity shows, unless the user set one.
	ApplicationName string
}

// Settings say where and how to connect. They hold a secret: print Target and
// Source, never the configuration itself.
type Settings struct {
	// Source names what the settings came from, such as
	// `DATABASE_URL_FILE ("/run/secrets/events_url")`. It holds no secret.
	Source string
	// Ignored names the connection parameters and variables that were given and do
	// nothing here.
	Ignored []string

	config         *pgx.ConnConfig
	connString     string // for a pool's own settings; never printed
	passwordSource string
	dialled        map[string]string // the addresses that hostaddr gives for hosts
	oddPassword    bool              // begins or ends with white space, which is nearly always a mistake
	wantsPrimary   bool              // several hosts, and the user did not say which kind to take
}

// Resolve finds the settings. The first source that is set wins:
// --database-url-file, PGQUE_VENDOR_DATABASE_URL[_FILE], DATABASE_URL[_FILE],
// then PG* with libpq's defaults; PG* also fills what a URL leaves out. Every
// error is a *fault.Error of class Usage and free of secrets.
func Resolve(in Input) (*Settings, error) {
	src, err := findSource(in)
	if err != nil {
		return nil, err
	}
	if src.connString != "" {
		if err := checkConnString(src.connString); err != nil {
			return nil, err.about(src.name)
		}
	}
	if err := checkEnvironment(in); err != nil {
		return nil, err
	}
	config, err := parse(src.connString)
	if err != nil {
		var failure *stringError
		if config, src.connString, failure = parseWithoutHomeFiles(in, src.connString, err); failure != nil {
			return nil, failure.about(src.name)
		}
	}
	s := &Settings{Source: src.name, config: config, connString: src.connString, passwordSource: passwordSource(in, src)}
	if err := s.takeParameters(in); err != nil {
		return nil, err.about(src.name)
	}
	if err := s.takePasswordFile(in); err != nil {
		return nil, err
	}
	if err := s.checkParsed(); err != nil {
		return nil, err
	}
	s.prepare(in)
	return s, nil
}

func parse(connString string) (*pgx.ConnConfig, error) {
	return pgx.ParseConfigWithOptions(connString, pgx.ParseConfigOptions{
		ParseConfigOptions: pgconn.ParseConfigOptions{
			ConnStringAllowedKeys: slices.AppendSeq(slices.Collect(maps.Keys(knownKeys)), maps.Keys(libpqOnly)),
		},
	})
}

// takePasswordFile reads PGPASSWORD_FILE, the form in which compose hands over
// a secret. Like PGPASSWORD it gives way to a password in a URL.
func (s *Settings) takePasswordFile(in Input) error {
	path, _ := in.Lookup("PGPASSWORD_FILE")
	if path == "" {
		return nil
	}
	if v, _ := in.Lookup("PGPASSWORD"); v != "" {
		return bothSet("PGPASSWORD", "PGPASSWORD_FILE")
	}
	password, err := readSecret(in, "PGPASSWORD_FILE", path)
	if err != nil {
		return err
	}
	if s.config.Password == "" {
		s.config.Password = password
		s.passwordSource = "PGPASSWORD_FILE"
	}
	return nil
}

// checkParsed refuses what the parser let through and no server can be found
// by. The values are not shown: a broken string may have put a piece of the
// password in any of them.
func (s *Settings) checkParsed() error {
	for _, host := range s.hosts() {
		if strings.HasPrefix(host, "/") {
			continue
		}
		if strings.ContainsAny(host, " \t\r\n@/?#%\\\"'") {
			return (&stringError{reason: "the host name has a character that no host name has", hints: []string{escapeHint}}).about(s.Source)
		}
	}
	if s.config.User == "" {
		return fault.New(fault.Usage, "the connection settings (%s) name no user", s.Source).
			Hint("put the user into the URL, or set PGUSER")
	}
	if strings.ContainsAny(s.config.User+s.config.Database, "\x00\r\n") {
		return (&stringError{reason: "the user or the database has a line break in it"}).about(s.Source)
	}
	return nil
}

// prepare makes the configuration one that works through a pooler: no statement
// is prepared under a name, and no setting is sent at start-up that the user did
// not ask for, but for the three that every pooler keeps for each of its clients.
// The encoding and the dates' style have to be right: with a login's own, text
// would be garbled without an error, and 1 February become 2 January.
func (s *Settings) prepare(in Input) {
	s.config.DefaultQueryExecMode = pgx.QueryExecModeExec
	s.config.StatementCacheCapacity = 0
	s.config.DescriptionCacheCapacity = 0
	for key := range s.config.RuntimeParams {
		if strings.HasPrefix(key, "pool_") {
			delete(s.config.RuntimeParams, key)
		}
	}
	if s.config.RuntimeParams["application_name"] == "" {
		name := in.ApplicationName
		if name == "" {
			name = "pgque-vendor"
		}
		s.config.RuntimeParams["application_name"] = name
	}
	s.config.RuntimeParams["client_encoding"] = "UTF8"
	s.config.RuntimeParams["datestyle"] = "ISO"
	if s.config.ConnectTimeout == 0 {
		s.config.ConnectTimeout = 10 * time.Second
	}
	// A cancelled context sends a cancel request and waits a moment for the
	// answer, so that a transaction is rolled back before the process ends. A wait
	// for a notification has no answer to that, and must end within the second that
	// a stop may take.
	s.config.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: c, DeadlineDelay: 500 * time.Millisecond}
	}
	s.wantsPrimary = len(s.addresses()) > 1 && s.config.ValidateConnect == nil
	s.oddPassword = strings.TrimSpace(s.config.Password) != s.config.Password
}

// hosts lists each host once, in the order in which they are tried.
func (s *Settings) hosts() []string {
	hosts := []string{s.config.Host}
	for _, f := range s.config.Fallbacks {
		if !slices.Contains(hosts, f.Host) {
			hosts = append(hosts, f.Host)
		}
	}
	return hosts
}

// Address is where the server is: "host:port", or the path of a socket; with
// several servers all of them.
func (s *Settings) Address() string { return strings.Join(s.addresses(), ", ") }

// addresses lists each server once.
func (s *Settings) addresses() []string {
	addresses := []string{s.address(s.config.Host, s.config.Port)}
	for _, f := range s.config.Fallbacks {
		if a := s.address(f.Host, f.Port); !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

func (s *Settings) address(host string, port uint16) string {
	if dialled := s.dialled[host]; dialled != "" {
		return address(host, port) + " (" + dialled + ")"
	}
	return address(host, port)
}

func address(host string, port uint16) string {
	if network, path := pgconn.NetworkAddress(host, port); network == "unix" {
		return path
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Database is the database's name; like libpq, the user's name when none is given.
func (s *Settings) Database() string {
	if s.config.Database == "" {
		return s.config.User
	}
	return s.config.Database
}

// User is the login.
func (s *Settings) User() string { return s.config.User }

// Target is one line for people: where to, as whom, and where that was said.
func (s *Settings) Target() string {
	return "database " + strconv.Quote(s.Database()) + " at " + s.Address() + " as " + strconv.Quote(s.User()) + " (from " + s.Source + ")"
}

// OnWarning makes connections hand over the server's warnings, such as a REVOKE
// that found nothing to revoke. Notices below that are left out.
func (s *Settings) OnWarning(f func(text string)) {
	s.config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			f(s.scrub(n.Message))
		}
	}
}

// Config is a copy of the driver's configuration. It holds the password.
func (s *Settings) Config() *pgx.ConnConfig { return s.config.Copy() }

// PoolConfig is a pool's configuration with the same settings; pool_max_conns
// and its like are taken from the connection string.
func (s *Settings) PoolConfig() (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(s.connString)
	if err != nil {
		return nil, explainParse(err).about(s.Source)
	}
	pool.ConnConfig = s.Config()
	return pool, nil
}
