// Package linediff writes the difference between two files as a unified patch
// that "git apply" and "patch -p1" turn into the second file byte for byte.
//
// The way through it: Unified (this file) decides whether there is something
// to compare by lines; compare (compare.go) finds the changed lines, and lets
// go-diff do so for each part that cannot be cut further (cut.go); writePatch
// (patch.go) prints them.
//
// Only LF ends a line. CR, form feed, U+2028 and bytes that are not UTF-8 are
// bytes of a line like any other.
package linediff

import (
	"bytes"
	"fmt"
	"io"
)

// A file that is larger than one of these is not compared by lines.
const (
	MaxSize  = 16 << 20 // bytes: the most that a vendored SQL file may have
	MaxLines = 2 << 20  // lines: they take memory, about 100 bytes each
)

// DefaultContext is the number of unchanged lines around a change that diff
// programs show when nobody asks for another number.
const DefaultContext = 3

// File is one side of a comparison.
type File struct {
	// Name is the slash-separated path as it stands in the patch after "a/"
	// or "b/". It may hold any byte but NUL; it is quoted as git does.
	Name string
	Data []byte
	// Missing says that there is no such file on this side. The patch then
	// names /dev/null, and Data is not looked at.
	Missing bool
}

// Options say how a patch is written.
type Options struct {
	// Context is the number of unchanged lines around each change. Zero is
	// zero; see DefaultContext.
	Context int
	// Color adds git's colours. Such a text is for a terminal and no patch.
	Color bool
	// Sanitize shows control characters, bidirectional controls and bytes
	// that are not UTF-8 as \x1b or \u202e, so that a file cannot steer the
	// terminal it is shown on. Such a text is no patch either.
	Sanitize bool
}

// Stat says how two files differ. Lines are counted as changed lines of the
// patch, so a line whose text changed counts once on either side.
type Stat struct {
	Added   int
	Removed int
	// Identical is true when both sides have the same bytes, or both are
	// missing. Two empty files are identical; an empty and a missing one
	// are not, though no line differs.
	Identical bool
	// Binary is true when a side has a NUL byte or is larger than MaxSize or
	// MaxLines. The patch then is one line that says so; nothing was counted.
	Binary bool
	// Note is a sentence for stderr about what the patch cannot say or why
	// it is longer than it could be, or "".
	Note string
}

// Unified writes the patch from a to b to w, and returns what it says. Nothing
// is written when the two are identical. There is no "diff --git" line: with
// one, "git apply" below a repository's root silently does nothing. The
// patches of several files may be written one after another.
//
// The same input gives the same bytes on every machine: the search is bounded
// by the work it does, never by time.
//
// A unified patch has no form for an empty file that appears or disappears,
// nor for binary content. Each of those gives one line of text that patch
// programs skip, and a Note. The only error is that of w.
func Unified(w io.Writer, a, b File, o Options) (Stat, error) {
	d, s := compareFiles(a, b)
	return s, writePatch(w, a, b, d, s, o)
}

// Count returns what Unified would, without writing the patch.
func Count(a, b File) Stat {
	_, s := compareFiles(a, b)
	return s
}

// compareFiles returns the changed lines, or nil where there are none to show.
func compareFiles(a, b File) (*comparison, Stat) {
	if a.Missing {
		a.Data = nil
	}
	if b.Missing {
		b.Data = nil
	}
	switch {
	case a.Missing == b.Missing && bytes.Equal(a.Data, b.Data):
		return nil, Stat{Identical: true}
	case len(a.Data) == 0 && len(b.Data) == 0 && a.Missing:
		return nil, Stat{Note: fmt.Sprintf("%q is new and empty; a patch cannot create an empty file", b.Name)}
	case len(a.Data) == 0 && len(b.Data) == 0:
		return nil, Stat{Note: fmt.Sprintf("%q was empty and is gone; a patch cannot remove an empty file", a.Name)}
	}
	for _, f := range []File{a, b} {
		if why := notText(f.Data); why != "" {
			return nil, Stat{Binary: true, Note: fmt.Sprintf("%q %s; it is not compared by lines", f.Name, why)}
		}
	}
	d := compare(a.Data, b.Data)
	s := Stat{}
	for _, e := range d.edits {
		s.Removed += e.a1 - e.a0
		s.Added += e.b1 - e.b0
	}
	if d.coarse {
		s.Note = fmt.Sprintf("%q changed too much to look for the shortest patch; this one is right, but may be longer than it need be", b.Name)
	}
	return d, s
}

// notText says why the data cannot be compared by lines, or "".
func notText(data []byte) string {
	if len(data) > MaxSize {
		return fmt.Sprintf("has %d bytes, more than %d", len(data), MaxSize)
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return "has NUL bytes"
	}
	if n := bytes.Count(data, []byte{'\n'}); n > MaxLines {
		return fmt.Sprintf("has %d lines, more than %d", n, MaxLines)
	}
	return ""
}
