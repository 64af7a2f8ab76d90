package vendorfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode"

	"github.com/gofrs/flock"
	"github.com/stega/pgque-vendor/internal/fault"
)

// The files of the staging folder beside the staged ones.
const (
	lockName    = stagingName + "/lock"       // locked while a run works; the system lets go when the run dies
	ownerName   = stagingName + "/owner"      // who that is; a file of its own, since a locked one can't be read on Windows
	commandName = stagingName + "/command"    // the command that repairs the folder when this run dies
	ignoreName  = stagingName + "/.gitignore" // keeps "git add" away from all of it
)

// owner says which run works in the folder, or died there.
type owner struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`

	Command string `json:"-"`
}

func (o owner) suffix() string {
	if o.PID == 0 {
		return ""
	}
	return fmt.Sprintf(" (pid %d on %s, since %s)", o.PID, o.Host, o.Since.Format(time.RFC3339))
}

func thisRun() owner {
	host, err := os.Hostname()
	if err != nil {
		host = "an unknown host"
	}
	return owner{PID: os.Getpid(), Host: host, Since: time.Now().UTC().Truncate(time.Second)}
}

// readOwner reads what a run left about itself; what can't be read is empty.
func readOwner(root *os.Root) owner {
	var o owner
	if data, err := readRegular(root, ownerName, 4096); err == nil {
		if json.Unmarshal(data, &o) != nil || o.PID <= 0 || !harmless(o.Host) {
			o = owner{}
		}
	}
	if data, err := readRegular(root, commandName, 4096); err == nil {
		// The file can come from anybody's repository: what is shown as a
		// command to run must be one of ours, and only one.
		command := strings.TrimSuffix(string(data), "\n")
		if strings.HasPrefix(command, "pgque-vendor ") && harmless(command) && (o.isHere() || !liftsProtection(command)) {
			o.Command = command
		}
	}
	return o
}

// isHere reports whether the run was one of this machine.
func (o owner) isHere() bool { return o.PID != 0 && o.Host == thisRun().Host }

// liftsProtection reports whether a command does more than what SOURCE.json and the
// defaults say. A shell drops quotes within a word, so they do not count.
func liftsProtection(command string) bool {
	command = strings.ReplaceAll(command, "'", "")
	for _, flag := range []string{"--force", "--accept-moved-tag", "--go-marker", "--repo", "--api-url", "--from"} {
		if strings.Contains(command, flag) {
			return true
		}
	}
	return false
}

func harmless(s string) bool {
	return len(s) <= 1000 && !strings.ContainsAny(s, "`$;&|<>()\\\"") &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// lock takes the folder's lock, or fails at once with who has it. The lock
// file goes away with the staging folder, so a run may lock a file that
// another has just removed: only the file that still has the name counts.
func (s *Staging) lock() error {
	path := filepath.Join(s.dir, filepath.FromSlash(lockName))
	for range 100 {
		if err := s.makeStaging(); err != nil {
			return err
		}
		if info, err := s.disk.root.Lstat(lockName); err == nil && !info.Mode().IsRegular() {
			return fault.New(fault.Policy, "%q is %s, not a regular file", path, kindOfFile(info.Mode())).
				Hint("rm -r %s", shellWord(filepath.ToSlash(filepath.Join(s.dir, stagingName))))
		}
		if err := s.disk.before("lock", lockName); err != nil {
			return err
		}
		l := flock.New(path, flock.SetPermissions(0o644))
		locked, err := l.TryLock()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // the other run has just removed the folder
		case err != nil:
			return fault.New(fault.Usage, "lock %q: %w", path, unwrapPath(err))
		case !locked:
			l.Close()
			return fault.New(fault.Usage, "another run holds the lock of %q%s", s.dir, s.holder().suffix()).
				Hint("wait until it has ended, then run the command again")
		}
		if err := s.disk.before("locked", lockName); err != nil {
			l.Close()
			return err
		}
		mine, errMine := l.Stat()
		named, errNamed := s.disk.root.Lstat(lockName)
		if errMine == nil && errNamed == nil && os.SameFile(mine, named) {
			s.held = l
			return nil
		}
		l.Close()
	}
	return fault.New(fault.Usage, "lock %q: other runs come and go too fast", path)
}

// holder reads who holds the lock. That run signs right after it has locked, so
// a missing signature is worth a second's wait.
func (s *Staging) holder() owner {
	o := readOwner(s.disk.root)
	for range 50 {
		if o.PID != 0 {
			break
		}
		s.disk.sleep(20 * time.Millisecond)
		o = readOwner(s.disk.root)
	}
	return o
}

// makeStaging makes the staging folder, or takes over one that was left.
func (s *Staging) makeStaging() error {
	info, err := s.disk.root.Lstat(stagingName)
	if err == nil && !info.IsDir() {
		return fault.New(fault.Policy, "%q is %s, not a folder", filepath.Join(s.dir, stagingName), kindOfFile(info.Mode())).
			Hint("rm %s", shellWord(filepath.ToSlash(filepath.Join(s.dir, stagingName))))
	}
	return s.disk.mkdir(stagingName)
}

// unlock lets the lock go and removes it with the staging folder, when there
// is nothing left to repair. Unix removes the file while it is still locked,
// so that nobody locks it in between; Windows removes no open file.
func (s *Staging) unlock(sweep bool) error {
	if !sweep {
		return s.held.Close()
	}
	if runtime.GOOS == "windows" {
		s.held.Close()
	}
	err := s.disk.remove(lockName)
	if err == nil {
		err = s.disk.removeEmpty(stagingName)
	}
	return errors.Join(err, s.held.Close())
}
