package vendorfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/stega/pgque-vendor/internal/fault"
)

// checkFolder refuses a folder that is no directory of its own: writing
// through a symlink would change files that somebody else shares.
func checkFolder(dir string) error {
	dir = filepath.Clean(dir)
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fault.New(fault.Usage, "look at %q: %w", dir, unwrapPath(err))
	case info.Mode()&fs.ModeSymlink != 0:
		return fault.New(fault.Policy, "%q is a symlink; nothing is written through it", dir).
			Hint("name the folder itself with --dir, or remove the link: rm %s", shellWord(filepath.ToSlash(dir)))
	case !info.IsDir():
		return fault.New(fault.Policy, "%q is %s, not a folder", dir, kindOfFile(info.Mode()))
	}
	return nil
}

// checkTarget refuses to replace what is no regular file.
func checkTarget(root *os.Root, dir, name string) error {
	path := filepath.Join(dir, name)
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fault.New(fault.Usage, "look at %q: %w", path, unwrapPath(err))
	case !info.Mode().IsRegular():
		remove := "rm "
		if info.IsDir() {
			remove = "rm -r "
		}
		return fault.New(fault.Policy, "%q is %s, not a regular file; it is not replaced", path, kindOfFile(info.Mode())).
			Hint("%s", remove+shellWord(filepath.ToSlash(path)))
	case isMountPoint(dir, name):
		return errMountPoint(path)
	}
	return nil
}

func errMountPoint(path string) error {
	return fault.New(fault.Usage, "%q is a mount point and can't be replaced; mount the directory instead of the file", path)
}

// renameError explains a rename that failed.
func (s *Staging) renameError(name string, err error) error {
	path := filepath.Join(s.dir, name)
	if isBusy(err) {
		return errMountPoint(path)
	}
	return fault.New(fault.Usage, "replace %q: %w", path, unwrapPath(err))
}

// existingPart is the folder, or the nearest directory above it that is there.
func existingPart(dir string) string {
	dir = filepath.Clean(dir)
	for {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return dir
		}
		dir = parent
	}
}

// makeFolder makes the folder and what is missing above it, with mode 0755.
func (s *Staging) makeFolder() error {
	var missing []string
	for dir := s.dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			break
		}
		missing = append(missing, dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := s.disk.before("mkdir", missing[i]); err != nil {
			return err
		}
		err := os.Mkdir(missing[i], 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue // another run was faster
		}
		if err != nil {
			return err
		}
		s.made = append(s.made, missing[i])
		if err := os.Chmod(missing[i], 0o755); err != nil {
			return err
		}
	}
	return nil
}

// removeMade removes the directories that Begin made, as far as they are empty.
func (s *Staging) removeMade() {
	for i := len(s.made) - 1; i >= 0; i-- {
		if s.disk.before("rmdir", s.made[i]) != nil || os.Remove(s.made[i]) != nil {
			return
		}
	}
}
