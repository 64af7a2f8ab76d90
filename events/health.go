package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Severity says how much a [Finding] matters.
type Severity int

const (
	// Note is worth knowing; nothing is wrong.
	Note Severity = iota
	// Warning will become a failure, or costs something now.
	Warning
	// Critical: events are not delivered, or not once.
	Critical
)

func (s Severity) String() string { return [...]string{"note", "warning", "critical"}[s] }

// Finding is one thing that [Health] found.
type Finding struct {
	Code     string // one of the Code constants; stable
	Severity Severity
	Queue    string // "" when it is about the database
	Consumer string // "" when it is not about one
	Text     string // one sentence for a person
	Fix      string // the command or the SQL that mends it
	// Age is for how long it has been so, by the server's clock; 0 when unknown.
	Age time.Duration
	// Clears is for how long it is still found once it is mended, from now on; 0 when
	// the next look finds it no more.
	Clears time.Duration
}

// The codes of findings.
const (
	CodeNoTick          = "no-tick"          // no ticker: nothing is delivered
	CodeStep2           = "step2-overdue"    // a rotation waits for its second step
	CodeRotation        = "rotation-overdue" // tables are not rotated, though nobody needs them
	CodePinned          = "rotation-pinned"  // a consumer that does not go on keeps tables from rotating
	CodeTickOrder       = "tick-order"       // ticks out of order: tickers without a common lock
	CodeRestored        = "restored"         // stored state is ahead of the server's transactions
	CodeBatchOpen       = "batch-open"       // a batch was taken long ago and not finished
	CodeNotReceiving    = "not-receiving"    // events wait and nobody takes them
	CodeRetries         = "retry-backlog"    // due retries are not moved back
	CodeDeadLetters     = "dead-letters"     // new dead letters
	CodeMaxLag          = "max-lag"          // ticker_max_lag above half the ticker's period
	CodePaused          = "paused"           // the queue's ticker is paused
	CodeScheduler       = "other-scheduler"  // pg_cron or pg_timetable ticks as well
	CodeMissingGrant    = "missing-grant"    // the role can do nothing
	CodeLimitedConsumer = "limited-consumer" // the role consumes without pgque_admin
	CodeSuperuserOwned  = "superuser-owned"  // members of pgque_admin can become superuser
	CodeNotVisible      = "not-visible"      // this login may not see enough to tell
)

// HealthConfig says what is too long. Fields that are zero or less have the defaults given.
type HealthConfig struct {
	// Role is whose grants are looked at; the login itself by default.
	Role string
	// TickEvery is the period that the ticker runs with; 100 ms.
	TickEvery time.Duration
	// Ticks says that a ticker of this library works on the database. Then one that
	// pg_cron or pg_timetable runs is a Warning; by itself it is a Note.
	Ticks bool
	// MaxLatency makes a Warning of a queue whose events wait longer than this for
	// their tick. When zero a long ticker_max_lag is a Note.
	MaxLatency time.Duration
	// TickLate is how long a tick may be overdue after ticker_idle_period; 10 s.
	TickLate time.Duration
	// Step2Late is how long a rotation may wait for its second step; 2 minutes.
	Step2Late time.Duration
	// RotationLate is how long a rotation may be overdue; 10 minutes.
	RotationLate time.Duration
	// Stalled is how long a batch may be open, and events may wait for a consumer
	// that takes none; 15 minutes.
	Stalled time.Duration
	// RetryLate is how long a retry may be overdue; 1 minute.
	RetryLate time.Duration
	// DeadLetters is how far back a new dead letter is reported; 1 hour.
	DeadLetters time.Duration
}

func (c *HealthConfig) fill() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.TickEvery, 100 * time.Millisecond}, {&c.TickLate, 10 * time.Second}, {&c.Step2Late, 2 * time.Minute},
		{&c.RotationLate, 10 * time.Minute}, {&c.Stalled, 15 * time.Minute}, {&c.RetryLate, time.Minute},
		{&c.DeadLetters, time.Hour},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
}

// Health looks at what keeps events from being delivered, or will: the worst
// first. It only reads, needs no role and says what it could not see; it works on a
// standby too. A system that is healthy, idle or new has no finding above [Note].
//
// One look cannot tell when the events that wait for a tick were sent, and the last
// tick of an idle queue may be its ticker_idle_period old. So a ticker that is gone, or
// was never there, is found when that and TickLate are over: 70 s after the last tick,
// also while events wait. Who looks twice can tell in two seconds, as pgque-vendor
// doctor does: with NewEvents in [QueueInfo] and a TickAge above MaxLag, a ticker
// makes the next tick at its next look.
//
// Errors: [ErrNotInstalled]; [ErrInvalid] for a Role that does not exist.
func Health(ctx context.Context, db DB, config HealthConfig) ([]Finding, error) {
	config.fill()
	ctx, cancel := withTimeout(ctx, 2*callTimeout)
	defer cancel()
	h := health{HealthConfig: config, db: db}
	for _, look := range []func(context.Context) error{
		h.rights, h.ownership, h.otherScheduler, h.queues, h.ticks, h.consumers, h.retries, h.deadLetters,
	} {
		if err := look(ctx); err != nil {
			return nil, wrap(err, "look at the health of PgQue")
		}
	}
	slices.SortStableFunc(h.found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Consumer, b.Consumer))
	})
	return h.found, nil
}

// health is one run of Health. Its parts go in order: the later ones leave out
// what an earlier one has said or seen to be out of sight.
type health struct {
	HealthConfig
	db      DB
	standby bool
	visible map[string]bool // tables of schema pgque that this login may read
	found   []Finding
}

func (h *health) add(f Finding) { h.found = append(h.found, f) }

// rights looks at what the login can see, and what the role may do.
func (h *health) rights(ctx context.Context) error {
	var role *string
	var super, installed, member, inherits, publish, consume, admin bool
	var tables []string
	var version int
	err := h.db.QueryRow(ctx, `
		with may as (
			select p.proname, has_schema_privilege(r.oid, n.oid, 'usage') and has_function_privilege(r.oid, p.oid, 'execute') as may
			  from pg_roles r, pg_namespace n join pg_proc p on p.pronamespace = n.oid
			 where r.rolname = coalesce($1::text, current_user) and n.nspname = 'pgque'
			   -- types by number, text, jsonb and integer: how their names are written is a setting
			   and (p.proname, p.proargtypes) in (('send', '25 25 3802'::oidvector), ('receive', '25 25 23'), ('ticker', '25')))
		select (select rolname::text from pg_roles where rolname = coalesce($1::text, current_user)),
		       coalesce((select rolsuper from pg_roles where rolname = coalesce($1::text, current_user)), false),
		       pg_is_in_recovery(), current_setting('server_version_num')::int,
		       exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'pgque' and c.relname = 'queue'),
		       array(select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
		              where n.nspname = 'pgque' and c.relkind = 'r' and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')),
		       exists (select from pg_roles a where a.rolname = 'pgque_admin' and exists (
		                select from pg_roles r where r.rolname = coalesce($1::text, current_user) and pg_has_role(r.oid, a.oid, 'member'))),
		       exists (select from pg_roles a where a.rolname = 'pgque_admin' and exists (
		                select from pg_roles r where r.rolname = coalesce($1::text, current_user) and pg_has_role(r.oid, a.oid, 'usage'))),
		       coalesce((select may from may where proname = 'send'), false),
		       coalesce((select may from may where proname = 'receive'), false),
		       coalesce((select may from may where proname = 'ticker'), false)`, exec, textOrNull(h.Role)).
		Scan(&role, &super, &h.standby, &version, &installed, &tables, &member, &inherits, &publish, &consume, &admin)
	switch {
	case err != nil:
		return err
	case !installed:
		return ErrNotInstalled
	case role == nil:
		return fmt.Errorf("role %q does not exist: %w", h.Role, ErrInvalid)
	}
	h.visible = map[string]bool{}
	for _, table := range tables {
		h.visible[table] = true
	}
	switch {
	case admin:
	case inherits:
		h.add(Finding{Code: CodeMissingGrant, Severity: Warning, Fix: "pgque-vendor bootstrap --no-grant --reinstall",
			Text: fmt.Sprintf("role %q has pgque_admin, which has lost rights of its own, as in a dump that was restored without privileges", *role)})
	case member:
		fix := fmt.Sprintf("alter role %s inherit", quoteName(*role))
		if version >= 160000 {
			fix = grantSQL("pgque_admin", *role) + " with inherit true"
		}
		h.add(Finding{Code: CodeMissingGrant, Severity: Warning, Fix: fix,
			Text: fmt.Sprintf("role %q is a member of pgque_admin but does not inherit its rights", *role)})
	case !publish && !consume:
		h.add(Finding{Code: CodeMissingGrant, Severity: Warning, Fix: grantSQL("pgque_admin", *role),
			Text: fmt.Sprintf("role %q may neither publish nor consume", *role)})
	case consume:
		h.add(Finding{Code: CodeLimitedConsumer, Severity: Note, Fix: grantSQL("pgque_admin", *role),
			Text: fmt.Sprintf("role %q consumes without pgque_admin: no dead letters by hand, no guard against handlers that crash, failures settled one by one", *role)})
	}
	return nil
}

// sees says whether a table can be read, and notes once when it cannot.
func (h *health) sees(table, toTell string) bool {
	if !h.visible[table] {
		h.add(Finding{Code: CodeNotVisible, Severity: Note, Fix: "grant pgque_reader to the login that looks",
			Text: fmt.Sprintf("may not read pgque.%s, so cannot tell %s", table, toTell)})
	}
	return h.visible[table]
}

// ownership finds installs in which whoever has pgque_admin can become superuser:
// PgQue's functions run as their owner and look into a schema that pgque_admin can
// write to first.
func (h *health) ownership(ctx context.Context) error {
	var owner, member string
	err := h.db.QueryRow(ctx, `
		select coalesce((select r.rolname from pg_proc p join pg_namespace n on n.oid = p.pronamespace join pg_roles r on r.oid = p.proowner
		                  where n.nspname = 'pgque' and p.prosecdef and r.rolsuper order by r.rolname limit 1)::text, ''),
		       coalesce((select m.rolname from pg_roles m, pg_roles a
		                  where a.rolname = 'pgque_admin' and m.oid <> a.oid and m.rolcanlogin and not m.rolsuper
		                    and pg_has_role(m.oid, a.oid, 'member') order by m.rolname limit 1)::text, '')`, exec).Scan(&owner, &member)
	if err == nil && owner != "" && member != "" {
		h.add(Finding{Code: CodeSuperuserOwned, Severity: Warning,
			Text: fmt.Sprintf("PgQue's functions belong to the superuser %q, so %q, a member of pgque_admin, can become superuser", owner, member),
			Fix:  "create role pgque_owner nologin; alter schema pgque owner to pgque_owner; then, as a superuser: pgque-vendor bootstrap"})
	}
	return err
}

func (h *health) otherScheduler(ctx context.Context) error {
	if !h.sees("config", "whether pg_cron ticks as well") {
		return nil
	}
	name, err := scheduler(ctx, h.db)
	if err == nil && name != "" {
		severity := Note
		if h.Ticks {
			severity = Warning
		}
		h.add(Finding{Code: CodeScheduler, Severity: severity, Fix: stopSQL(name),
			Text: name + " is scheduled to tick this database; beside another ticker it makes now and then an event come twice"})
	}
	return err
}
