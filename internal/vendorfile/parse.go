package vendorfile

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// Parse reads SOURCE.json. It is strict, since every other promise rests on
// this file: what is unknown, twice, of another type, cut short or missing is
// an error that names line and column, never a guess. Indentation, line
// endings and the order of keys are free, and hexadecimal digits may be in
// upper case. Every failure is fault.Integrity; a file of a newer format also
// wraps ErrNewerSchema.
func Parse(data []byte) (*Source, error) {
	if err := checkText(data); err != nil {
		return nil, err
	}
	if err := checkSchema(data); err != nil {
		return nil, err
	}
	s := newScanner(data)
	p := &parser{scanner: s, source: &Source{Files: map[string]File{}}, seen: map[string]int{}}
	start, err := s.object(SourceName, p.member)
	if err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	for _, key := range []string{"repository", "tag", "commit", "sql_version", "files"} {
		if _, ok := p.seen[key]; !ok {
			return nil, s.errorf(start, "key %q is missing", key)
		}
	}
	return p.source, p.checkFiles()
}

// checkText refuses a file that is no JSON text at all, by what it is instead.
func checkText(data []byte) error {
	s := newScanner(data)
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return s.errorf(0, "the file is empty")
	case len(data) > sourceLimit:
		return s.errorf(0, "the file is larger than %d bytes", sourceLimit)
	case bytes.HasPrefix(data, bom):
		return s.errorf(0, "the file starts with a UTF-8 byte order mark (BOM); save it without one")
	case looksUTF16(data):
		return s.errorf(0, "the file looks like UTF-16; save it as UTF-8 without BOM")
	}
	if err := checkConflict(s); err != nil {
		return err
	}
	if at := invalidUTF8(data); at >= 0 {
		return s.errorf(at, "the file is not valid UTF-8")
	}
	return nil
}

// invalidUTF8 returns where data stops being UTF-8, or -1. (encoding/json
// would replace such bytes without a word.)
func invalidUTF8(data []byte) int {
	for at := 0; at < len(data); {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
	return -1
}

// checkConflict looks for the lines that git leaves where two sides disagree.
// No string can hold such a line, since JSON strings hold no raw line break.
func checkConflict(s *scanner) error {
	at := 0
	for line := range bytes.Lines(s.data) {
		text := strings.TrimRight(string(line), "\r\n")
		for _, marker := range []string{"<<<<<<<", "|||||||", "=======", ">>>>>>>"} {
			if text != marker && !strings.HasPrefix(text, marker+" ") {
				continue
			}
			err := s.errorf(at, "merge conflict in %s (%s); pick a side, or vendor again", SourceName, marker)
			for _, tag := range tagsIn(s.data) {
				err.Hint("pgque-vendor update %s --force", tag)
			}
			return err
		}
		at += len(line)
	}
	return nil
}

// tagsIn finds the tags that a conflicted file names, so that the hints can be
// commands that work.
func tagsIn(data []byte) []string {
	var tags []string
	for _, m := range regexp.MustCompile(`"tag"\s*:\s*"([^"\\]*)"`).FindAllSubmatch(data, 10) {
		tag := string(m[1])
		if gitobject.CheckTagName(tag) == nil && !slices.Contains(tags, tag) {
			tags = append(tags, shellWord(tag))
		}
	}
	return tags
}

// checkSchema looks at the schema first, and at nothing else: a newer format
// may have keys that the strict pass would call unknown.
func checkSchema(data []byte) error {
	s := newScanner(data)
	found := false
	start, err := s.object(SourceName, func(key string, _ int) error {
		if key != "schema" {
			return s.skip()
		}
		found = true
		version, at, err := s.integer(key)
		if err == nil && version > schemaVersion || errors.Is(err, errTooLarge) {
			digits := clip(string(data[at:s.decoder.InputOffset()]))
			err = s.errorf(at, "schema %s is newer than this pgque-vendor, which reads schema %d: %w", digits, schemaVersion, ErrNewerSchema).
				Hint("upgrade pgque-vendor to a version that reads schema %s", digits)
		}
		return err
	})
	if err == nil && !found {
		err = s.errorf(start, "key %q is missing; this pgque-vendor reads schema %d", "schema", schemaVersion)
	}
	return err
}

// parser fills a Source from the members of the document.
type parser struct {
	*scanner
	source *Source
	seen   map[string]int // key → where its value starts
}

var topKeys = []string{"schema", "repository", "repository_id", "tag", "commit", "tag_object", "sql_version", "files"}

func (p *parser) member(key string, at int) (err error) {
	src := p.source
	var value int
	switch key {
	case "schema":
		_, value, err = p.integer(key)
	case "repository":
		src.Repository, value, err = p.checked(key, CheckRepository)
	case "repository_id":
		src.RepositoryID, value, err = p.integer(key)
	case "tag":
		src.Tag, value, err = p.checked(key, gitobject.CheckTagName)
	case "commit":
		src.Commit, value, err = p.hex(key, 40)
	case "tag_object":
		src.TagObject, value, err = p.hex(key, 40)
	case "sql_version":
		src.SQLVersion, value, err = p.checked(key, checkVersion)
	case "files":
		value, err = p.object(`"files"`, p.file)
	default:
		return p.unknown(key, at, "", topKeys)
	}
	p.seen[key] = value
	return err
}

var fileKeys = []string{"path", "size", "sha256", "git_blob"}

// file reads one member of "files".
func (p *parser) file(name string, at int) error {
	if !slices.Contains(Required(), name) {
		return p.unknown(name, at, ` in "files"`, Required())
	}
	var f File
	seen := map[string]bool{}
	what := fmt.Sprintf("file %q", name)
	start, err := p.object(what, func(key string, at int) (err error) {
		seen[key] = true
		switch key {
		case "path":
			f.Path, _, err = p.checked(key, CheckPath)
		case "size":
			f.Size, at, err = p.integer(key)
			if limit := SizeLimit(name); err == nil && f.Size > limit {
				err = p.errorf(at, "%s: size %d is over the limit of %d bytes", what, f.Size, limit)
			}
		case "sha256":
			f.SHA256, _, err = p.hex(key, 64)
		case "git_blob":
			f.GitBlob, _, err = p.hex(key, 40)
		default:
			err = p.unknown(key, at, " in "+what, fileKeys)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, key := range fileKeys {
		if !seen[key] {
			return p.errorf(start, "%s has no %q", what, key)
		}
	}
	p.source.Files[name] = f
	return nil
}

// checkFiles looks at what only all files together show.
func (p *parser) checkFiles() error {
	at := p.seen["files"]
	if len(p.source.Files) == 0 {
		return p.errorf(at, `"files" is empty`)
	}
	for _, name := range Required() {
		if _, ok := p.source.Files[name]; !ok {
			return p.errorf(at, `"files" has no %q; LICENSE, NOTICE and pgque.sql are all required`, name)
		}
	}
	paths := map[string]string{}
	for _, name := range p.source.names() {
		path := p.source.Files[name].Path
		switch other := paths[foldCase(path)]; other {
		case "":
			paths[foldCase(path)] = path
		case path:
			return p.errorf(at, "two files have the same path %q", path)
		default:
			return p.errorf(at, "the paths %q and %q differ only in case", other, path)
		}
	}
	return nil
}

// checked reads a string that check accepts.
func (p *parser) checked(key string, check func(string) error) (string, int, error) {
	v, at, err := p.text(key)
	if err != nil {
		return "", at, err
	}
	if err := check(v); err != nil {
		return "", at, p.errorf(at, "%q: %s", key, err)
	}
	return v, at, nil
}

// hex reads a hash of so many digits. Upper case is the same number.
func (p *parser) hex(key string, digits int) (string, int, error) {
	v, at, err := p.text(key)
	if err != nil {
		return "", at, err
	}
	if prefix, rest, ok := strings.Cut(v, ":"); ok && len(rest) == digits {
		return "", at, p.errorf(at, "%q must be the %d digits alone, without %q", key, digits, clip(prefix)+":")
	}
	for _, c := range []byte(v) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return "", at, p.errorf(at, "%q must be hexadecimal, it is %q", key, clip(v))
		}
	}
	switch {
	case len(v) == digits:
		return strings.ToLower(v), at, nil
	case v == "":
		return "", at, p.errorf(at, "%q is empty", key)
	case digits == 64 && len(v) == 40:
		return "", at, p.errorf(at, "%q has 40 digits, as a SHA-1 has; it must have 64", key)
	case digits == 40 && len(v) < 40:
		return "", at, p.errorf(at, "%q is abbreviated: it has %d digits, it must have all 40", key, len(v))
	}
	return "", at, p.errorf(at, "%q has %d digits, it must have %d", key, len(v), digits)
}

func (p *parser) unknown(key string, at int, where string, known []string) error {
	for _, k := range known {
		if foldCase(k) == foldCase(key) {
			return p.errorf(at, "unknown key %q%s; it is written %q", clip(key), where, k)
		}
	}
	return p.errorf(at, "unknown key %q%s", clip(key), where)
}

func (s *Source) names() []string {
	names := make([]string, 0, len(s.Files))
	for name := range s.Files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkVersion accepts what can be printed on one line.
func checkVersion(v string) error {
	if len(v) > 100 {
		return fault.New(fault.Integrity, "%q is longer than 100 bytes", clip(v))
	}
	for _, r := range v {
		if !unicode.IsPrint(r) {
			return fault.New(fault.Integrity, "%q holds a character that can't be printed", v)
		}
	}
	return nil
}
