package dbconn

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// libpqOnly are the parameters that libpq knows and the driver does not, with the
// variable of each ("" where it has none). The driver would send them to the server
// as settings.
var libpqOnly = map[string]string{
	"client_encoding": "PGCLIENTENCODING", "fallback_application_name": "", "hostaddr": "PGHOSTADDR",
	"keepalives": "", "keepalives_idle": "", "keepalives_interval": "", "keepalives_count": "", "tcp_user_timeout": "",
	"gssencmode": "PGGSSENCMODE", "gsslib": "PGGSSLIB", "gssdelegation": "PGGSSDELEGATION",
	"load_balance_hosts": "PGLOADBALANCEHOSTS", "replication": "",
	"requirepeer": "PGREQUIREPEER", "requiressl": "PGREQUIRESSL",
	"sslcompression": "PGSSLCOMPRESSION", "sslcrl": "PGSSLCRL", "sslcrldir": "PGSSLCRLDIR", "sslkeylogfile": "PGSSLKEYLOGFILE",
	"ssl_min_protocol_version": "PGSSLMINPROTOCOLVERSION", "ssl_max_protocol_version": "PGSSLMAXPROTOCOLVERSION",
}

// parameter is one of libpqOnly that was given.
type parameter struct{ key, name, value string } // name is the key's, or the variable's

// takeParameters does what libpq's own parameters ask for, where that can be done;
// refuses those whose loss somebody relies on not to happen; and notes the names of
// the rest, which change nothing that matters here, in Ignored.
func (s *Settings) takeParameters(in Input) *stringError {
	for _, p := range s.givenParameters(in) {
		var err *stringError
		switch p.key {
		case "hostaddr":
			err = s.takeAddresses(p)
		case "ssl_min_protocol_version", "ssl_max_protocol_version":
			err = s.limitTLS(p)
		case "fallback_application_name":
			if s.config.RuntimeParams["application_name"] == "" {
				s.config.RuntimeParams["application_name"] = p.value
			}
		default:
			err = s.ignore(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// givenParameters takes the parameters from what the driver would send to the
// server, and from the variables. Sorted, hostaddr comes before what needs the
// configuration that it makes.
func (s *Settings) givenParameters(in Input) []parameter {
	var given []parameter
	for key, variable := range libpqOnly {
		p := parameter{key, key, s.config.RuntimeParams[key]}
		delete(s.config.RuntimeParams, key)
		if p.value == "" && variable != "" {
			p.name = variable
			p.value, _ = in.Lookup(variable)
		}
		if p.value != "" {
			given = append(given, p)
		}
	}
	slices.SortFunc(given, func(a, b parameter) int { return strings.Compare(a.key, b.key) })
	return given
}

// ignore notes a parameter that does nothing here, but for a value that promises
// something.
func (s *Settings) ignore(p parameter) *stringError {
	harmless := true
	var hints []string
	switch p.key {
	case "requirepeer":
		harmless = false
		hints = []string{"leave it out; what proves a server here is TLS: sslmode=verify-full"}
	case "sslcrl", "sslcrldir":
		harmless = false
		hints = []string{"leave it out; certificates that were revoked are then taken"}
	case "gssencmode":
		harmless = p.value == "disable" || p.value == "prefer"
		hints = []string{"use TLS: sslmode=verify-full"}
	case "requiressl":
		harmless = p.value != "1" || !allowsPlain(s.config)
		hints = []string{"use sslmode=require"}
	case "replication":
		harmless = slices.Contains([]string{"false", "off", "no", "0"}, p.value)
	}
	if !harmless {
		return &stringError{p.name + " is not supported", hints}
	}
	s.Ignored = append(s.Ignored, p.name)
	return nil
}

// limitTLS sets the oldest or the newest TLS to talk. Less than 1.2 is never talked.
func (s *Settings) limitTLS(p parameter) *stringError {
	oldest := p.key == "ssl_min_protocol_version"
	var version uint16
	switch value := strings.ToLower(p.value); {
	case value == "tlsv1.3":
		version = tls.VersionTLS13
	case value == "tlsv1.2", oldest && (value == "tlsv1.1" || value == "tlsv1"):
		version = tls.VersionTLS12
	case value == "tlsv1.1", value == "tlsv1":
		return &stringError{reason: p.name + " below TLSv1.2 is not supported"}
	default:
		return &stringError{reason: p.name + " is none of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"}
	}
	configs := []*tls.Config{s.config.TLSConfig}
	for _, f := range s.config.Fallbacks {
		configs = append(configs, f.TLSConfig)
	}
	for _, config := range configs {
		switch {
		case config == nil: // plain text, as sslmode has it
		case oldest:
			config.MinVersion = version
		default:
			config.MaxVersion = version
		}
	}
	return nil
}

// takeAddresses makes connections go to the addresses of hostaddr, in the hosts'
// order, while certificates are still proved against the hosts' names. Without a
// host the addresses are the hosts.
func (s *Settings) takeAddresses(p parameter) *stringError {
	addresses := strings.Split(p.value, ",")
	for _, a := range addresses {
		if _, err := netip.ParseAddr(a); err != nil && a != "" {
			return &stringError{reason: p.name + " is not an address: it takes numbers, not names"}
		}
	}
	onlySockets := !slices.ContainsFunc(s.hosts(), func(host string) bool { return !isSocket(host) })
	if onlySockets { // the default, where no host was given
		s.connString = withSettings(s.connString, "host="+p.value)
		config, err := parse(s.connString)
		if err != nil {
			return explainParse(err)
		}
		config.RuntimeParams = s.config.RuntimeParams // the same, without libpq's own
		s.config = config
	}
	hosts := s.hosts()
	switch {
	case slices.ContainsFunc(hosts, isSocket):
		return &stringError{reason: p.name + " and a host that is a socket's folder exclude each other"}
	case len(hosts) != len(addresses):
		return &stringError{reason: fmt.Sprintf("there are not as many addresses in %s as hosts", p.name)}
	case onlySockets:
		return nil
	}
	s.dialled = map[string]string{}
	for i, host := range hosts {
		if addresses[i] != "" {
			s.dialled[host] = addresses[i]
		}
	}
	lookUp, dialled := s.config.LookupFunc, s.dialled
	s.config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		if a := dialled[host]; a != "" {
			return []string{a}, nil
		}
		return lookUp(ctx, host)
	}
	return nil
}
