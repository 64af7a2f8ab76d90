package dbconn

import (
	"crypto/tls"
	"maps"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgtest"
)

// libpq's own parameters: taken, or refused in so many words, and never sent to the
// server as settings (B086).
func TestLibpqParameters(t *testing.T) {
	clearEnvironment(t)
	for _, c := range []struct{ query, refused string }{
		{"client_encoding=LATIN1&keepalives=1&keepalives_idle=10&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=5000", ""},
		{"gssencmode=disable&gsslib=gssapi&gssdelegation=0&krbsrvname=postgres&load_balance_hosts=random&replication=false", ""},
		{"sslcompression=0&sslkeylogfile=x&sslsni=1&channel_binding=prefer&sslcrl=&requirepeer=&gssencmode=prefer", ""},
		{"ssl_min_protocol_version=TLSv1.2&ssl_max_protocol_version=TLSv1.3&ssl_min_protocol_version=TLSv1", ""},
		{"hostaddr=127.0.0.1", ""},
		{"requirepeer=postgres", "requirepeer is not supported"},
		{"sslcrl=/x", "sslcrl is not supported"},
		{"sslcrldir=/x", "sslcrldir is not supported"},
		{"gssencmode=require", "gssencmode is not supported"},
		{"gssencmode=requre", "gssencmode is not supported"},
		{"replication=database", "replication is not supported"},
		{"ssl_max_protocol_version=TLSv1.1", "ssl_max_protocol_version below TLSv1.2 is not supported"},
		{"ssl_min_protocol_version=1.3", "ssl_min_protocol_version is none of"},
		{"hostaddr=localhost", "hostaddr is not an address"},
		{"hostaddr=127.0.0.1,::1", "not as many addresses"},
		{"bogus=1", "not one that PostgreSQL's clients know"},
		{"search_path=x", "not one that PostgreSQL's clients know"},
	} {
		keywords := "host=h user=u dbname=d " + strings.ReplaceAll(strings.ReplaceAll(c.query, "&", "' "), "=", "='") + "'"
		for _, text := range []string{"postgres://u@h/d?" + c.query, keywords} {
			s, err := Resolve(input(map[string]string{"DATABASE_URL": text}))
			if c.refused != "" {
				want := c.refused
				if strings.Contains(want, "clients know") && text == keywords {
					want = "clients do not know"
				}
				if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), want) {
					t.Errorf("%q: %v, want %q", text, err, want)
				}
				continue
			}
			if err != nil {
				t.Errorf("%q: %v", text, err)
				continue
			}
			if sent := slices.Sorted(maps.Keys(s.Config().RuntimeParams)); strings.Join(sent, " ") != "application_name client_encoding datestyle" {
				t.Errorf("%q: sent to the server are %q", text, sent)
			}
			if _, err := s.PoolConfig(); err != nil {
				t.Errorf("%q: the pool: %v", text, err)
			}
		}
	}
	for _, c := range []struct{ variable, value, refused string }{
		{"PGREQUIREPEER", "postgres", "PGREQUIREPEER is not supported"},
		{"PGSSLCRL", "/x", "PGSSLCRL is not supported"},
		{"PGGSSENCMODE", "require", "PGGSSENCMODE is not supported"},
		{"PGREQUIRESSL", "1", "PGREQUIRESSL is not supported"},
		{"PGHOSTADDR", "h", "PGHOSTADDR is not an address"},
		{"PGGSSENCMODE", "disable", ""},
		{"PGCLIENTENCODING", "LATIN1", ""},
	} {
		s, err := Resolve(input(map[string]string{"DATABASE_URL": "postgres://u@h/d", c.variable: c.value}))
		switch {
		case c.refused == "" && (err != nil || !slices.Equal(s.Ignored, []string{c.variable})):
			t.Errorf("%s=%s: %v, %v", c.variable, c.value, s, err)
		case c.refused != "" && (!fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s=%s: %v", c.variable, c.value, err)
		}
	}
	s, err := Resolve(input(map[string]string{"DATABASE_URL": "postgres://u@h/d?fallback_application_name=mine"}))
	if err != nil || s.Config().RuntimeParams["application_name"] != "mine" {
		t.Errorf("fallback_application_name: %v", err)
	}
	s, err = Resolve(input(map[string]string{"DATABASE_URL": "postgres://u@h/d?ssl_min_protocol_version=TLSv1.3"}))
	if err != nil || s.Config().TLSConfig.MinVersion != tls.VersionTLS13 {
		t.Errorf("ssl_min_protocol_version: %v", err)
	}
}

// hostaddr is where a connection goes to, and the host is whose name a certificate
// must have; alone it is the host (B086).
func TestHostAddress(t *testing.T) {
	clearEnvironment(t)
	for _, c := range []struct {
		url, address string
		env          map[string]string
	}{
		{"postgres://u@h/d?hostaddr=127.0.0.1", "h:5432 (127.0.0.1)", nil},
		{"postgres://u@a,b:5433/d?hostaddr=10.0.0.1,10.0.0.2", "a:5432 (10.0.0.1), b:5433 (10.0.0.2)", nil},
		{"postgres://u@a,b/d?hostaddr=10.0.0.1,", "a:5432 (10.0.0.1), b:5432", nil},
		{"postgres://u@h/d", "h:5432 (::1)", map[string]string{"PGHOSTADDR": "::1"}},
		{"postgres://u@/d?hostaddr=10.0.0.1", "10.0.0.1:5432", nil},
		{"user=u hostaddr=10.0.0.1,::1 port=5433", "10.0.0.1:5433, [::1]:5433", nil},
		{"postgres:///d?user=u&sslmode=require", "127.0.0.1:5432", map[string]string{"PGHOSTADDR": "127.0.0.1"}},
	} {
		if runtime.GOOS == "windows" && !strings.Contains(c.address, "(") {
			continue // there no host is localhost
		}
		env := map[string]string{"DATABASE_URL": c.url}
		maps.Copy(env, c.env)
		s, err := Resolve(input(env))
		if err != nil || s.Address() != c.address {
			t.Errorf("%q: %v, want %s (%v)", c.url, s, c.address, err)
			continue
		}
		if s.Config().TLSConfig == nil {
			t.Errorf("%q: no TLS", c.url)
		}
	}

	db := pgtest.Database(t)
	config, err := pgx.ParseConfig(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := settingsFor(t, change(t, db.URL, func(u *url.URL) {
		u.Host = strings.Replace(u.Host, u.Hostname(), "nowhere.invalid", 1)
		u.RawQuery = "sslmode=disable&hostaddr=127.0.0.1"
	}))
	if s.config.Port != config.Port {
		t.Fatalf("port %d, want %d", s.config.Port, config.Port)
	}
	conn, err := s.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close(t.Context())
	pool, err := s.PoolConfig()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := pool.ConnConfig.LookupFunc(t.Context(), "nowhere.invalid"); err != nil || !slices.Equal(found, []string{"127.0.0.1"}) {
		t.Errorf("the pool looks up %q, %v", found, err)
	}
}
