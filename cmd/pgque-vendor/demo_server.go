package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgserver"
)

// demoPrograms finds PostgreSQL's programs, and downloads them where there are none.
func demoPrograms(ctx context.Context, env *environment) (string, error) {
	programs, err := pgserver.Find(env.lookup)
	switch {
	case err == nil:
		return programs, nil
	case !errors.Is(err, pgserver.ErrNotFound):
		return "", fault.New(fault.Usage, "%s", err)
	}
	return downloadServer(ctx, env, demoCache(env), mavenCentral)
}

// demoCache is where a downloaded server is kept. Root hands the server to another
// user, who can't enter root's own cache.
func demoCache(env *environment) string {
	if runtime.GOOS != "windows" && os.Geteuid() == 0 {
		return "/var/cache/pgque-vendor"
	}
	if dir := cacheDir(env); dir != "" {
		return filepath.Join(dir, "pgque-vendor", "postgresql")
	}
	return filepath.Join(os.TempDir(), "pgque-vendor-"+strconv.Itoa(os.Getuid()))
}

// startDemoServer starts a server that asks for a password, a new one each time:
// others on this machine can reach its port.
func startDemoServer(ctx context.Context, programs string) (*pgserver.Cluster, error) {
	limited, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	cluster, err := pgserver.Start(limited, pgserver.Config{
		BinDir:   programs,
		Auth:     "scram-sha-256",
		Password: rand.Text(),
	})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "start a throwaway PostgreSQL from %q: %s", programs, err)
	}
	return cluster, nil
}

// prepare makes what a new database server of the users has: the database, and the
// application's login.
func (d *demo) prepare(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	conn, err := pgx.Connect(limited, d.cluster.URL("", "", ""))
	if err != nil {
		return fault.New(fault.Database, "connect to the throwaway PostgreSQL: %s", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	password := rand.Text() // letters and digits only
	for _, statement := range []string{
		"create database " + pgx.Identifier{demoDatabase}.Sanitize(),
		"create role " + pgx.Identifier{demoLogin}.Sanitize() + " login password '" + password + "'",
	} {
		if _, err := conn.Exec(limited, statement); err != nil {
			return fault.New(fault.SQL, "prepare the throwaway PostgreSQL: %s", err)
		}
	}
	lines := ""
	for _, login := range [][2]string{{pgserver.Superuser, d.cluster.Password}, {demoLogin, password}} {
		lines += fmt.Sprintf("%s:%d:*:%s:%s\n", d.cluster.Host, d.cluster.Port, login[0], login[1])
	}
	if err := os.WriteFile(d.passFile, []byte(lines), 0o600); err != nil {
		return fault.New(fault.Usage, "write a password file: %s", err)
	}
	var version string
	if err := conn.QueryRow(limited, "show server_version").Scan(&version); err != nil {
		return fault.New(fault.SQL, "ask the throwaway PostgreSQL for its version: %s", err)
	}
	d.sayf("A throwaway PostgreSQL %s (%s)\nand a temporary folder (%s) are all that is used.", version, d.cluster.BinDir, d.folder)
	return nil
}

func (d *demo) port() string { return strconv.Itoa(d.cluster.Port) }

// untilSettled waits until the consumer has finished every event.
func (d *demo) untilSettled(ctx context.Context, consumer *child) error {
	conn, err := pgx.Connect(ctx, d.cluster.URL(demoDatabase, "", ""))
	if err != nil {
		return fault.New(fault.Database, "connect to the throwaway PostgreSQL: %s", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		settled, err := demoSettled(ctx, conn, consumer.output())
		if err != nil || settled {
			return err
		}
		select {
		case <-consumer.ended:
			return fault.New(fault.Usage, "%q ended before it had handled everything: %s", consumer.title, consumer.cmd.ProcessState)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
