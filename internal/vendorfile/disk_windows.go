package vendorfile

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// passingRenameError recognises what a virus scanner or an indexer causes that
// has the file open for a moment (golang/go#36568).
func passingRenameError(err error) bool {
	return errors.Is(err, windows.ERROR_ACCESS_DENIED) ||
		errors.Is(err, windows.ERROR_SHARING_VIOLATION) ||
		errors.Is(err, windows.ERROR_LOCK_VIOLATION)
}

// allowReplace takes the read-only attribute off a file that is about to be
// replaced: Windows refuses otherwise, where Unix doesn't. If it fails, so
// does the rename, and that error is the one to show.
func allowReplace(root *os.Root, name string) {
	if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() && info.Mode()&0o200 == 0 {
		root.Chmod(name, 0o644)
	}
}

// cannotSyncDir: Windows has no such thing; its file systems keep names in a
// journal.
func cannotSyncDir(error) bool { return true }

// mayWrite: Windows tells only when it is tried.
func mayWrite(string) error { return nil }

func isBusy(error) bool { return false }
