package vendorfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"
	"github.com/stega/pgque-vendor/internal/fault"
)

const attributes = `# pgque-vendor checks these files byte by byte. Without the next line git would
# change their line endings where core.autocrlf is on.
* -text
`

// Staging is one run's exclusive right to write the vendored folder.
//
// The steps are: make ".pgque-vendor" in the folder and lock it (Begin); write
// all new files into it and bring them to the disk; rename them one by one,
// SOURCE.json last (Commit); remove ".pgque-vendor" (Close). As long as
// ".pgque-vendor" is there, Check calls the folder interrupted. So a run that
// dies at any step leaves the old files, the new files, or a folder that Check
// calls interrupted, and never a mixture that looks whole.
type Staging struct {
	dir     string
	command string
	disk    *disk
	held    *flock.Flock
	made    []string // directories that Begin made, outermost first
	found   bool     // a run before this one died half way
	done    bool     // Commit went well
	whole   bool     // and every file is what SOURCE.json says
	broken  bool     // Commit failed and could not put the old files back
	closed  bool
}

// CheckWritable reports what would make a later Begin or Commit fail, as far
// as it can be seen without writing: a folder that can't be written
// (fault.Usage), a file that is a mount point (fault.Usage), a symlink or
// another thing that is no regular file (fault.Policy). It is for the local
// checks before the first request.
func CheckWritable(dir string) error {
	if err := checkFolder(dir); err != nil {
		return err
	}
	if err := mayWrite(existingPart(dir)); err != nil {
		return fault.New(fault.Usage, "the folder %q can't be written: %w", existingPart(dir), err)
	}
	root, err := os.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fault.New(fault.Usage, "open the folder %q: %w", dir, unwrapPath(err))
	}
	defer root.Close()
	for _, name := range append(Required(), SourceName, attributesName) {
		if err := checkTarget(root, dir, name); err != nil {
			return err
		}
	}
	return nil
}

// Begin makes the folder where it is missing, and takes its lock. command is
// the whole command line to run again should this run die; Check shows it. A
// lock that another run holds is fault.Usage; the lock of a run that died
// counts for nothing. What Check said before Begin can be out of date: check
// again after it. The caller must Close.
func Begin(dir, command string) (*Staging, error) { return begin(dir, command, realSeams()) }

func begin(dir, command string, seams seams) (*Staging, error) {
	if err := checkFolder(dir); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		s := &Staging{dir: filepath.Clean(dir), command: command}
		err := s.open(seams)
		if err == nil {
			return s, nil
		}
		s.Close()
		// A run that gives up removes the folders it made, maybe from under
		// this one.
		if !errors.Is(err, fs.ErrNotExist) || try == 20 {
			return nil, s.writeError(err)
		}
	}
}

// open makes the folder, locks it and signs.
func (s *Staging) open(seams seams) error {
	s.disk = &disk{seams: seams}
	if err := s.makeFolder(); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	s.disk.root = root
	if err := s.lock(); err != nil {
		return err
	}
	return s.sign()
}

// sign leaves this run's name in the staging folder. The command of a run that
// died stays until this run begins to write, since it still is the one that
// repairs the folder. That file, and not the folder, tells that a run died:
// the last steps of a run that went well remove it first.
func (s *Staging) sign() error {
	o, err := json.Marshal(thisRun())
	if err != nil {
		return err
	}
	_, err = s.disk.root.Lstat(commandName)
	s.found = err == nil
	if !s.found {
		if err := s.replace(commandName, []byte(s.command+"\n")); err != nil {
			return err
		}
	}
	if err := s.replace(ignoreName, []byte("*\n")); err != nil {
		return err
	}
	return s.replace(ownerName, append(o, '\n'))
}

// replace writes a file of the staging folder so that the name always has a
// whole file, the old one or the new one.
func (s *Staging) replace(name string, data []byte) error {
	if err := s.disk.remove(name + ".new"); err != nil {
		return err
	}
	if err := s.disk.write(name+".new", data); err != nil {
		return err
	}
	return s.disk.rename(name+".new", name)
}

// Interrupted reports whether a run before this one died half way. Then Commit
// has something to repair even when every file is right.
func (s *Staging) Interrupted() bool { return s.found }

// Commit writes files, by name, and then SOURCE.json for source. A nil source
// leaves SOURCE.json alone: that is restore, and files that are not given stay
// as they are. A file whose bytes are there already is not written, so its time
// of change stays; a file of a new source that is not in files must be there
// already. Nothing is written unless it is what SOURCE.json says. It returns
// the names that were written, sorted.
//
// After an error the old files are back, or Check calls the folder interrupted
// and the error says so.
func (s *Staging) Commit(files map[string][]byte, source *Source) ([]string, error) {
	if s.done {
		return nil, errors.New("vendorfile: Commit was called twice")
	}
	whole, err := s.checkNew(files, source)
	if err != nil {
		return nil, err
	}
	changes, err := s.changes(files, source)
	if err != nil {
		return nil, err
	}
	if len(changes) > 0 {
		if err := s.stage(changes); err != nil {
			return nil, s.writeError(err)
		}
		if err := s.swap(changes); err != nil {
			return nil, s.writeError(err)
		}
	}
	s.done, s.whole = true, whole
	var written []string
	for _, c := range changes {
		written = append(written, c.name)
	}
	slices.Sort(written)
	return written, nil
}

// Close removes the staging folder and lets the lock go. Without a Commit that
// went well it leaves everything as Begin found it. What another run left half
// written stays marked as such until every file is right.
func (s *Staging) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if !s.done {
		defer s.removeMade()
	}
	if s.disk.root == nil {
		return nil
	}
	defer s.disk.root.Close()
	if s.held == nil {
		if info, err := s.disk.root.Lstat(stagingName); err == nil && info.IsDir() {
			_ = s.disk.root.Remove(stagingName) // only an empty one goes: not another run's
		}
		return nil
	}
	sweep := !s.broken && (s.whole || !s.found)
	var err error
	if sweep {
		err = s.sweep()
	}
	if err = errors.Join(err, s.unlock(sweep && err == nil)); err == nil && sweep {
		err = s.disk.syncDir(".")
	}
	switch {
	case err == nil:
		return nil
	case !s.done:
		return s.writeError(err)
	}
	return fault.New(fault.Usage, "the files are written, but %q could not be removed: %w", filepath.Join(s.dir, stagingName), unwrapPath(err)).
		Hint("%s", s.command)
}

// sweep empties the staging folder but for the lock. The command goes first of
// what signs it: without it nobody takes the folder for one that needs repair.
func (s *Staging) sweep() error {
	if err := s.clearStaging(); err != nil {
		return err
	}
	for _, name := range []string{commandName, ownerName, ignoreName} {
		if err := s.disk.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// clearStaging removes what was staged, by this run or by one that died.
func (s *Staging) clearStaging() error {
	d, err := s.disk.root.Open(stagingName)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return err
	}
	slices.Sort(names)
	keep := []string{lockName, commandName, ownerName, ignoreName}
	for _, name := range names {
		if name = stagingName + "/" + name; !slices.Contains(keep, name) {
			if err := s.disk.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeError names the folder in an error that only names a step.
func (s *Staging) writeError(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return err
	}
	return fault.New(fault.Usage, "write the folder %q: %w", s.dir, plainStep(err))
}

// plainStep keeps the name of the file, without the name of the system call.
func plainStep(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return fmt.Errorf("%q: %w", strings.TrimPrefix(p.Path, stagingName+"/"), p.Err)
	}
	return unwrapPath(err)
}
