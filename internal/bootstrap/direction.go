package bootstrap

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
	"golang.org/x/mod/semver"
)

// verdict is the first answer: is there something to install, and on top of what.
type verdict struct {
	from    *Version // what the database has; nil where it has none
	install bool     // the file has to be run
	upgrade bool     // over an older release
	drift   drift
	// refusal says why the file must not be run. drifted tells the refusal that
	// --reinstall and --allow-drift lift from those that nothing lifts.
	refusal *fault.Error
	drifted bool
}

// decide compares the file with the database. It goes by the bodies of the
// functions and by our provenance, never by what version() says.
func decide(s *state, f File, functions map[string][]overload, o Options) verdict {
	if s.Schema == nil || len(s.Functions) == 0 && s.Relations == 0 && s.Schema.Extension == "" {
		return verdict{install: true}
	}
	if s.Schema.Extension != "" {
		return refused(nil, fault.New(fault.Policy, "schema \"pgque\" in database %q belongs to the extension %q", s.Database, s.Schema.Extension).
			Hint("update it as an extension: ALTER EXTENSION %s UPDATE;", quoteIdent(s.Schema.Extension)))
	}
	p, _ := parseProvenance(s.Schema.Comment)
	v := verdict{drift: compare(functions, s.Functions)}
	live := fingerprint(s.Functions)
	if v.drift.equal() {
		live = fingerprint(ownFunctions(functions, s.Functions))
		v.from = version(s, p, live)
		return v.sameBodies(s, p, f, live, o)
	}
	v.from = version(s, p, live)
	known, isKnown := releaseByFingerprint(live)
	confirmed := p != nil && p.Fingerprint == live
	from, path := known.tag, known.path
	if p != nil && (confirmed || !isKnown) {
		from, path = orderedAs(p.Tag, p.Path, p.SHA256)
	}
	switch {
	case !isKnown && p == nil && v.looksEdited(s.Functions):
		return v.edited(s, f, o)
	case !isKnown && p == nil:
		return v.refuse(fault.New(fault.Policy, "schema \"pgque\" in database %q is no PgQue that this program knows: %d of the file's functions differ or are missing", s.Database, len(v.drift.Changed)+len(v.drift.Missing)).
			Hint("if it is not PgQue, use another database").
			Hint("if it is, bring it to a released version by hand first, then run bootstrap again"))
	}
	to, _ := orderedAs(f.Tag, f.Path, f.SHA256)
	switch {
	case from == to && (confirmed || isKnown):
		return v.otherFile(s, p, f, o)
	case from == to:
		return v.edited(s, f, o)
	case !comparable(from, to):
		return v.refuse(fault.New(fault.Policy, "the database has %s and the file is %s: these have no order, so this may be a step back", from, to).
			Hint("pgque-vendor update --latest"))
	case semver.Compare(to, from) < 0:
		return v.older(f, from, path, to)
	case !confirmed && !isKnown:
		v.upgrade = true
		return v.changedSince(s, from, o)
	}
	v.install, v.upgrade = true, true
	return v
}

func refused(from *Version, err *fault.Error) verdict { return verdict{from: from, refusal: err} }

func (v verdict) refuse(err *fault.Error) verdict {
	v.refusal = err
	return v
}

// sameBodies is the usual case: nothing to install. What a body does not show,
// such as SECURITY DEFINER, is proved where the right fingerprint is known.
func (v verdict) sameBodies(s *state, p *provenance, f File, live string, o Options) verdict {
	want := ""
	if r, ok := releaseByFile(f.SHA256); ok {
		want = r.fingerprint
	} else if p != nil && p.SHA256 == f.SHA256 {
		want = p.Fingerprint
	}
	if want == "" || want == live {
		v.install = o.Reinstall
		return v
	}
	v.drift.Changed = append(v.drift.Changed, "the signature, security or settings of a function of schema pgque")
	return v.edited(s, f, o)
}

// ownFunctions leaves out functions that are not the file's.
func ownFunctions(file map[string][]overload, live []function) []function {
	var own []function
	left := make(map[string]int, len(file))
	for name, overloads := range file {
		left[name] = len(overloads)
	}
	for _, f := range live {
		if hasBody(file[f.Name], f.Body) && left[f.Name] > 0 {
			left[f.Name]--
			own = append(own, f)
		}
	}
	return own
}

func hasBody(overloads []overload, body string) bool {
	for _, o := range overloads {
		if o.body == body {
			return true
		}
	}
	return false
}

// looksEdited reports that an install without a record is the file's release
// with a few functions changed by hand. It must not take a release that this
// program does not know for an edit, since --reinstall could be a step back: the
// functions must be the same ones, and version() among those that did not change.
func (v verdict) looksEdited(live []function) bool {
	return len(v.drift.Missing) == 0 && len(v.drift.Extra) == 0 && len(v.drift.Changed) <= len(live)/10 &&
		!slices.Contains(v.drift.Changed, "pgque.version()")
}

// older refuses the way back. The hint leads to the file that the database has, which
// may be another one of the same tag.
func (v verdict) older(f File, from, path, to string) verdict {
	file, hint := "the file is", "pgque-vendor update "+from
	if f.Tag != to {
		file = fmt.Sprintf("the file, %q of %s, is", f.Path, f.Tag)
	}
	if path != f.Path {
		hint += " --sql-path " + path
		if strings.ContainsFunc(path, odd) { // it comes from a comment in the database
			hint = "the file is " + strconv.Quote(path) + " of " + from
		}
	}
	return v.refuse(fault.New(fault.Policy, "the database has %s and %s the older %s: going back is refused, since it would leave old functions on new tables", from, file, to).
		Hint("%s", hint))
}

// odd reports a character that a shell may take for something else.
func odd(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/", r)
}

// edited: the same release, but some functions are not the file's.
func (v verdict) edited(s *state, f File, o Options) verdict {
	v.drifted = true
	if o.Reinstall {
		v.install = true
		return v
	}
	if o.AllowDrift {
		return v
	}
	return v.refuse(fault.New(fault.Policy, "database %q has functions that are not those of %s: %s", s.Database, f.Tag, strings.Join(v.drift.lines(), "; ")).
		Hint("pgque-vendor bootstrap --reinstall     # puts the file's functions back").
		Hint("pgque-vendor bootstrap --allow-drift   # keeps them and goes on with the grants"))
}

// otherFile: an unchanged install of the same tag, from another file.
func (v verdict) otherFile(s *state, p *provenance, f File, o Options) verdict {
	v.drifted = true
	if o.Reinstall {
		v.install = true
		return v
	}
	if o.AllowDrift {
		return v
	}
	was := "another file"
	if p != nil {
		was = fmt.Sprintf("%q at %.12s", p.Path, p.Commit)
	}
	return v.refuse(fault.New(fault.Policy, "database %q has %s of the same tag %s, not %q at %.12s: %s", s.Database, was, f.Tag, f.Path, f.Commit, strings.Join(v.drift.lines(), "; ")).
		Hint("pgque-vendor bootstrap --reinstall   # installs the vendored one"))
}

// changedSince: an older release whose functions were changed after we
// installed it. An upgrade would take the changes away without a word.
func (v verdict) changedSince(s *state, from string, o Options) verdict {
	v.drifted = true
	if o.Reinstall {
		v.install = true
		return v
	}
	return v.refuse(fault.New(fault.Policy, "functions in database %q were changed or added after %s was installed, and an upgrade could drop that", s.Database, from).
		Hint("vendor %s again and run pgque-vendor bootstrap --check to see which", from).
		Hint("pgque-vendor bootstrap --reinstall   # upgrades anyway"))
}

// version describes what the database has, for the report.
func version(s *state, p *provenance, live string) *Version {
	v := &Version{SQLVersion: returnedText(s.version()), Fingerprint: live}
	if r, ok := releaseByFingerprint(live); ok {
		v.Tag, v.Path, v.SHA256 = r.tag, r.path, r.sha256
	}
	if p != nil {
		v.Tag, v.Path, v.Commit, v.SHA256 = p.Tag, p.Path, p.Commit, p.SHA256
		v.Confirmed = p.Fingerprint == live
	}
	return v
}

// returnedText finds the text that a body such as "return '0.2.0';" returns.
func returnedText(body string) string {
	_, after, ok := strings.Cut(body, "return '")
	if !ok {
		if _, after, ok = strings.Cut(body, "select '"); !ok {
			return ""
		}
	}
	text, _, _ := strings.Cut(after, "'")
	return text
}
