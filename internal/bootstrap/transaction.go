package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

// lockKey is the advisory lock under which only one bootstrap at a time works
// on a database: the letters "pgque-bs" as a number. Another tool that installs
// PgQue may take the same one.
const lockKey int64 = 0x70677175652d6273

// begin opens a transaction that no setting of the server, the database, the
// login or a pooler's last client can bend: isolation and access mode by name,
// everything else by SET LOCAL in the same message, so that a statement_timeout
// of milliseconds has hardly a statement to hit. Nothing is set at start-up or
// for the session, so it works through PgBouncer in transaction mode.
//
// lockTimeout 0 means no limit.
func begin(ctx context.Context, conn *pgx.Conn, access string, lockTimeout time.Duration) (pgx.Tx, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginQuery(access, lockTimeout)})
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "57014" || pgErr.Code == "25P04") { // statement_timeout, transaction_timeout
		return nil, fmt.Errorf("%w: %w", errNotBegun, err)
	}
	return tx, err
}

// errNotBegun: a time limit of the login's was over before it was lifted, on a
// machine that had other things to do.
var errNotBegun = errors.New("begin")

func beginQuery(access string, lockTimeout time.Duration) string {
	settings := []string{
		"statement_timeout = 0",
		"idle_in_transaction_session_timeout = 0",
		fmt.Sprintf("lock_timeout = %d", lockTimeout.Milliseconds()),
		"search_path = ''",
		"client_encoding = 'UTF8'",
		"standard_conforming_strings = on",
		"default_tablespace = ''",
		"client_min_messages = notice",
		"quote_all_identifiers = off", // it changes how signatures are spelt
		"jit = off",                   // over a large catalog it would compile the probe, which runs once
	}
	return "begin transaction isolation level read committed " + access + "; set local " + strings.Join(settings, "; set local ") +
		"; select set_config('transaction_timeout', '0', true) where current_setting('server_version_num')::int >= 170000"
}

// rollback ends a transaction also when its context is cancelled, so that its
// locks are gone before the process is.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	tx.Rollback(ctx) // when it fails the connection is lost, and the server rolls back by itself
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn.Close(ctx)
}

// lockInstall takes the install lock. When somebody else has it, it says who,
// and waits until the context's deadline.
func lockInstall(ctx context.Context, tx pgx.Tx, o Options) error {
	var got bool
	if err := tx.QueryRow(ctx, "select pg_try_advisory_xact_lock($1)", lockKey).Scan(&got); err != nil || got {
		return err
	}
	holding, err := lockHolder(ctx, tx)
	if err != nil {
		return err
	}
	o.say("waiting for the install lock, held by %s", holding)
	// The lock has its own limit, the context's deadline; a table lock's is set after it.
	if err = setLockTimeout(ctx, tx, 0); err == nil {
		_, err = tx.Exec(ctx, "select pg_advisory_xact_lock($1)", lockKey)
	}
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		late := fault.New(fault.Database, "the install lock was not got in time; it is held by %s", holding)
		if len(holding) > 0 {
			late.Hint("if that is a bootstrap that hangs, or a session that was forgotten, end it: %s", holding.end())
		}
		return late
	}
	if err != nil {
		return err
	}
	return setLockTimeout(ctx, tx, o.LockTimeout)
}

func setLockTimeout(ctx context.Context, tx pgx.Tx, d time.Duration) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("set local lock_timeout = %d", d.Milliseconds()))
	return err
}

// holder is a session that has a lock.
type holder struct {
	PID  int
	Text string // "pid 7 (its application, its state)"
}

type holders []holder

func (h holders) String() string {
	var texts []string
	for _, session := range h {
		texts = append(texts, session.Text)
	}
	if len(texts) == 0 {
		return "a session that has ended since"
	}
	return strings.Join(texts, ", ")
}

// end is the SQL that ends them.
func (h holders) end() string {
	var calls []string
	for _, session := range h {
		calls = append(calls, fmt.Sprintf("pg_terminate_backend(%d)", session.PID))
	}
	return "SELECT " + strings.Join(calls, ", ") + ";"
}

func collectHolders(rows pgx.Rows, err error) (holders, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[holder])
}

// lockHolder finds the session that has the install lock.
func lockHolder(ctx context.Context, tx pgx.Tx) (holders, error) {
	return collectHolders(tx.Query(ctx, `
		select a.pid, format('pid %s (%s, %s, since %s)', a.pid, coalesce(nullif(a.application_name, ''), 'no application name'),
		              coalesce(a.state, 'state not visible'), coalesce(to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SS TZ'), '?'))
		from pg_locks as l
		join pg_stat_activity as a on a.pid = l.pid
		where l.locktype = 'advisory' and l.granted and l.objsubid = 1
		  and l.database = (select oid from pg_database where datname = current_database())
		  and l.classid::bigint = $1 and l.objid::bigint = $2`, int64(uint64(lockKey)>>32), lockKey&0xffffffff))
}

// lockTables takes the locks that the file takes anyway, in the order in which
// consumers take theirs: the subscription, then the retry queue. The file's own
// order is the opposite, which gives deadlocks under load.
func lockTables(ctx context.Context, tx pgx.Tx, tables []string) error {
	has := make(map[string]bool)
	for _, t := range tables {
		has[t] = true
	}
	for _, l := range []struct{ table, mode string }{
		{"subscription", "access exclusive"},
		{"retry_queue", "access exclusive"},
		{"config", "access exclusive"},
		{"dead_letter", "share row exclusive"},
	} {
		if !has[l.table] {
			continue
		}
		if _, err := tx.Exec(ctx, "lock table pgque."+l.table+" in "+l.mode+" mode"); err != nil {
			return fmt.Errorf("lock pgque.%s: %w", l.table, err)
		}
	}
	return nil
}

// blockers finds who holds locks on PgQue's tables, after a lock was not
// got in time. It is asked in a transaction of its own: the failed one can
// answer nothing any more.
func blockers(ctx context.Context, conn *pgx.Conn) holders {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	tx, err := begin(ctx, conn, "read only", 0)
	if err != nil {
		return nil
	}
	defer rollback(tx)
	found, _ := collectHolders(tx.Query(ctx, `
		select distinct a.pid, format('pid %s (%s, %s)', a.pid, coalesce(nullif(a.application_name, ''), 'no application name'), coalesce(a.state, 'state not visible'))
		from pg_locks as l
		join pg_class as c on c.oid = l.relation
		join pg_namespace as n on n.oid = c.relnamespace
		join pg_stat_activity as a on a.pid = l.pid
		where n.nspname = 'pgque' and l.granted and l.pid <> pg_backend_pid()
		  and l.database = (select oid from pg_database where datname = current_database())
		order by 1 limit 5`))
	return found
}
