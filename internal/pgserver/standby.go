package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Standby makes a hot standby that streams from this cluster, on a port of its
// own, and starts it. It copies the running server's files itself: most
// distributions of the programs alone have no pg_basebackup.
func (c *Cluster) Standby(ctx context.Context) (*Cluster, error) {
	cfg := c.cfg
	cfg.Port = 0
	standby, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	if err := standby.backupOf(ctx, c); err != nil {
		standby.Close()
		return nil, fmt.Errorf("make a standby: %w", err)
	}
	if err := standby.launchOnFreePort(ctx); err != nil {
		standby.Close()
		return nil, err
	}
	return standby, nil
}

// backupOf fills the data folder from the running primary.
func (c *Cluster) backupOf(ctx context.Context, primary *Cluster) error {
	conn, err := primary.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)

	// The functions lost their pg_start_backup names, and an argument, in 15.
	start, stop := `select pg_backup_start('standby', true)`, `select labelfile from pg_backup_stop(false)`
	if conn.PgConn().ParameterStatus("server_version") < "15" {
		start, stop = `select pg_start_backup('standby', true, false)`, `select labelfile from pg_stop_backup(false, false)`
	}
	if _, err := conn.Exec(ctx, start); err != nil {
		return err
	}
	if err := c.copyData(primary.data()); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, stop).Scan(&label); err != nil {
		return err
	}
	files := map[string]string{
		"backup_label":   label,
		"standby.signal": "",
		"postgresql.auto.conf": fmt.Sprintf("primary_conninfo = 'host=%s port=%d user=%s password=%s sslmode=disable application_name=standby'\n",
			primary.Host, primary.Port, Superuser, primary.Password),
	}
	for name, text := range files {
		path := filepath.Join(c.data(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := c.owner.give(path); err != nil {
			return err
		}
	}
	return nil
}

// copyData copies a running server's files, except what belongs to that
// process or comes by streaming. Files that vanish meanwhile are not missed:
// the log that the standby replays removes them too.
func (c *Cluster) copyData(from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(c.data(), rel)
		switch top, rest, nested := strings.Cut(filepath.ToSlash(rel), "/"); {
		case top == "postmaster.pid" || top == "postmaster.opts":
			return nil
		case nested && !d.IsDir() && (top == "pg_wal" || top == "pg_replslot" || top == "pg_stat_tmp" || strings.HasPrefix(rest, "pgsql_tmp")):
			return nil
		case d.IsDir():
			err = os.Mkdir(to, 0o700)
		default:
			err = copyFile(path, to)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return c.owner.give(to)
	})
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if closeErr := dst.Close(); err == nil {
		err = closeErr
	}
	return err
}

// CatchUp waits until a standby has replayed all that this cluster has
// written.
func (c *Cluster) CatchUp(ctx context.Context, standby *Cluster) error {
	primaryConn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer primaryConn.Close(ctx)
	standbyConn, err := standby.connect(ctx)
	if err != nil {
		return err
	}
	defer standbyConn.Close(ctx)

	var written string
	if err := primaryConn.QueryRow(ctx, `select pg_current_wal_insert_lsn()::text`).Scan(&written); err != nil {
		return err
	}
	for {
		var done bool
		err := standbyConn.QueryRow(ctx, `select pg_last_wal_replay_lsn() >= $1::pg_lsn`, pgx.QueryExecModeSimpleProtocol, written).Scan(&done)
		if err != nil || done {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the standby: %w", context.Cause(ctx))
		case <-time.After(readyPoll):
		}
	}
}

// Promote turns a standby into a primary and returns when it takes writes.
func (c *Cluster) Promote(ctx context.Context) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var promoted bool
	if err := conn.QueryRow(ctx, `select pg_promote(true, 60)`).Scan(&promoted); err != nil {
		return err
	}
	if !promoted {
		return errors.New("promote the standby: it did not end its recovery in 60 s")
	}
	return nil
}
