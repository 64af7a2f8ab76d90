package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// unsuitable refuses databases that PgQue must not be installed into, whoever asks.
func unsuitable(s *state) *fault.Error {
	switch {
	case s.ServerVersionNum < 140000:
		return fault.New(fault.Policy, "the server is PostgreSQL %s; PgQue needs 14 or newer", s.ServerVersion)
	case s.Template:
		return fault.New(fault.Policy, "%q is a template: every database made from it would inherit the schema, the queues and their events", s.Database).
			Hint("make a database for events: CREATE DATABASE events;")
	case s.Encoding != "UTF8":
		return fault.New(fault.Policy, "database %q is encoded in %s; PgQue's file and the payloads of events are UTF-8 and would be garbled or refused", s.Database, s.Encoding).
			Hint("CREATE DATABASE events ENCODING 'UTF8' TEMPLATE template0;")
	}
	return nil
}

// planOwner makes sure that the owner exists, that we can act as it, and that
// it may create the schema.
func (p *Plan) planOwner(s *state) {
	owner := quoteIdent(p.Owner)
	role, exists := s.Roles[p.Owner]
	switch {
	case !exists && s.mayCreateRoles():
		p.Before = append(p.Before, fmt.Sprintf("CREATE ROLE %s NOLOGIN;", owner))
		if !s.Superuser {
			p.Before = append(p.Before, grantSet(s, p.Owner))
		}
	case !exists:
		p.missing(fmt.Sprintf("role %q, which is to own the schema, does not exist, and %q may not create roles", p.Owner, s.User),
			fmt.Sprintf("CREATE ROLE %s NOLOGIN; %s GRANT CREATE, TEMP ON DATABASE %s TO %s;   -- as a superuser, or:",
				owner, grantSet(s, p.Owner), quoteIdent(s.Database), owner), ownedByLogin)
		return
	case !p.canActAsOwner(s) && role.CanGrant && !p.ownedByAnotherLogin(s):
		p.Before = append(p.Before, grantSet(s, p.Owner))
	case !p.canActAsOwner(s) && s.Schema == nil:
		p.missing(fmt.Sprintf("the schema is to be owned by %q, and %q may not act as it", p.Owner, s.User), ownedByLogin,
			fmt.Sprintf("%s   -- instead; it may then do all with every schema of %s, in all databases of the cluster", grantSet(s, p.Owner), owner))
		return
	case !p.canActAsOwner(s):
		p.missing(fmt.Sprintf("the schema's owner is %q, and %q may not act as it", p.Owner, s.User), grantSet(s, p.Owner))
		return
	case role.Superuser && p.Owner == DefaultOwner:
		p.missing(fmt.Sprintf("role %q is a superuser, which it must not be", p.Owner), fmt.Sprintf("ALTER ROLE %s NOSUPERUSER;", owner))
	case role.Login && p.Owner == DefaultOwner:
		p.warn("role %q can log in; it only has to own things: ALTER ROLE %s NOLOGIN;", p.Owner, owner)
	}
	p.planDatabaseRights(s, role)
}

// ownedByAnotherLogin: the schema is there and somebody else's own. CREATEROLE, up to
// PostgreSQL 15, would let us act as them, and not only with PgQue; that is theirs to say.
func (p *Plan) ownedByAnotherLogin(s *state) bool {
	return s.Schema != nil && p.Owner != DefaultOwner && s.Roles[p.Owner].Login
}

// ownedByLogin is the way out that needs no other owner.
const ownedByLogin = "pgque-vendor bootstrap --owner CURRENT_USER   # the schema belongs to this login"

// grantSet is the grant that allows SET ROLE and, where the server can say so,
// nothing else.
func grantSet(s *state, role string) string {
	sql := fmt.Sprintf("GRANT %s TO %s", quoteIdent(role), quoteIdent(s.User))
	if s.ServerVersionNum >= 160000 {
		sql += " WITH SET TRUE, INHERIT FALSE"
	}
	return sql + ";"
}

// planDatabaseRights: the file needs CREATE, also when the schema is there
// already, and TEMP for a table near its end.
func (p *Plan) planDatabaseRights(s *state, owner roleState) {
	if owner.Superuser {
		return
	}
	var grant, lacking []string
	if !owner.DatabaseCreate {
		if s.GrantCreate {
			grant = append(grant, "CREATE")
		} else {
			lacking = append(lacking, "CREATE")
		}
	}
	if !owner.DatabaseTemp && !(s.PublicTemp && !s.exists(p.Owner)) {
		if s.GrantTemp {
			grant = append(grant, "TEMP")
		} else {
			lacking = append(lacking, "TEMP")
		}
	}
	sql := func(rights []string) string {
		return fmt.Sprintf("GRANT %s ON DATABASE %s TO %s;", strings.Join(rights, ", "), quoteIdent(s.Database), quoteIdent(p.Owner))
	}
	if len(grant) > 0 {
		p.Before = append(p.Before, sql(grant))
	}
	if len(lacking) > 0 {
		p.missing(fmt.Sprintf("%q needs %s on database %q, and %q may not grant it", p.Owner, strings.Join(lacking, " and "), s.Database, s.User),
			sql(lacking)+fmt.Sprintf("   -- as %s or a superuser", s.DatabaseOwner))
	}
}

// planRoles prepares PgQue's three roles before the file asks for them. The
// file runs as the owner, who may create and grant no role.
func (p *Plan) planRoles(s *state, f File) {
	for _, name := range []string{Reader, Writer, Admin} {
		role, exists := s.Roles[name]
		switch {
		case !exists && s.mayCreateRoles():
			p.Before = append(p.Before, fmt.Sprintf("CREATE ROLE %s NOLOGIN;", quoteIdent(name)))
		case !exists:
			p.missing(fmt.Sprintf("role %q does not exist, and %q may not create roles", name, s.User), fmt.Sprintf("CREATE ROLE %s NOLOGIN;", quoteIdent(name)))
		case role.Superuser:
			p.missing(fmt.Sprintf("role %q is a superuser: everybody with it would be one", name), fmt.Sprintf("ALTER ROLE %s NOSUPERUSER;", quoteIdent(name)))
		case role.Login || role.CreateRole || role.CreateDB || role.BypassRLS:
			p.warn("role %q has more rights than a group needs; they reach only those who log in as it: ALTER ROLE %s NOLOGIN NOCREATEROLE NOCREATEDB NOBYPASSRLS;", name, quoteIdent(name))
		}
	}
	for _, name := range []string{Reader, Writer} {
		if s.isMember(name, Admin) {
			continue
		}
		sql := fmt.Sprintf("GRANT %s TO %s;", quoteIdent(name), quoteIdent(Admin))
		if !s.exists(name) && s.mayCreateRoles() || s.Roles[name].CanGrant {
			p.Before = append(p.Before, sql)
		} else {
			p.missing(fmt.Sprintf("%q is not a member of %q, and %q may not grant it", Admin, name, s.User), sql)
		}
	}
	p.planSiblings(s, f)
}

// planSiblings takes the reader's rights from the writer where an old release
// gave them. The file tries that itself, but as another grantor the server
// finds nothing to revoke and only warns.
func (p *Plan) planSiblings(s *state, f File) {
	if known, ok := releaseByFile(f.SHA256); ok && known.open {
		p.warn("%s lets pgque_writer act as pgque_reader in every database of this cluster, and lets everybody execute its functions; later releases do not", f.Tag)
		return
	}
	for _, m := range s.Members {
		if m.Role != Reader || m.Member != Writer {
			continue
		}
		sql := fmt.Sprintf("REVOKE %s FROM %s", quoteIdent(Reader), quoteIdent(Writer))
		may := s.Superuser || s.Roles[Reader].CanGrant
		if s.ServerVersionNum >= 160000 {
			sql += " GRANTED BY " + quoteIdent(m.Grantor)
			may = s.Superuser || m.Grantor == s.User
		}
		sql += ";"
		if !may {
			p.missing(fmt.Sprintf("%q is a member of %q (granted by %q), so that a publisher can end other consumers' batches, and %q may not revoke it", Writer, Reader, m.Grantor, s.User), sql)
			continue
		}
		if !slices.Contains(p.Before, sql) {
			p.Before = append(p.Before, sql)
			p.warn("%q loses the rights of %q, which an older release gave it; a login that consumes needs a grant of %s itself", Writer, Reader, Reader)
		}
	}
}

// planStrays mends split ownership: functions that a superuser's rerun of the
// file left with another owner than the schema has.
func (p *Plan) planStrays(s *state, functions map[string][]overload) {
	if s.Schema == nil {
		return
	}
	var lines []string
	for _, f := range s.Functions {
		if f.Owner != s.Schema.Owner && len(functions[f.Name]) > 0 {
			kind := "FUNCTION"
			if f.Procedure {
				kind = "PROCEDURE"
			}
			lines = append(lines, fmt.Sprintf("ALTER %s pgque.%s(%s) OWNER TO %s;", kind, quoteIdent(f.Name), f.Args, quoteIdent(s.Schema.Owner)))
		}
	}
	for _, o := range s.Strays {
		lines = append(lines, fmt.Sprintf("ALTER %s pgque.%s OWNER TO %s;", kindWord(o.Kind), quoteIdent(o.Name), quoteIdent(s.Schema.Owner)))
	}
	if len(lines) == 0 {
		return
	}
	if s.Superuser {
		p.Moves = lines
		p.warn("%d objects of schema pgque do not belong to its owner %q; they are moved to it", len(lines), s.Schema.Owner)
		return
	}
	p.missing(fmt.Sprintf("%d objects of schema pgque do not belong to its owner %q, which happens when a superuser runs the file; a superuser has to give them back", len(lines), s.Schema.Owner),
		strings.Join(lines, "\n"))
}

func kindWord(kind string) string {
	switch kind {
	case "v":
		return "VIEW"
	case "m":
		return "MATERIALIZED VIEW"
	case "S":
		return "SEQUENCE"
	case "f":
		return "FOREIGN TABLE"
	case "c", "te", "tr":
		return "TYPE"
	case "td":
		return "DOMAIN"
	}
	return "TABLE"
}
