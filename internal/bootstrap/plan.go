package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// DefaultOwner owns a new install. It cannot log in and nobody works as it, so
// what a member of pgque_admin could do with PgQue's SECURITY DEFINER functions
// ends at PgQue itself.
const DefaultOwner = "pgque_owner"

// Plan is what one run would do, or has done. The statements stand in the
// order in which they run.
type Plan struct {
	From     *Version // what the database has; nil where it has no PgQue
	Owner    string   // who owns the install, or will
	Install  bool     // the file is run
	Upgrade  bool     // … over an older release
	Before   []string // SQL before the file, as the login: roles, rights, ownership
	Moves    []string // SQL before the file, as a superuser and behind the table locks: split ownership
	AsOwner  []string // SQL after the file, as the owner: the provenance
	After    []string // SQL after the file, as the login: grants
	Provide  []string // what the Provisioner is going to do, in words
	Drift    []string // functions that differ from the file
	Extra    []string // functions of schema pgque that the file does not have
	Exposed  []string // who has rights that the file takes away, where it is not run
	Warnings []string
	Refusal  *fault.Error // why nothing may be done, or nil
	Drifted  bool         // the refusal is for functions of the file's release that differ, which --reinstall mends

	problems   []problem
	hooks      []hook
	ownerSetUp bool // the run acts as Owner through SET LOCAL ROLE
}

// problem is one thing that is missing, with the SQL and the commands that mend it.
type problem struct {
	text  string
	fixes []string
}

// Empty reports that there is nothing to do.
func (p *Plan) Empty() bool {
	return !p.Install && len(p.Before)+len(p.Moves)+len(p.AsOwner)+len(p.After)+len(p.Provide) == 0
}

// Lines describe the plan for people, one step a line.
func (p *Plan) Lines(f File) []string {
	lines := slices.Concat(p.Before, p.Moves)
	if p.Install {
		as := ""
		if p.ownerSetUp {
			as = " as " + quoteIdent(p.Owner)
		}
		lines = append(lines, fmt.Sprintf("run pgque.sql (%s, %d bytes)%s", f.Tag, len(f.SQL), as))
	}
	lines = append(lines, p.AsOwner...)
	lines = append(lines, p.Provide...)
	lines = append(lines, p.After...)
	if p.Install {
		lines = append(lines, "record the provenance in the comment of schema pgque")
	}
	return lines
}

func (p *Plan) missing(text string, fixes ...string) {
	p.problems = append(p.problems, problem{text, fixes})
}

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// makePlan turns a state into a plan. It has no side effects and needs no
// database, so --plan, --check and the run itself cannot disagree.
func makePlan(s *state, f File, functions map[string][]overload, o Options) *Plan {
	p := &Plan{}
	if err := unsuitable(s); err != nil {
		p.Refusal = err
		return p
	}
	v := decide(s, f, functions, o)
	p.From, p.Install, p.Upgrade = v.from, v.install, v.upgrade
	p.Drift, p.Extra = v.drift.lines(), v.drift.Extra
	if s.Schema == nil || v.install && !v.drifted {
		p.Drift = nil // an install or an upgrade changes functions; that is no drift
	}
	if v.refusal != nil {
		p.Refusal, p.Drifted = v.refusal, v.drifted && !v.upgrade
		return p
	}
	p.chooseOwner(s, o)
	if p.Install {
		p.planOwner(s)
		p.planRoles(s, f)
	}
	p.planStrays(s, functions)
	if v.drifted && !v.install {
		p.warn("functions differ from the file and stay (--allow-drift): %s", strings.Join(p.Drift, "; "))
	} else {
		p.planProvenance(s, f, functions, o)
	}
	if len(p.Extra) > 0 {
		p.warn("schema pgque has functions that the file does not have: %s", strings.Join(p.Extra, ", "))
	}
	if !p.Install {
		p.Exposed = exposed(s, f, functions)
		for _, text := range p.Exposed {
			p.warn("%s, which the file does not allow; run bootstrap with --reinstall to take it back", text)
		}
	}
	p.planGrants(s, o.Grants)
	p.planHooks(s, functions)
	if len(p.problems) > 0 {
		p.Refusal = p.refuseMissing(s)
	}
	return p
}

// chooseOwner keeps the owner of an existing schema. Changing it is a decision
// that SQL states better than a flag.
func (p *Plan) chooseOwner(s *state, o Options) {
	wanted := o.ownerName(s.User)
	if s.Schema == nil {
		p.Owner = wanted
	} else {
		p.Owner = s.Schema.Owner
		if o.Owner != "" && wanted != p.Owner {
			p.warn("schema pgque is owned by %q and stays so; --owner is for the first install", p.Owner)
		}
		if s.Roles[p.Owner].Superuser {
			p.warn("schema pgque is owned by %q, a superuser: whoever has pgque_admin can become superuser through it. To mend it, make a NOLOGIN role its owner (docs/bootstrap.md has the lines) and run bootstrap as a superuser again", p.Owner)
		}
	}
	p.ownerSetUp = p.Owner != s.User
}

// canActAsOwner reports whether this login may do what only the owner may.
func (p *Plan) canActAsOwner(s *state) bool {
	if !p.ownerSetUp || s.Superuser {
		return true
	}
	return s.Roles[p.Owner].CanSet
}

// planProvenance records what the database has, or is about to have. A login
// that cannot act as the owner leaves it: knowing is better, but not needed.
func (p *Plan) planProvenance(s *state, f File, functions map[string][]overload, o Options) {
	if p.Install {
		return // the comment needs the new fingerprint: install writes it
	}
	now, rest := parseProvenance(s.Schema.Comment)
	want := f.provenance(fingerprint(ownFunctions(functions, s.Functions)), o.Tool)
	if now != nil && now.sameInstall(want) || !p.canActAsOwner(s) || s.InRecovery {
		return
	}
	p.AsOwner = append(p.AsOwner, commentSQL(want, rest))
}

// sameInstall compares all but the version of the tool that wrote the record:
// a newer tool alone is no reason to write to the database.
func (p provenance) sameInstall(other provenance) bool {
	p.Tool, other.Tool = "", ""
	return p == other
}

func commentSQL(p provenance, rest string) string {
	return "COMMENT ON SCHEMA pgque IS " + quoteLiteral(p.comment(rest)) + ";"
}

// refuseMissing lists everything that is missing in one failure, with the SQL
// for each: nobody should find out one by one.
func (p *Plan) refuseMissing(s *state) *fault.Error {
	var texts []string
	err := fault.New(fault.Policy, "")
	for _, problem := range p.problems {
		texts = append(texts, problem.text)
		for _, fix := range problem.fixes {
			err.Hint("%s", fix)
		}
	}
	if len(texts) == 1 {
		err.Text = fmt.Sprintf("database %q as %q: %s", s.Database, s.User, texts[0])
		return err
	}
	err.Text = fmt.Sprintf("database %q as %q: %d things are missing\n  - %s", s.Database, s.User, len(texts), strings.Join(texts, "\n  - "))
	return err
}
