// Package bootstrap installs PgQue into a database and keeps it what the
// vendored file says. It takes the file's text and connections; it reads no
// file and no environment.
//
// One run: read the state (probe), decide and plan without side effects
// (decide, makePlan), and, unless there is nothing to do, carry the plan out in
// one transaction (install): an advisory lock first, then the state again,
// then the plan made from that, then proof of the result, then COMMIT.
package bootstrap

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
)

// File is the vendored SQL and what it is, from SOURCE.json.
type File struct {
	SQL        []byte
	SHA256     string // of SQL, already verified
	Repository string
	Tag        string
	Commit     string
	Path       string // in the upstream repository
}

func (f File) provenance(fingerprint, tool string) provenance {
	return provenance{f.Repository, f.Tag, f.Commit, f.Path, f.SHA256, fingerprint, tool}
}

// Options say what is wanted beside the file.
type Options struct {
	Owner        string // who owns a new install; "" means DefaultOwner, "CURRENT_USER" the login
	Grants       []Grant
	GrantSelf    bool // pgque_admin to the login that bootstrap connects with
	Reinstall    bool // run the file although the database has this release
	AllowDrift   bool // keep functions that differ, and go on
	LockTimeout  time.Duration
	Tool         string      // our version, for the provenance
	Provisioner  Provisioner // queues and subscriptions, or nil
	Say          func(format string, args ...any)
	beforeCommit func(context.Context, pgx.Tx) error // for tests that break the end
}

func (o Options) ownerName(user string) string {
	switch o.Owner {
	case "":
		return DefaultOwner
	case "CURRENT_USER", "current_user":
		return user
	}
	return o.Owner
}

// forLogin adds the grant that nobody asked for by name, once the login is known.
func (o Options) forLogin(user string) Options {
	if o.GrantSelf {
		o.Grants = append(slices.Clip(o.Grants), Grant{Role: Admin, To: user, Default: true})
		o.GrantSelf = false
	}
	return o
}

// Provisioner makes what an application needs beside PgQue itself.
type Provisioner interface {
	// Look says, in words, what Apply would do, and fails where that would. It only
	// reads. Where PgQue is not installed yet all is to be made.
	Look(ctx context.Context, tx pgx.Tx, installed bool) ([]string, error)
	// Apply does it, in the install's transaction.
	Apply(ctx context.Context, tx pgx.Tx) error
}

// Dial opens a connection. A run calls it again after the server was lost.
type Dial func(ctx context.Context) (*pgx.Conn, error)

// Version is what a database has.
type Version struct {
	Tag         string // from our record, or recognised by the functions; "" when unknown
	Commit      string // "" when the install was made by hand
	Path        string // of the file upstream, "" when unknown
	SHA256      string // of the file, "" when unknown
	SQLVersion  string // what pgque.version() says, which orders nothing
	Fingerprint string
	Confirmed   bool // our record agrees with the functions
}

// Action says what a run did, or would do.
type Action string

// The actions of the JSON report.
const (
	Installed    Action = "installed"
	Upgraded     Action = "upgraded"
	Unchanged    Action = "unchanged"
	WouldInstall Action = "would-install"
	WouldUpgrade Action = "would-upgrade"
	Refused      Action = "refused" // by policy
	Failed       Action = "failed"
)

// GrantResult is one grant and whether it has its effect.
type GrantResult struct {
	Role, To  string
	Effective bool
}

// Report is the outcome of a run or of an inspection.
type Report struct {
	Action        Action
	Database      string
	ServerVersion string
	InRecovery    bool
	Plan          *Plan
	Grants        []GrantResult
	Waited        bool // another bootstrap held the install lock
}

// Inspect reads the state and plans, in a READ ONLY transaction: it takes no
// lock beyond AccessShare on catalogs, needs no right beyond CONNECT and works
// on a standby. The report is there also when the plan is a refusal.
func Inspect(ctx context.Context, conn *pgx.Conn, f File, o Options) (*Report, error) {
	r, err := inspect(ctx, conn, f, o, checkData)
	return r, final(ctx, err, f, nil)
}

// inspect is Inspect, with a check of rows for a plan that runs the file. A run
// makes that check behind its table locks, for which this one might have to wait.
func inspect(ctx context.Context, conn *pgx.Conn, f File, o Options, data dataCheck) (*Report, error) {
	tx, err := begin(ctx, conn, "read only", 0)
	if err != nil {
		return nil, err
	}
	defer rollback(tx)
	s, functions, err := read(ctx, tx, f, o)
	if err != nil {
		return nil, err
	}
	o = o.forLogin(s.User)
	plan := makePlan(s, f, functions, o)
	if plan.Refusal == nil && plan.Install && data != nil && plan.canActAsOwner(s) {
		err := plan.asOwner(ctx, tx, s, func() (err error) {
			plan.Refusal, err = data(ctx, tx, s)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if o.Provisioner != nil && plan.Refusal == nil {
		steps, err := look(ctx, tx, s, plan, o.Provisioner)
		if err != nil {
			return nil, err
		}
		plan.provide(s, steps)
	}
	return report(s, plan), nil
}

// read probes the state, and finds the file's functions to compare it with.
func read(ctx context.Context, tx pgx.Tx, f File, o Options) (*state, map[string][]overload, error) {
	s, err := probe(ctx, tx, o.ownerName(""), o.forLogin("").Grants)
	if err != nil {
		return nil, nil, err
	}
	functions := f.functions(s.Functions)
	return s, functions, s.findBuiltin(ctx, tx, functions)
}

// look asks the Provisioner.
func look(ctx context.Context, tx pgx.Tx, s *state, p *Plan, provisioner Provisioner) (steps []string, err error) {
	if p.From == nil {
		return provisioner.Look(ctx, tx, false)
	}
	err = p.asOwner(ctx, tx, s, func() error {
		steps, err = provisioner.Look(ctx, tx, true)
		return err
	})
	return steps, err
}

// asOwner reads as the owner where that is allowed: the login may have no rights of
// its own in the schema.
func (p *Plan) asOwner(ctx context.Context, tx pgx.Tx, s *state, read func() error) error {
	if p.ownerSetUp && p.canActAsOwner(s) && s.Schema != nil {
		if _, err := tx.Exec(ctx, "set local role "+quoteIdent(p.Owner)); err != nil {
			return err
		}
		defer func() { _, _ = tx.Exec(ctx, "reset role") }() // when it fails so does the next statement
	}
	return read()
}

func report(s *state, p *Plan) *Report {
	r := &Report{Database: s.Database, ServerVersion: s.ServerVersion, InRecovery: s.InRecovery, Plan: p}
	for _, g := range s.Grants {
		if s.Roles[g.To].Superuser {
			continue // may do everything: a grant to it proves nothing
		}
		r.Grants = append(r.Grants, GrantResult{Role: g.Role, To: g.To, Effective: g.effective()})
	}
	switch {
	case p.Refusal != nil:
		r.Action = Refused
	case p.Upgrade:
		r.Action = WouldUpgrade
	case p.Install:
		r.Action = WouldInstall
	default:
		r.Action = Unchanged
	}
	return r
}

// Run brings the database to what the file and the options say. A run that
// finds nothing to do only reads. Collisions with another bootstrap, deadlocks
// and lost connections roll back and are tried again, a bounded number of times.
func Run(ctx context.Context, dial Dial, f File, o Options) (*Report, error) {
	conn, r, err := firstLook(ctx, dial, f, o)
	if err != nil {
		return nil, err
	}
	if r.Plan.Refusal != nil || r.Plan.Empty() {
		closeConn(conn)
		return r, r.Plan.err()
	}
	if r.InRecovery {
		closeConn(conn)
		return r, fault.New(fault.Database, "database %q is on a standby (in recovery), where nothing can be installed", r.Database).
			Hint("connect to the primary, or name all hosts: host=a,b")
	}
	return untilDone(ctx, conn, dial, f, o)
}

// firstLook connects and inspects, and does so again when the server went down
// in between.
func firstLook(ctx context.Context, dial Dial, f File, o Options) (*pgx.Conn, *Report, error) {
	for try := 1; ; try++ {
		conn, err := dial(ctx)
		if err != nil {
			return nil, nil, err
		}
		r, err := inspect(ctx, conn, f, o, nil)
		if err == nil {
			return conn, r, nil
		}
		closeConn(conn)
		if ctx.Err() != nil || try >= maxTries || !retryable(err) {
			return nil, nil, final(ctx, err, f, nil)
		}
		o.say("trying again: %s", short(err))
		pause(ctx, try)
	}
}

// pause waits a little longer after each try, or until the context ends.
func pause(ctx context.Context, try int) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(min(try, 10))*50*time.Millisecond + rand.N(200*time.Millisecond)):
	}
}

// untilDone repeats the transaction while it fails for a reason that passes.
func untilDone(ctx context.Context, conn *pgx.Conn, dial Dial, f File, o Options) (*Report, error) {
	defer func() { closeConn(conn) }()
	var held holders // who had the lock that we did not get
	for try := 1; ; try++ {
		r, err := install(ctx, conn, f, o)
		var lost *lostCommit
		if errors.As(err, &lost) {
			r, err = settle(ctx, dial, r, f, o, lost)
		}
		locked := lockNotGot(err)
		if locked {
			held = blockers(ctx, conn)
			o.say("a lock was not got within %s, it is held by %s; trying again", o.LockTimeout, held)
		}
		if err == nil || ctx.Err() != nil || !retryable(err) || !locked && try >= maxTries {
			return r, final(ctx, err, f, held)
		}
		if !locked {
			o.say("trying again: %s", short(err))
		}
		if pause(ctx, try); ctx.Err() != nil {
			return r, final(ctx, err, f, held)
		}
		if conn.IsClosed() {
			next, err := dial(ctx)
			if err != nil {
				return r, err
			}
			conn = next
		}
	}
}

// maxTries bounds the repeats after collisions and lost connections. Waiting
// for a lock is bounded by the run's deadline instead.
const maxTries = 20

func (p *Plan) err() error {
	if p.Refusal == nil {
		return nil
	}
	return p.Refusal
}

func (o Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(format, args...)
	}
}

// final is the error of a run that has ended: a signal where that is why, the
// time limit with what it was spent on, else an explanation for a person.
func final(ctx context.Context, err error, f File, held holders) error {
	if err == nil || ctx.Err() == nil {
		return explain(err, f)
	}
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	var already *fault.Error
	if errors.As(err, &already) {
		return err
	}
	if len(held) > 0 {
		return fault.New(fault.Database, "the time limit was over while waiting for a lock on PgQue's tables, held by %s; nothing was changed", held).
			Hint("wait for that session to end, or end it: %s", held.end())
	}
	return explain(context.DeadlineExceeded, f)
}
