//go:build unix

package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// closedStdout reports that w is a standard output which was closed when we started.
// Go has then opened the null device there, for reading as well. A shell's
// "> /dev/null" is open for writing alone.
func closedStdout(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	var opened, null unix.Stat_t
	if unix.Fstat(int(f.Fd()), &opened) != nil || unix.Stat(os.DevNull, &null) != nil {
		return false
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	return err == nil && opened.Mode&unix.S_IFMT == unix.S_IFCHR && opened.Rdev == null.Rdev && flags&unix.O_ACCMODE == unix.O_RDWR
}
