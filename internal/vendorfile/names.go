package vendorfile

import (
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/internal/fault"
)

// CheckPath reports why path can't be a file's path in the upstream
// repository. It must be relative and clean, with "/" only, and every part of
// it must be a plain name on every system, also on Windows: a repository is
// cloned everywhere, and a path that is harmless text here is a device or
// another drive there. The failure is fault.Usage.
func CheckPath(path string) error {
	if reason := badPath(path); reason != "" {
		return fault.New(fault.Usage, "%q can't be a path: %s", clip(path), reason)
	}
	return nil
}

func badPath(path string) string {
	switch {
	case path == "":
		return "it is empty"
	case len(path) > 1024:
		return "it is longer than 1,024 bytes"
	case !utf8.ValidString(path):
		return "it is not valid UTF-8"
	case strings.Contains(path, `\`):
		return `it holds "\"; paths are written with "/"`
	case strings.HasPrefix(path, "/"):
		return `it is absolute`
	case strings.Contains(path, ":"):
		return `it holds ":", which names a drive or a stream on Windows`
	case path == ".":
		return "it names the folder itself"
	case strings.Contains("/"+path+"/", "/../"):
		return `it holds ".."`
	case !fs.ValidPath(path):
		return `it is not clean: a part of it is empty or "."`
	}
	for _, r := range path {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return "it holds a control character"
		}
		if strings.ContainsRune(`<>"|?*`, r) {
			return "it holds " + `"` + string(r) + `", which Windows forbids`
		}
	}
	for part := range strings.SplitSeq(path, "/") {
		if reason := badPart(part); reason != "" {
			return reason
		}
	}
	return ""
}

func badPart(part string) string {
	switch folded := foldCase(part); {
	case len(part) > 255:
		return "a part of it is longer than 255 bytes"
	case strings.HasSuffix(part, ".") || strings.HasSuffix(part, " "):
		return `a part of it ends with "." or a blank, which Windows drops`
	case folded == ".git" || strings.HasPrefix(folded, "git~"):
		return "it leads into git's own folder"
	case reservedOnWindows(folded):
		return `"` + part + `" is a device on Windows`
	}
	return ""
}

// reservedOnWindows knows the names that are devices there in every folder,
// also with an extension.
func reservedOnWindows(folded string) bool {
	base, _, _ := strings.Cut(folded, ".")
	base = strings.TrimRight(base, " ")
	switch base {
	case "con", "prn", "aux", "nul", "conin$", "conout$":
		return true
	}
	for _, device := range []string{"com", "lpt"} {
		if digit, ok := strings.CutPrefix(base, device); ok {
			return utf8.RuneCountInString(digit) == 1 && strings.Contains("0123456789¹²³", digit)
		}
	}
	return false
}

// foldCase maps names that are one file on a system that ignores case to one
// string.
func foldCase(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// CheckRepository reports why repository is not GitHub's owner/name. The
// failure is fault.Usage.
func CheckRepository(repository string) error {
	owner, name, ok := strings.Cut(repository, "/")
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if !ok || owner == "" || name == "" || len(owner) > 100 || len(name) > 100 ||
		strings.Trim(owner, letters) != "" || strings.Trim(name, letters+".") != "" ||
		name == "." || name == ".." || owner[0] == '-' {
		return fault.New(fault.Usage, "%q is no repository: it takes owner/name, as in NikolayS/PgQue", clip(repository))
	}
	return nil
}

// shellWord quotes a word of a hint's command where a shell would read it as
// something else. Single quotes mean the same to sh and to PowerShell.
func shellWord(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:@%,"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
