package vendorfile

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// seams are what a test of the staged write replaces.
type seams struct {
	// before is called before each step that changes the disk; its error is
	// the step's. A test makes every step fail with it, or kills the process.
	before func(step, name string) error
	// passing reports whether a rename failed for a reason that passes.
	passing func(error) bool
	sleep   func(time.Duration)
	// sync brings a file's bytes, or a directory's names, to the disk. A
	// killed process does not need it, a machine without power does.
	sync func(*os.File) error
}

func realSeams() seams {
	return seams{
		before:  func(string, string) error { return nil },
		passing: passingRenameError,
		sleep:   time.Sleep,
		sync:    (*os.File).Sync,
	}
}

// disk does the steps of the staged write, all of them inside one folder.
type disk struct {
	root *os.Root
	seams
}

// mkdir makes a directory; one that is there is fine.
func (d *disk) mkdir(name string) error {
	if err := d.before("mkdir", name); err != nil {
		return err
	}
	err := d.root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.root.Chmod(name, 0o755)
}

// write makes a new file with mode 0644, whatever the umask, and brings its
// bytes to the disk.
func (d *disk) write(name string, data []byte) (err error) {
	if err := d.before("create", name); err != nil {
		return err
	}
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := d.before("write", name); err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	// A file made by renaming keeps the mode it was staged with. With umask
	// 077 nobody else could read it, such as the user of a container (B024).
	if err := d.before("chmod", name); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := d.before("sync", name); err != nil {
		return err
	}
	return d.sync(f)
}

// keep makes a second name for a file, so that the file can be put back as it
// was, with its times. Where the file system has no links it is copied.
func (d *disk) keep(name, as string) error {
	if err := d.before("keep", name); err != nil {
		return err
	}
	if d.root.Link(name, as) == nil {
		return nil
	}
	data, err := d.root.ReadFile(name)
	if err != nil {
		return err
	}
	return d.write(as, data)
}

// rename puts a file in the place of another. On Windows a scanner that has
// the file open makes that fail for a moment, so it is tried for about two
// seconds there.
func (d *disk) rename(from, to string) error {
	if err := d.before("rename", to); err != nil {
		return err
	}
	pause := 10 * time.Millisecond
	for {
		err := d.renameOnce(from, to)
		if err == nil || !d.passing(err) || pause > time.Second {
			return err
		}
		d.sleep(pause)
		pause *= 2
	}
}

func (d *disk) renameOnce(from, to string) error {
	if err := d.before("rename once", to); err != nil {
		return err
	}
	allowReplace(d.root, to)
	return d.root.Rename(from, to)
}

func (d *disk) remove(name string) error {
	if err := d.before("remove", name); err != nil {
		return err
	}
	err := d.root.RemoveAll(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// syncDir brings a directory's names to the disk.
func (d *disk) syncDir(name string) error {
	if err := d.before("sync", name); err != nil {
		return err
	}
	dir, err := d.root.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := d.sync(dir); err != nil && !cannotSyncDir(err) {
		return err
	}
	return nil
}

// removeEmpty removes a directory, unless another run has begun to use it.
func (d *disk) removeEmpty(name string) error {
	if err := d.before("rmdir", name); err != nil {
		return err
	}
	err := d.root.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if _, lockErr := d.root.Lstat(lockName); lockErr == nil {
			return nil
		}
		return err
	}
	return nil
}
