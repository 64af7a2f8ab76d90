package gitobject

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// TreeEntry is one line of a tree object: a name in one directory.
type TreeEntry struct {
	Mode string // six octal digits, one of the Mode constants as a rule
	Name string // one path element
	ID   ID
}

// TreeID returns the id of the tree object that holds these entries, which may
// come in any order. It refuses entries that git would refuse to write: a name
// twice, a name that is no path element, a malformed mode or id
// (fault.Integrity).
func TreeID(entries []TreeEntry) (ID, error) {
	raw, err := encodeTree(entries)
	if err != nil {
		return "", err
	}
	return ObjectID(TypeTree, raw)
}

// ParseTree returns the entries of a tree object from its raw content, in
// their order. It is as strict as TreeID, and refuses entries out of git's
// order too (git finds a name in such a tree or not, depending on how it
// looks) and modes with needless zeros: TreeID of the result is always the id
// of raw.
func ParseTree(raw []byte) ([]TreeEntry, error) {
	var entries []TreeEntry
	for len(raw) > 0 {
		mode, rest, ok := bytes.Cut(raw, []byte(" "))
		if !ok {
			return nil, fault.New(fault.Integrity, "a tree object ends within a mode")
		}
		name, rest, ok := bytes.Cut(rest, []byte{0})
		if !ok || len(rest) < 20 {
			return nil, fault.New(fault.Integrity, "a tree object ends within the entry %q", clip(string(name)))
		}
		e := TreeEntry{
			Mode: sixDigits(string(mode)),
			Name: string(name),
			ID:   ID(hex.EncodeToString(rest[:20])),
		}
		if err := e.check(); err != nil {
			return nil, err
		}
		if n := len(entries); n > 0 && compareEntries(entries[n-1], e) >= 0 {
			return nil, fault.New(fault.Integrity, "a tree object has the entry %q out of order", clip(e.Name))
		}
		entries = append(entries, e)
		raw = rest[20:]
	}
	if err := noNameTwice(entries); err != nil {
		return nil, err
	}
	return entries, nil
}

// sixDigits is the mode as git prints it. In a tree object only a directory's
// has five digits.
func sixDigits(mode string) string {
	switch {
	case mode == "40000":
		return ModeTree
	case len(mode) == 6 && mode[0] == '1':
		return mode
	}
	return "0" + mode // a form that check refuses
}

func encodeTree(entries []TreeEntry) ([]byte, error) {
	entries = slices.Clone(entries)
	for _, e := range entries {
		if err := e.check(); err != nil {
			return nil, err
		}
	}
	if err := noNameTwice(entries); err != nil {
		return nil, err
	}
	slices.SortFunc(entries, compareEntries)
	var raw []byte
	for _, e := range entries {
		id, err := hex.DecodeString(string(e.ID))
		if err != nil {
			return nil, fault.New(fault.Integrity, "the tree entry %q has a bad id: %s", clip(e.Name), err)
		}
		raw = append(raw, strings.TrimLeft(e.Mode, "0")...)
		raw = append(raw, ' ')
		raw = append(raw, e.Name...)
		raw = append(raw, 0)
		raw = append(raw, id...)
	}
	return raw, nil
}

func (e TreeEntry) check() error {
	if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
		return fault.New(fault.Integrity, "a tree holds the entry %q, which is no file name", clip(e.Name))
	}
	if e.Mode != ModeTree && (len(e.Mode) != 6 || e.Mode[0] != '1' || strings.Trim(e.Mode, "01234567") != "") {
		return fault.New(fault.Integrity, "the tree entry %q has the mode %q, which git does not write", clip(e.Name), clip(e.Mode))
	}
	if _, err := ParseID(string(e.ID)); err != nil {
		return fault.New(fault.Integrity, "the tree entry %q: %s", clip(e.Name), err)
	}
	return nil
}

// noNameTwice is a check of its own, since a file "a" and a directory "a" are
// no neighbours in git's order ("a.b" stands between them).
func noNameTwice(entries []TreeEntry) error {
	seen := make(map[string]bool, len(entries))
	for _, e := range entries {
		if seen[e.Name] {
			return fault.New(fault.Integrity, "a tree holds the entry %q twice", clip(e.Name))
		}
		seen[e.Name] = true
	}
	return nil
}

// compareEntries is git's order: by bytes, a directory's name as if it ended
// with "/".
func compareEntries(a, b TreeEntry) int {
	return strings.Compare(a.sortKey(), b.sortKey())
}

func (e TreeEntry) sortKey() string {
	if e.Mode == ModeTree {
		return e.Name + "/"
	}
	return e.Name
}

// RecomputeTree returns the id of the root tree that a recursive listing
// describes: every path of the tree, each directory (ModeTree) with the id the
// source gives it. All trees are hashed from the leaves up, and one whose id
// is not the listed one is named (fault.Integrity), as is a path whose
// directory the listing lacks. When the result is the tree that the commit
// names, each listed blob id is proven to belong to the commit.
func RecomputeTree(entries []Entry) (root ID, err error) {
	const rootPath = ""
	children := map[string][]TreeEntry{rootPath: nil}
	for _, e := range entries {
		if e.Mode == ModeTree {
			children[e.Path] = nil
		}
	}
	for _, e := range entries {
		parent, name := splitPath(e.Path)
		if _, ok := children[parent]; !ok || strings.HasPrefix(e.Path, "/") {
			return "", fault.New(fault.Integrity, "the listing has %q but not its directory", clip(e.Path))
		}
		children[parent] = append(children[parent], TreeEntry{Mode: e.Mode, Name: name, ID: e.ID})
	}
	for _, e := range entries {
		if e.Mode != ModeTree {
			continue
		}
		id, err := TreeID(children[e.Path])
		if err != nil {
			return "", fault.New(fault.Integrity, "in the directory %q: %s", clip(e.Path), err)
		}
		if id != e.ID {
			return "", fault.New(fault.Integrity, "the directory %q should be tree %s, but its listing hashes to %s", clip(e.Path), e.ID, id)
		}
	}
	return TreeID(children[rootPath])
}

func splitPath(path string) (parent, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}
