package bootstrap

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/internal/fault"
)

// prove reads the state again, inside the transaction, and compares it with
// what a run promises. Any miss ends in a rollback. On success the report
// carries what was found, and the state is returned.
func prove(ctx context.Context, tx pgx.Tx, r *Report, f File, functions map[string][]overload, o Options) (*state, error) {
	s, _, err := read(ctx, tx, f, o)
	if err != nil {
		return nil, err
	}
	without := withoutEffect(s, o)
	if misses := append(postconditions(s, r.Plan, f, functions), without...); len(misses) > 0 {
		err := fault.New(fault.SQL, "the result is not what it must be, so it was rolled back:\n  - %s", strings.Join(misses, "\n  - "))
		if len(without) > 0 && !r.Plan.Install {
			err.Hint(giveRightsBack)
		}
		return nil, err
	}
	r.Grants = report(s, r.Plan).Grants
	switch {
	case r.Plan.Upgrade:
		r.Action = Upgraded
	case r.Plan.Install:
		r.Action = Installed
	}
	return s, nil
}

func postconditions(s *state, p *Plan, f File, functions map[string][]overload) []string {
	var misses []string
	miss := func(format string, args ...any) { misses = append(misses, fmt.Sprintf(format, args...)) }
	if s.Schema == nil {
		return []string{"there is no schema pgque"}
	}
	if p.Install || len(p.Provide) > 0 {
		for _, h := range hooks(s, functions) { // it came in the meantime
			miss("%s is not PgQue's, and no superuser owns it", h.name)
		}
	}
	known, _ := releaseByFile(f.SHA256)
	if p.Install {
		for _, line := range compare(functions, s.Functions).lines() {
			miss("%s", line)
		}
		if own := fingerprint(ownFunctions(functions, s.Functions)); known.fingerprint != "" && own != known.fingerprint {
			miss("the functions' fingerprint is %.12s, not %.12s as %s has it", own, known.fingerprint, known.tag)
		}
		if s.Schema.Owner != p.Owner {
			miss("schema pgque is owned by %q, not %q", s.Schema.Owner, p.Owner)
		}
		for _, fn := range s.Functions {
			if len(functions[fn.Name]) == 0 {
				continue // not the file's
			}
			if fn.Owner != s.Schema.Owner {
				miss("%s is owned by %q, not %q", fn, fn.Owner, s.Schema.Owner)
			}
		}
		for _, x := range s.Strays {
			miss("pgque.%s is owned by %q, not %q", x.Name, x.Owner, s.Schema.Owner)
		}
		misses = append(misses, exposed(s, f, functions)...)
	}
	return misses
}

// exposed says who has rights that the file takes away. The first release gives them
// itself.
func exposed(s *state, f File, functions map[string][]overload) (texts []string) {
	if known, _ := releaseByFile(f.SHA256); known.open {
		return nil
	}
	var public []string
	for _, fn := range s.Functions {
		if fn.Public && len(functions[fn.Name]) > 0 {
			public = append(public, fn.String())
		}
	}
	switch {
	case len(public) > 3:
		texts = append(texts, fmt.Sprintf("PUBLIC may execute %s and %d more functions", strings.Join(public[:3], ", "), len(public)-3))
	case len(public) > 0:
		texts = append(texts, "PUBLIC may execute "+strings.Join(public, ", "))
	}
	if s.isMember(Reader, Writer) {
		texts = append(texts, fmt.Sprintf("%q is a member of %q, so that a publisher can end consumers' batches", Writer, Reader))
	}
	return texts
}

// withoutEffect are the grants that were asked for by name and do nothing.
func withoutEffect(s *state, o Options) (misses []string) {
	for _, g := range o.Grants {
		if g.Default {
			continue
		}
		for _, now := range s.Grants {
			if now.To == g.To && now.Role == g.Role && !now.effective() {
				misses = append(misses, fmt.Sprintf("%s was granted to %q and has no effect: %s", g.Role, g.To, whyNot(now)))
			}
		}
	}
	return misses
}

func whyNot(g grantState) string {
	switch {
	case !g.SchemaUsage:
		return "it has no USAGE on schema pgque"
	case g.Calls == 0:
		return "none of the calls it is for exists"
	}
	return "refused are " + strings.Join(g.Denied, ", ")
}
