package bootstrap

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// planHooks keeps the login from running other people's code. Whoever has
// pgque_admin can make triggers on PgQue's tables, and functions that PgQue's
// own take for built-in ones. What they do ends at the schema's owner while the
// application works. In a session of a superuser it would not: SET ROLE can be
// undone from within, and before PostgreSQL 18 a deferred trigger runs at COMMIT
// as whoever commits. So nothing is written while such code is there.
func (p *Plan) planHooks(s *state, functions map[string][]overload) {
	p.hooks = hooks(s, functions)
	switch {
	case len(p.hooks) == 0:
	case p.Install:
		p.missingHooks(s)
	default:
		p.warn("%s; an upgrade and new queues will be refused while it is there", hookText(s, p.hooks))
	}
}

// provide takes in what the Provisioner is going to do.
func (p *Plan) provide(s *state, steps []string) {
	p.Provide = steps
	if len(steps) == 0 || len(p.hooks) == 0 || p.Install {
		return
	}
	p.Warnings = nil // the refusal says it
	p.missingHooks(s)
	p.Refusal = p.refuseMissing(s)
}

func (p *Plan) missingHooks(s *state) {
	var drops []string
	for _, h := range p.hooks {
		drops = append(drops, h.drop)
	}
	p.missing(hookText(s, p.hooks), strings.Join(drops, " ")+"   -- or, having read it, have a superuser own it")
}

func hookText(s *state, hooks []hook) string {
	var names []string
	for _, h := range hooks {
		names = append(names, h.name)
	}
	return "schema pgque has code that PgQue does not come with and no superuser owns, and that could run with the rights of " +
		quoteIdent(s.User) + ": " + strings.Join(names, ", ")
}

// hook is code that neither a superuser nor the login itself answers for, and
// that runs when somebody works with PgQue: a trigger on one of its tables, say,
// or a function that its functions take for a built-in one.
type hook struct {
	name string
	drop string // the SQL that removes it
}

// hooks are the dependents of the state, and the functions that are not the
// file's and have the name of something built in.
func hooks(s *state, functions map[string][]overload) []hook {
	var found []hook
	for _, d := range s.Dependents {
		h := hook{d.Type + " " + d.Identity, "-- remove the " + d.Type + " " + d.Identity}
		switch d.Type {
		case "trigger", "rule", "policy", "index", "table", "view", "type", "operator":
			h.drop = "DROP " + strings.ToUpper(d.Type) + " " + d.Identity + ";"
		}
		found = append(found, h)
	}
	slices.SortFunc(found, func(a, b hook) int { return strings.Compare(a.name, b.name) })
	found = slices.Compact(found) // one that depends on two functions is there twice
	for _, f := range s.Functions {
		if f.foreign(functions) && slices.Contains(s.builtin, f.Name) {
			found = append(found, hook{f.String(), "DROP FUNCTION pgque." + quoteIdent(f.Name) + "(" + f.Args + ");"})
		}
	}
	return found
}

// foreign reports that the file has no function of this name, and that neither
// a superuser nor the login owns this one.
func (f function) foreign(functions map[string][]overload) bool {
	return !f.Trusted && len(functions[f.Name]) == 0
}

// findBuiltin asks which foreign functions have the name of something built in.
// There is nearly never a foreign one, so that this is no part of the probe.
func (s *state) findBuiltin(ctx context.Context, tx pgx.Tx, functions map[string][]overload) error {
	var names []string
	for _, f := range s.Functions {
		if f.foreign(functions) {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, "select distinct proname::text from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = any ($1)", names)
	if err != nil {
		return err
	}
	s.builtin, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return err
}
