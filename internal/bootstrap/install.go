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
	"github.com/stega/pgque-vendor/internal/sqltext"
)

// install carries the plan out in one transaction. The plan is made again under
// the lock: another bootstrap may just have done the work.
func install(ctx context.Context, conn *pgx.Conn, f File, o Options) (*Report, error) {
	tx, err := begin(ctx, conn, "read write", o.LockTimeout)
	if err != nil {
		return nil, err
	}
	defer rollback(tx)
	if err := lockInstall(ctx, tx, o); err != nil {
		return nil, err
	}
	s, functions, err := read(ctx, tx, f, o)
	if err != nil {
		return nil, err
	}
	o = o.forLogin(s.User)
	plan := makePlan(s, f, functions, o)
	if o.Provisioner != nil && plan.Refusal == nil {
		steps, err := look(ctx, tx, s, plan, o.Provisioner)
		if err != nil {
			return report(s, plan), err
		}
		plan.provide(s, steps)
	}
	r := report(s, plan)
	if plan.Refusal != nil {
		return r, plan.Refusal
	}
	if plan.Empty() {
		return r, nil
	}
	if err := carryOut(ctx, tx, s, plan, f, o); err != nil {
		return r, err
	}
	after, err := prove(ctx, tx, r, f, functions, o)
	if err != nil {
		return r, err
	}
	if plan.Install {
		if err := record(ctx, tx, plan, s, after, f, functions, o); err != nil {
			return r, err
		}
	}
	if o.beforeCommit != nil {
		if err := o.beforeCommit(ctx, tx); err != nil {
			return r, err
		}
	}
	return r, commit(ctx, tx)
}

// carryOut runs the plan. Roles, rights and grants are the login's to give;
// everything in the schema belongs to the owner, so the owner makes it.
func carryOut(ctx context.Context, tx pgx.Tx, s *state, p *Plan, f File, o Options) error {
	if err := execAll(ctx, tx, p.Before); err != nil {
		return err
	}
	// A superuser may lock and move what is not the owner's; nobody else has to.
	if !s.Superuser {
		if err := p.become(ctx, tx, s); err != nil {
			return err
		}
	}
	if p.Install || len(p.Moves) > 0 {
		if err := lockTables(ctx, tx, s.Tables); err != nil {
			return err
		}
	}
	if err := execAll(ctx, tx, p.Moves); err != nil {
		return err
	}
	if s.Superuser {
		if err := p.become(ctx, tx, s); err != nil {
			return err
		}
	}
	if p.Install {
		if err := runFile(ctx, tx, s, f); err != nil {
			return err
		}
	}
	if err := execAll(ctx, tx, p.AsOwner); err != nil {
		return err
	}
	if o.Provisioner != nil && len(p.Provide) > 0 {
		if err := o.Provisioner.Apply(ctx, tx); err != nil {
			return err
		}
	}
	if p.ownerSetUp {
		if _, err := tx.Exec(ctx, "reset role"); err != nil {
			return err
		}
	}
	return execAll(ctx, tx, p.After)
}

// become acts as the owner until the end of the transaction. A run that only
// completes grants needs not, and one that only adds queues may have the rights
// for that itself.
func (p *Plan) become(ctx context.Context, tx pgx.Tx, s *state) error {
	if !p.ownerSetUp || !p.Install && len(p.AsOwner) == 0 && (len(p.Provide) == 0 || !p.canActAsOwner(s)) {
		return nil
	}
	_, err := tx.Exec(ctx, "set local role "+quoteIdent(p.Owner))
	return err
}

// runFile sends the whole file as one message. It is not split: it has a
// "commit" inside a procedure and nested dollar quotes, and a splitter that is
// wrong once installs half a file.
func runFile(ctx context.Context, tx pgx.Tx, s *state, f File) error {
	refusal, err := checkData(ctx, tx, s)
	if err != nil {
		return err
	}
	if refusal != nil {
		return refusal
	}
	server := tx.Conn().PgConn()
	completed, ended := 0, -1
	results := server.Exec(ctx, string(f.SQL))
	for results.NextResult() {
		tag, err := results.ResultReader().Close()
		if err != nil {
			continue
		}
		if ended < 0 && endsTransaction(tag.String()) {
			ended = completed
		}
		completed++
	}
	err = results.Close()
	switch {
	case ended >= 0:
		return notOurs(f, ended, err)
	case err != nil:
		return &fileError{err: err, completed: completed}
	case server.TxStatus() != 'T':
		return notOurs(f, completed, nil)
	}
	return nil
}

// endsTransaction goes by what the server says that it has done. BEGIN is among it:
// in our transaction it is only a warning, but behind a ROLLBACK it begins another.
func endsTransaction(commandTag string) bool {
	return contains([]string{"COMMIT", "PREPARE TRANSACTION", "BEGIN", "START TRANSACTION"}, commandTag)
}

// notOurs is the failure of a file that went on in another transaction than the one
// it was sent in. Nobody can say that nothing was changed: what it committed stays.
func notOurs(f File, ended int, cause error) error {
	line, _ := sqltext.StatementAt(f.SQL, ended)
	text := "pgque.sql ended the transaction that it was run in"
	if line > 0 {
		text = fmt.Sprintf("pgque.sql:%d: the file ended the transaction that it was run in", line)
	}
	if cause != nil {
		text += ", and failed: " + short(cause)
	}
	return fault.New(fault.SQL, "%s; what it changed may have stayed, it was not proved and is not recorded", text).
		Hint("pgque-vendor bootstrap --plan   # what the database has now")
}

// record writes the provenance of the install that has just been proved.
func record(ctx context.Context, tx pgx.Tx, p *Plan, before, after *state, f File, functions map[string][]overload, o Options) error {
	rest := ""
	if before.Schema != nil {
		_, rest = parseProvenance(before.Schema.Comment)
	}
	sql := commentSQL(f.provenance(fingerprint(ownFunctions(functions, after.Functions)), o.Tool), rest)
	if err := p.become(ctx, tx, before); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, sql); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "reset role")
	return err
}

// dataCheck refuses an install for rows of the schema.
type dataCheck func(ctx context.Context, tx pgx.Tx, s *state) (*fault.Error, error)

// checkData finds rows that an upgrade from the first release stumbles over at
// its end: dead letters that are there twice, for which a later release has a
// unique index.
func checkData(ctx context.Context, tx pgx.Tx, s *state) (*fault.Error, error) {
	if s.Schema == nil || !contains(s.Tables, "dead_letter") {
		return nil, nil
	}
	var doubles int
	err := tx.QueryRow(ctx, `
		select case when to_regclass('pgque.dl_queue_consumer_ev_idx') is null then (
			select count(*) from (
				select from pgque.dead_letter group by dl_queue_id, dl_consumer_id, ev_id having count(*) > 1) as d)
		else 0 end`).Scan(&doubles)
	if err != nil || doubles == 0 {
		return nil, err
	}
	return fault.New(fault.Policy, "pgque.dead_letter has %d events twice or more for one consumer, which the file's unique index does not allow", doubles).
		Hint("delete the older row of each: DELETE FROM pgque.dead_letter AS a USING pgque.dead_letter AS b WHERE a.dl_queue_id = b.dl_queue_id AND a.dl_consumer_id = b.dl_consumer_id AND a.ev_id = b.ev_id AND a.ctid < b.ctid;"), nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func execAll(ctx context.Context, tx pgx.Tx, statements []string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return &statementError{sql: sql, err: err}
		}
	}
	return nil
}

// commit tells three ends apart: committed, rolled back, and not known, which
// is a connection that was lost before the answer came.
func commit(ctx context.Context, tx pgx.Tx) error {
	err := tx.Commit(ctx)
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fault.New(fault.SQL, "the server rolled back instead of committing; nothing was changed")
	case errors.As(err, &pgErr) && !strings.HasPrefix(pgErr.Code, "57") && !strings.HasPrefix(pgErr.Code, "08"):
		return err // the server says that it did not commit
	}
	return &lostCommit{err}
}

// lostCommit: COMMIT was sent and no answer came.
type lostCommit struct{ err error }

func (e *lostCommit) Error() string { return "the answer to COMMIT was lost: " + e.err.Error() }
func (e *lostCommit) Unwrap() error { return e.err }

// settle finds out what became of a COMMIT whose answer was lost, by looking
// with a connection of its own, also when the run was told to stop.
func settle(ctx context.Context, dial Dial, r *Report, f File, o Options, lost error) (*Report, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	unknown := fault.New(fault.SQL, "the answer to COMMIT was lost and the database cannot be asked: whether the install happened is unknown (%s)", short(lost)).
		Hint("pgque-vendor bootstrap --check")
	conn, err := dial(ctx)
	if err != nil {
		return r, unknown
	}
	defer closeConn(conn)
	now, err := Inspect(ctx, conn, f, o)
	if err != nil {
		return r, unknown
	}
	if now.Plan.Refusal == nil && now.Plan.Empty() {
		r.Grants = now.Grants
		o.say("the answer to COMMIT was lost; the database has it")
		return r, nil
	}
	return r, fmt.Errorf("%w; the database does not have it", errNotCommitted)
}

var errNotCommitted = errors.New("the connection was lost at COMMIT")
