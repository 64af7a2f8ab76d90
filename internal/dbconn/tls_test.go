//go:build !windows

package dbconn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// A server that takes this login with TLS only, and a wrong password: whatever
// sslmode is, the message says that the password is wrong, first (B050).
func TestPasswordFailureComesFirst(t *testing.T) {
	pg := pgtest.NewServer(t, pgtest.Options{HBA: []string{
		"hostssl all tlsonly 127.0.0.1/32 scram-sha-256",
		"hostnossl all tlsonly 127.0.0.1/32 reject",
	}})
	ca := turnTLSOn(t, pg)
	db := pg.Database(t)
	db.Exec(t, "create role tlsonly login password 'right-password'")
	connect := func(password, mode string) error {
		s := settingsFor(t, change(t, db.URL, func(u *url.URL) {
			u.User = url.UserPassword("tlsonly", password)
			u.RawQuery = mode
		}))
		conn, err := s.Wait(t.Context(), WaitOptions{Limit: 20 * time.Second})
		if err == nil {
			conn.Close(t.Context())
		}
		return err
	}
	for _, mode := range []string{"", "sslmode=prefer", "sslmode=allow", "sslmode=require", "sslmode=verify-ca&sslrootcert=" + ca} {
		err := connect("zQ7wXj9vKp3YmB", mode)
		checkFailure(t, err, "28P01")
		if _, after, _ := strings.Cut(err.Error(), ": "); !strings.HasPrefix(after, "password authentication failed") && !strings.Contains(err.Error(), "last: password authentication failed") {
			t.Errorf("%q: the password is not the first reason: %v", mode, err)
		}
		if showsSecret(fmt.Sprint(err, hintsOf(err))) {
			t.Errorf("%q: the password is shown: %v", mode, err)
		}
		if err := connect("right-password", mode); err != nil {
			t.Errorf("%q with the right password: %v", mode, err)
		}
	}
	checkFailure(t, connect("right-password", "sslmode=disable"), "28000", "pg_hba.conf")
	checkFailure(t, connect("right-password", "sslmode=verify-full&sslrootcert="+ca), "not for the host", "127.0.0.1")
	// By hostaddr the name is the host's (B086).
	s := settingsFor(t, change(t, db.URL, func(u *url.URL) {
		u.User = url.UserPassword("tlsonly", "right-password")
		u.Host, u.RawQuery = "elsewhere:"+u.Port(), "hostaddr=127.0.0.1&ssl_min_protocol_version=TLSv1.3&sslmode=verify-full&sslrootcert="+ca
	}))
	conn, err := s.Wait(t.Context(), WaitOptions{Limit: 20 * time.Second})
	if err != nil {
		t.Errorf("by hostaddr: %v", err)
	} else {
		conn.Close(t.Context())
	}
	checkFailure(t, connect("right-password", "sslmode=verify-ca"), "authority", "sslrootcert")
}

// turnTLSOn gives the server a certificate for the name "elsewhere" and
// returns the file of its authority.
func turnTLSOn(t *testing.T, pg *pgtest.Postgres) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "elsewhere"}, DNSNames: []string{"elsewhere"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyBytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := pg.SocketDir()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	write := func(name, kind string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	crt, private := write("server.crt", "CERTIFICATE", certificate), write("server.key", "EC PRIVATE KEY", keyBytes)
	conn := pg.Connect(t)
	for _, sql := range []string{
		"alter system set ssl_cert_file = '" + crt + "'", "alter system set ssl_key_file = '" + private + "'",
		"alter system set ssl = on", "select pg_reload_conf()",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		var on string
		if err := pg.Connect(t).QueryRow(t.Context(), "show ssl").Scan(&on); err != nil {
			t.Fatal(err)
		}
		if on == "on" {
			return crt
		}
		if time.Now().After(deadline) {
			t.Skip("this server was built without TLS")
		}
		time.Sleep(10 * time.Millisecond)
	}
}
