// Package pgserver runs a throwaway PostgreSQL: a cluster in a temporary
// folder that is gone when its process is, also when that was killed. It
// serves the tests (through package pgtest) and the demo. It needs no set-up
// and works as root, whom PostgreSQL itself refuses.
package pgserver

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Superuser is the name of every cluster's superuser.
const Superuser = "postgres"

// Config says what cluster to make. Only BinDir is required.
type Config struct {
	BinDir   string            // where initdb and postgres are: from Find or Download
	Parent   string            // the folder in which the cluster's own folder is made; default: the system's temporary folder
	Port     int               // default: a free one
	Auth     string            // "trust" (default), "scram-sha-256" or another method of pg_hba.conf
	Password string            // the superuser's; default "postgres"
	HBA      []string          // lines of pg_hba.conf that come before ours
	Settings map[string]string // of postgresql.conf; they win over ours
	Fsync    bool              // default off: a throwaway cluster has nothing to lose
	Locale   string            // default C.UTF-8, or C where the system lacks that
	Encoding string            // default UTF8
}

// Cluster is a PostgreSQL server of our own.
type Cluster struct {
	Host     string // 127.0.0.1
	Port     int
	Password string // the superuser's
	Dir      string // holds the data folder, the log and the socket
	BinDir   string

	cfg   Config
	owner owner
	guard *guard

	mu      sync.Mutex
	process *os.Process
	ended   chan struct{} // closed when process has ended
	log     *os.File
}

// Start makes a cluster and starts it. ctx bounds the start only. Call Close
// when done; a process that ends without it, however it ends, takes the
// cluster with it.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.initialize(ctx); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.launchOnFreePort(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// prepare makes the cluster's folder and the guard that will remove it.
func prepare(cfg Config) (*Cluster, error) {
	if cfg.BinDir == "" {
		return nil, fmt.Errorf("start PostgreSQL: no folder with its programs was given")
	}
	if cfg.Password == "" {
		cfg.Password = "postgres"
	}
	if cfg.Auth == "" {
		cfg.Auth = "trust"
	}
	owner, err := findOwner()
	if err != nil {
		return nil, err
	}
	parent := cfg.Parent
	if parent == "" {
		parent = owner.tempDir()
	}
	dir, err := os.MkdirTemp(parent, "pgque-pg-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for PostgreSQL: %w", err)
	}
	c := &Cluster{Host: "127.0.0.1", Port: cfg.Port, Password: cfg.Password, Dir: dir, BinDir: cfg.BinDir, cfg: cfg, owner: owner}
	if c.guard, err = startGuard(dir); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := owner.give(dir); err != nil {
		c.Close()
		return nil, fmt.Errorf("hand %q to the server's user: %w", dir, err)
	}
	c.log, err = os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("make PostgreSQL's log: %w", err)
	}
	return c, nil
}

func (c *Cluster) data() string { return filepath.Join(c.Dir, "data") }

// initialize runs initdb and writes the two configuration files.
func (c *Cluster) initialize(ctx context.Context) error {
	pwfile := filepath.Join(c.Dir, "password")
	if err := os.WriteFile(pwfile, []byte(c.Password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(pwfile)
	if err := c.owner.give(pwfile); err != nil {
		return err
	}

	locale := c.cfg.Locale
	if locale == "" {
		locale = "C.UTF-8"
	}
	encoding := c.cfg.Encoding
	if encoding == "" {
		encoding = "UTF8"
	}
	initdb := func(locale string) error {
		return c.run(ctx, "initdb", "--no-sync", "--username="+Superuser, "--pwfile="+pwfile, "--auth="+c.cfg.Auth,
			"--encoding="+encoding, "--locale="+locale, "--pgdata="+c.data())
	}
	err := initdb(locale)
	if err != nil && c.cfg.Locale == "" && strings.Contains(err.Error(), "locale") {
		err = initdb("C") // macOS before 14 has no C.UTF-8
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.data(), "pg_hba.conf"), []byte(c.hba()), 0o600); err != nil {
		return err
	}
	conf, err := os.OpenFile(filepath.Join(c.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = conf.WriteString(c.settings())
	if closeErr := conf.Close(); err == nil {
		err = closeErr
	}
	return err
}

func (c *Cluster) hba() string {
	lines := slices.Clone(c.cfg.HBA)
	for _, database := range []string{"all", "replication"} {
		if runtime.GOOS != "windows" {
			lines = append(lines, "local "+database+" all "+c.cfg.Auth)
		}
		lines = append(lines, "host "+database+" all 127.0.0.1/32 "+c.cfg.Auth)
	}
	return strings.Join(lines, "\n") + "\n"
}

func (c *Cluster) settings() string {
	settings := map[string]string{
		"listen_addresses":          c.Host,
		"max_connections":           "200",
		"max_prepared_transactions": "10",
		"shared_buffers":            "64MB",
		"wal_keep_size":             "256MB", // a standby needs no slot
		"timezone":                  "UTC",
		"log_timezone":              "UTC",
		"lc_messages":               "C",
		"log_line_prefix":           "%m [%p] %q%u@%d %a: ",
	}
	if !c.cfg.Fsync {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
	}
	maps.Copy(settings, c.cfg.Settings)
	var b strings.Builder
	b.WriteString("\n")
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	return b.String()
}

// URL returns a connection string. An empty database means "postgres", an
// empty user the superuser with its password.
func (c *Cluster) URL(database, user, password string) string {
	if database == "" {
		database = "postgres"
	}
	if user == "" {
		user, password = Superuser, c.Password
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(user, password),
		Host:     net.JoinHostPort(c.Host, strconv.Itoa(c.Port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Log returns what the server has written to its log so far.
func (c *Cluster) Log() string {
	text, err := os.ReadFile(filepath.Join(c.Dir, "log"))
	if err != nil {
		return ""
	}
	return string(text)
}

// connect opens a connection as the superuser to the database "postgres".
func (c *Cluster) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, c.URL("", "", ""))
}

// FreePort returns a TCP port of 127.0.0.1 that nobody listens on just now.
func FreePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Auth returns the authentication method that pg_hba.conf asks for.
func (c *Cluster) Auth() string { return c.cfg.Auth }
