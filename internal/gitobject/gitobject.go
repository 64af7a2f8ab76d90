// Package gitobject knows git's object model as far as vendoring needs it:
// object ids, the hash of a blob, a tree and a commit, the proof that a path's
// blob belongs to a root tree, and git's own rules for tag names. The sources
// (GitHub, a local repository) return its types; it does no input or output.
package gitobject

// ID is a SHA-1 object id as 40 lower-case hexadecimal digits.
type ID string

// Git's file modes, as a tree entry has them.
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
