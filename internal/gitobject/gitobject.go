// Package gitobject knows git's object model as far as vendoring needs it:
// object ids, the hash of a blob, a tree and a commit, the proof that a path's
// blob belongs to a root tree, git's own rules for tag names, and the order of
// version tags. The sources (GitHub, a local repository) return its types; it
// does no input or output.
package gitobject

import (
	"fmt"

	"github.com/stega/pgque-vendor/internal/fault"
)

// ID is a SHA-1 object id as 40 lower-case hexadecimal digits.
type ID string

// ParseID checks that s is a whole object id: 40 lower-case hexadecimal
// digits. Abbreviations are refused, since they can come to mean another
// object later. The failure is fault.Integrity: ids come from a source or a
// file, never from a person's fingers.
func ParseID(s string) (ID, error) {
	if len(s) != 40 {
		return "", fault.New(fault.Integrity, "%q is no object id: it has %d characters, not 40", clip(s), len(s))
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fault.New(fault.Integrity, "%q is no object id: it holds more than lower-case hexadecimal digits", s)
		}
	}
	return ID(s), nil
}

// Short returns the first 12 digits, as messages show an id.
func (id ID) Short() string { return string(id[:min(12, len(id))]) }

// Git's file modes, as a tree entry has them. A tree object itself writes
// ModeTree as "40000"; here it is always six digits, as git prints it.
const (
	ModeFile       = "100644"
	ModeExecutable = "100755"
	ModeSymlink    = "120000"
	ModeTree       = "040000"
	ModeSubmodule  = "160000"
)

// Tag is one of a repository's tags.
type Tag struct {
	Name   string
	Object ID // what the ref points at: the commit, or an annotated tag object
	Commit ID // the commit after peeling; equal to Object for a lightweight tag
}

// Annotated reports whether the tag has a tag object of its own.
func (t Tag) Annotated() bool { return t.Object != t.Commit }

// Entry is a path of a commit's tree.
type Entry struct {
	Path string // from the root of the tree, with "/"
	Mode string // one of the Mode constants
	ID   ID     // the blob's id, or the commit's for a submodule
	Size int64  // bytes; -1 where the source doesn't say
}

// TooLarge is the failure of a source that was asked for a blob of at most Limit
// bytes. The source knows only the blob's id; who asked knows the file.
type TooLarge struct{ Size, Limit int64 }

func (e TooLarge) Error() string {
	return fmt.Sprintf("it has %d bytes, more than %d", e.Size, e.Limit)
}

// clip keeps what a source sent from filling the screen.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
