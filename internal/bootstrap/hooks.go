package bootstrap

import (
	"slices"
	"strings"
)

// planHooks keeps the login from running other people's code. Whoever has
// pgque_admin can make triggers on PgQue's tables, and functions that PgQue's
// own take for built-in ones. What they do ends at the schema's owner while the
// application works. In a session of a superuser it would not: SET ROLE can be
// undone from within, and before PostgreSQL 18 a deferred trigger runs at COMMIT
// as whoever commits. So nothing is written while such code is there.
func (p *Plan) planHooks(s *state, functions map[string][]string) {
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
		drops = append(drops, h.Drop)
	}
	p.missing(hookText(s, p.hooks), strings.Join(drops, " ")+"   -- or, having read it, have a superuser own it")
}

func hookText(s *state, hooks []hook) string {
	var names []string
	for _, h := range hooks {
		names = append(names, h.Name)
	}
	return "schema pgque has code that PgQue does not come with and no superuser owns, and that could run with the rights of " +
		quoteIdent(s.User) + ": " + strings.Join(names, ", ")
}

// hooks are those of the state, and the functions that are not the file's.
func hooks(s *state, functions map[string][]string) []hook {
	found := slices.Clone(s.Hooks)
	own := ownFunctions(functions, s.Functions)
	for _, f := range s.Functions {
		if f.Shadow && !slices.Contains(own, f) && len(functions[f.Name]) == 0 {
			found = append(found, hook{f.String(), "DROP FUNCTION pgque." + quoteIdent(f.Name) + "(" + f.Args + ");"})
		}
	}
	return found
}
