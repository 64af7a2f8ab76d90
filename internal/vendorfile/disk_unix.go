//go:build unix

package vendorfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// passingRenameError: on Unix a rename that fails once fails again.
func passingRenameError(error) bool { return false }

// allowReplace: on Unix the mode of a file doesn't keep it from being replaced.
func allowReplace(*os.Root, string) {}

// cannotSyncDir: some network file systems can't sync a directory.
func cannotSyncDir(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP)
}

// mayWrite reports why files can't be made in a directory, without making one.
func mayWrite(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// isBusy reports whether a rename failed because a file is a mount point.
func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) }
