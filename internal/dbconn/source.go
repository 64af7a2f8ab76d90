package dbconn

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// source is a connection string and what it came from. The string is empty
// when only PG* and libpq's defaults are left.
type source struct {
	name       string
	connString string
}

func findSource(in Input) (source, error) {
	if in.URLFile != "" {
		text, err := readSecret(in, "--database-url-file", in.URLFile)
		return source{fmt.Sprintf("--database-url-file %q", in.URLFile), text}, err
	}
	for _, name := range []string{"PGQUE_VENDOR_DATABASE_URL", "DATABASE_URL"} {
		value, _ := in.Lookup(name)
		path, _ := in.Lookup(name + "_FILE")
		switch {
		case value != "" && path != "":
			return source{}, bothSet(name, name+"_FILE")
		case value != "":
			return source{name, value}, nil
		case path != "":
			text, err := readSecret(in, name+"_FILE", path)
			return source{fmt.Sprintf("%s_FILE %q", name, path), text}, err
		}
	}
	return source{name: environmentSource(in)}, nil
}

// environmentSource names the PG* variables that are set, so that the first
// line of a run says which of them it listened to.
func environmentSource(in Input) string {
	var set []string
	for _, name := range []string{"PGSERVICE", "PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER"} {
		if v, _ := in.Lookup(name); v != "" {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return "the defaults: neither DATABASE_URL nor PGHOST is set"
	}
	return strings.Join(set, ", ")
}

// passwordSource names where the driver found the password, in its order.
func passwordSource(in Input, src source) string {
	set := func(name string) bool { v, _ := in.Lookup(name); return v != "" }
	passwordFile := "the password file"
	if set("PGPASSFILE") && !hasSetting(src.connString, "passfile") {
		passwordFile = "the password file that PGPASSFILE names"
	}
	switch {
	case givesPassword(src.connString):
		return src.name
	case set("PGSERVICE") || hasSetting(src.connString, "service"):
		return "the service file, PGPASSWORD or " + passwordFile
	case set("PGPASSWORD"):
		return "PGPASSWORD"
	}
	return passwordFile
}

// givesPassword reports whether a connection string has a password in it.
func givesPassword(connString string) bool {
	if hasSetting(connString, "password") {
		return true
	}
	_, authority, _ := strings.Cut(connString, "://")
	if i := strings.IndexAny(authority, "/?"); i >= 0 {
		authority = authority[:i]
	}
	user, _, hasUser := strings.Cut(authority, "@")
	_, password, _ := strings.Cut(user, ":")
	return hasUser && password != ""
}

// hasSetting looks for a setting in either form of a connection string.
func hasSetting(connString, name string) bool {
	return regexp.MustCompile(`(^|[?&\s])` + name + `\s*=`).MatchString(connString)
}

func bothSet(a, b string) error {
	return fault.New(fault.Usage, "both %s and %s are set: they are two forms of one setting", a, b).
		Hint("unset one of them")
}

// readSecret reads a file that holds one secret and cuts exactly one line end
// off, as editors add one. Nothing else is cut: a password may end in a space.
func readSecret(in Input, name, path string) (string, error) {
	data, err := in.ReadFile(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return "", fault.New(fault.Usage, "%s: read %q: %s", name, path, err)
	}
	text := string(data)
	if strings.HasPrefix(text, "\xef\xbb\xbf") || strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
		return "", fault.New(fault.Usage, "%s: %q begins with a byte order mark", name, path).
			Hint("save the file as UTF-8 without a byte order mark")
	}
	if cut, ok := strings.CutSuffix(text, "\n"); ok {
		text = strings.TrimSuffix(cut, "\r")
	}
	if text == "" {
		return "", fault.New(fault.Usage, "%s: %q is empty", name, path)
	}
	return text, nil
}

// checkEnvironment looks at the variables that the driver reads without a word
// when something is wrong with them.
func checkEnvironment(in Input) error {
	path, _ := in.Lookup("PGPASSFILE")
	if path == "" {
		return nil
	}
	if _, err := in.ReadFile(path); err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return fault.New(fault.Usage, "PGPASSFILE: read %q: %s", path, err)
	}
	return nil
}
