package bootstrap

import (
	"fmt"
	"slices"
	"strings"
)

// Grant is one role of PgQue given to a role of the user's.
type Grant struct {
	Role string // pgque_admin, pgque_writer or pgque_reader
	To   string
	// Default: nobody asked for it by name. What cannot be granted then is a
	// warning, not a failure.
	Default bool
}

// The three roles of PgQue.
const (
	Admin  = "pgque_admin"
	Writer = "pgque_writer"
	Reader = "pgque_reader"
)

// callsOf names calls that a role is there for. A grant counts only when these
// work: a member whose role does not inherit looks granted and is refused.
func callsOf(role string) []string {
	switch role {
	case Writer:
		return []string{"pgque.send(text, text, jsonb)", "pgque.send(text, text, text)"}
	case Reader:
		return []string{"pgque.receive(text, text, integer)", "pgque.ack(bigint)", "pgque.subscribe(text, text)"}
	}
	return []string{
		"pgque.create_queue(text)", "pgque.ticker()", "pgque.maint()", "pgque.maint_rotate_tables_step2()",
		"pgque.send(text, text, jsonb)", "pgque.receive(text, text, integer)", "pgque.ack(bigint)", "pgque.subscribe(text, text)",
	}
}

// planGrants adds the grants that are not effective yet.
func (p *Plan) planGrants(s *state, grants []Grant) {
	for _, g := range grants {
		i := slices.IndexFunc(s.Grants, func(x grantState) bool { return x.To == g.To && x.Role == g.Role })
		if i < 0 {
			continue
		}
		p.planGrant(s, g, s.Grants[i])
	}
}

func (p *Plan) planGrant(s *state, g Grant, now grantState) {
	group, to := quoteIdent(g.Role), quoteIdent(g.To)
	role, exists := s.Roles[g.To]
	withInherit := ""
	if s.ServerVersionNum >= 160000 {
		withInherit = " WITH INHERIT TRUE"
	}
	sql := fmt.Sprintf("GRANT %s TO %s%s;", group, to, withInherit)
	noInherit := exists && !role.Inherit && !role.Superuser && s.ServerVersionNum < 160000
	switch {
	case !exists:
		p.missing(fmt.Sprintf("role %q does not exist, so %s cannot be granted to it", g.To, g.Role),
			fmt.Sprintf("CREATE ROLE %s LOGIN;   -- and give it a password: \\password %s", to, g.To))
	case g.Default && role.Superuser:
		p.warn("%q is a superuser, so nothing was granted: the application's own login needs a grant. Add --grant-admin ROLE with the login that the application connects with, or --no-grant", g.To)
	case now.Usage && !noInherit && (p.Install || now.effective()):
		// inherits it already; an install is about to make the calls
	case now.Usage && now.Calls > 0 && !now.effective() && !p.Install:
		p.missing(fmt.Sprintf("%s is granted to %q and has no effect: %s", g.Role, g.To, whyNot(now)), giveRightsBack)
	case now.Cycle && g.To != g.Role:
		p.missing(fmt.Sprintf("%s is itself a member of %q, so it cannot be granted to it", g.Role, g.To),
			fmt.Sprintf("REVOKE %s FROM %s;", to, group))
	case noInherit:
		p.missing(fmt.Sprintf("role %q has NOINHERIT, so the rights of %s would not reach it", g.To, g.Role),
			fmt.Sprintf("ALTER ROLE %s INHERIT;", to))
	case p.willExist(s, g.Role) && s.mayCreateRoles() || s.exists(g.Role) && s.Roles[g.Role].CanGrant:
		p.After = append(p.After, sql)
	case g.Default && (now.effective() || g.To == p.Owner):
		// without the role, as the owner is
	case g.Default:
		p.warn("%q may not grant %s, so it was not granted; if the application connects as %q, run as a superuser: %s", s.User, g.Role, g.To, sql)
	default:
		p.missing(fmt.Sprintf("%q may not grant %s, and %q does not have it", s.User, g.Role, g.To), sql)
	}
}

// giveRightsBack is for roles that have lost their own rights, as in a database that
// was restored from a dump without privileges.
const giveRightsBack = "pgque-vendor bootstrap --reinstall   # gives PgQue's roles the file's rights again"

// willExist reports that the role is not there and this run creates it.
func (p *Plan) willExist(s *state, role string) bool { return !s.exists(role) }

func (s *state) mayCreateRoles() bool { return s.Superuser || s.CreateRole }

// quoteIdent writes a name as an SQL identifier.
func quoteIdent(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// quoteLiteral writes a text as an SQL string that means the same with any
// setting of standard_conforming_strings.
func quoteLiteral(text string) string {
	quoted := "'" + strings.ReplaceAll(text, "'", "''") + "'"
	if strings.Contains(text, `\`) {
		quoted = " E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted
}
