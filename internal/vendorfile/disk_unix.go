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

func syncDir(root *os.Root, name string) error {
	d, err := root.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil // some network file systems can't sync a directory
	}
	return err
}

// mayWrite reports why files can't be made in a directory, without making one.
func mayWrite(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK|unix.X_OK, unix.AT_EACCESS)
}

// isBusy reports whether a rename failed because a file is a mount point.
func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) }
