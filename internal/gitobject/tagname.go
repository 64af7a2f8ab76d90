package gitobject

import (
	"strings"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/internal/fault"
)

// CheckTagName reports why name can't be a tag, by the rules of git
// check-ref-format for refs/tags/NAME, so that a name from a person or a file
// is known to be harmless before it goes into a request or to git. Slashes,
// Unicode, "+", "%", names that look like an object id, and "HEAD" are names
// like any other: git allows them below refs/tags. Beyond git's rules, a name
// that starts with "-" (git tag refuses to make one) and one that is not valid
// UTF-8 (no API and no JSON file can carry it) are refused. The failure is
// fault.Usage.
func CheckTagName(name string) error {
	if reason := badTagName(name); reason != "" {
		return fault.New(fault.Usage, "%q can't be a tag's name: %s", clip(name), reason)
	}
	return nil
}

func badTagName(name string) string {
	switch {
	case name == "":
		return "it is empty"
	case strings.HasPrefix(name, "-"):
		return `it starts with "-"`
	case !utf8.ValidString(name):
		return "it is not valid UTF-8"
	case strings.Contains(name, ".."):
		return `it holds ".."`
	case strings.Contains(name, "@{"):
		return `it holds "@{"`
	case strings.HasSuffix(name, "."):
		return `it ends with "."`
	}
	for _, c := range []byte(name) {
		if c < ' ' || c == 0x7f {
			return "it holds a control character"
		}
		if strings.IndexByte(" ~^:?*[\\", c) >= 0 {
			return "it holds " + quoted(c)
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "":
			return `it starts or ends with "/", or holds "//"`
		case strings.HasPrefix(part, "."):
			return `a part of it starts with "."`
		case strings.HasSuffix(part, ".lock"):
			return `a part of it ends with ".lock"`
		}
	}
	return ""
}

func quoted(c byte) string {
	if c == ' ' {
		return "a space"
	}
	return `"` + string(c) + `"`
}
