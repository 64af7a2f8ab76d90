package bootstrap

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/stega/pgque-vendor/internal/sqltext"
)

// function is one function or procedure of schema pgque as the catalog has it.
type function struct {
	Name       string `json:"name"`
	Args       string `json:"args"` // identity arguments, spelt under an empty search_path
	Result     string `json:"result"`
	Procedure  bool   `json:"procedure"`
	Definer    bool   `json:"definer"`
	Volatility string `json:"volatility"`
	Config     string `json:"config"`
	Body       string `json:"body"` // SHA-256 of prosrc
	Owner      string `json:"owner"`
	Public     bool   `json:"public"`  // PUBLIC may execute it
	Trusted    bool   `json:"trusted"` // a superuser or the login owns it
	Version    string `json:"version"` // the body of pgque.version(); "" of any other
}

func compareFunctions(a, b function) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Args, b.Args))
}

// String is the function with its input arguments: "pgque.ack(i_batch_id bigint)".
func (f function) String() string {
	args, _, _ := strings.Cut(f.Args, "OUT ")
	return "pgque." + f.Name + "(" + strings.TrimSuffix(strings.TrimSpace(args), ",") + ")"
}

// fingerprint tells releases apart: a hash over every function's signature,
// result, security, volatility, settings and body. It leaves out owners, OIDs
// and privileges, which differ between two installs of one file, and it is the
// same on every major version of PostgreSQL. version() cannot do this: two
// releases may say the same, and one says a version that sorts after its
// successors.
func fingerprint(functions []function) string {
	sorted := slices.SortedFunc(slices.Values(functions), compareFunctions)
	h := sha256.New()
	var line []byte
	for _, f := range sorted {
		line = strconv.AppendQuote(line[:0], f.Name)
		line = strconv.AppendQuote(append(line, ' '), f.Args)
		line = strconv.AppendQuote(append(line, ' '), f.Result)
		line = strconv.AppendBool(append(line, ' '), f.Procedure)
		line = strconv.AppendBool(append(line, ' '), f.Definer)
		line = append(append(line, ' '), f.Volatility...)
		line = strconv.AppendQuote(append(line, ' '), f.Config)
		line = append(append(line, ' '), f.Body...)
		h.Write(append(line, '\n'))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// drift is what differs between the functions of a file and of a database.
type drift struct {
	Changed []string // in both, with another body
	Missing []string // in the file only
	Extra   []string // in the database only; harmless, but worth knowing
}

// equal reports that every function of the file is in the database with the
// same body.
func (d drift) equal() bool { return len(d.Changed)+len(d.Missing) == 0 }

// lines are for people: one line for each function that must be replaced.
func (d drift) lines() []string {
	var out []string
	for _, name := range d.Changed {
		out = append(out, name+" differs from the file")
	}
	for _, name := range d.Missing {
		out = append(out, name+" is missing")
	}
	return out
}

// functions are those that the file leaves behind, as fileFunctions finds them.
// Where the live ones have the fingerprint of the release that the file is known
// to be they are the file's, and its text need not be read.
func (f File) functions(live []function) map[string][]overload {
	r, known := releaseByFile(f.SHA256)
	if !known || r.fingerprint != fingerprint(live) {
		return fileFunctions(f.SQL)
	}
	all := make(map[string][]overload, len(live))
	for _, l := range live {
		all[l.Name] = append(all[l.Name], overload{body: l.Body})
	}
	return all
}

// overload is a function of the file under its name.
type overload struct {
	args string // types, for people: how the server will spell them is its own business
	body string // SHA-256
}

// fileFunctions are the functions that a file leaves behind, by name.
func fileFunctions(sql []byte) map[string][]overload {
	all := make(map[string][]overload)
	for _, o := range sqltext.Objects(sql) {
		name, inSchema := strings.CutPrefix(o.Name, "pgque.")
		if !inSchema || o.Kind != sqltext.Function && o.Kind != sqltext.Procedure {
			continue
		}
		if strings.HasPrefix(name, `"`) {
			name = strings.ReplaceAll(strings.Trim(name, `"`), `""`, `"`)
		}
		sum := sha256.Sum256([]byte(o.Body))
		all[name] = append(all[name], overload{o.Args, hex.EncodeToString(sum[:])})
	}
	return all
}

// compare finds what differs. Overloads of one name are matched by their bodies.
func compare(file map[string][]overload, live []function) drift {
	var d drift
	left := make(map[string][]overload, len(file)) // those of the file that no live function has yet matched
	for name, overloads := range file {
		left[name] = slices.Clone(overloads)
	}
	var unmatched []function
	for _, f := range live {
		if i := slices.IndexFunc(left[f.Name], func(o overload) bool { return o.body == f.Body }); i >= 0 {
			left[f.Name] = slices.Delete(left[f.Name], i, i+1)
			continue
		}
		unmatched = append(unmatched, f)
	}
	for _, f := range unmatched {
		if len(left[f.Name]) == 0 {
			d.Extra = append(d.Extra, f.String())
			continue
		}
		// That with as many arguments, so that the right one is said to be missing.
		i := slices.IndexFunc(left[f.Name], func(o overload) bool { return strings.Count(o.args, ",") == strings.Count(f.String(), ",") })
		i = max(i, 0)
		left[f.Name] = slices.Delete(left[f.Name], i, i+1)
		d.Changed = append(d.Changed, f.String())
	}
	for name, overloads := range left {
		for _, o := range overloads {
			d.Missing = append(d.Missing, "pgque."+name+"("+o.args+")")
		}
	}
	slices.Sort(d.Changed)
	slices.Sort(d.Missing)
	slices.Sort(d.Extra)
	return d
}
