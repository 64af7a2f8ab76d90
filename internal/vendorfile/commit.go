package vendorfile

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"reflect"
	"slices"

	"github.com/stega/pgque-vendor/internal/fault"
)

// change is a file to be written.
type change struct {
	name string
	data []byte
	had  bool // there is an old file
}

func (c change) staged() string { return stagingName + "/new." + c.name }
func (c change) kept() string   { return stagingName + "/old." + c.name }

// checkNew makes sure that what is to be written is what SOURCE.json says, and
// reports whether the folder will then be whole.
func (s *Staging) checkNew(files map[string][]byte, source *Source) (whole bool, err error) {
	update := source != nil
	pinned, err := ReadSource(s.dir)
	switch {
	case errors.Is(err, ErrNewerSchema):
		return false, err // never overwritten, whatever was forced
	case update:
		if source, err = Parse(source.Format()); err != nil {
			return false, fault.New(fault.Integrity, "the new SOURCE.json would not be valid: %s", err)
		}
	case err != nil:
		return false, err
	default:
		source = pinned
	}
	for name := range files {
		if _, ok := source.Files[name]; !ok {
			return false, fault.New(fault.Integrity, "SOURCE.json lists no file %q", name)
		}
	}
	whole = true
	for _, name := range source.names() {
		want := source.Files[name]
		data, given := files[name]
		size, sum := int64(len(data)), hashOf(data)
		if !given {
			size, sum, _ = hashRegular(s.disk.root, name) // unreadable: no size and no hash fit
		}
		if size == want.Size && sum == want.SHA256 {
			continue
		}
		if given || update {
			return false, fault.New(fault.Integrity, "%q is not what SOURCE.json says: sha256 %s (%d bytes), it must be %s (%d bytes)", name, sum, size, want.SHA256, want.Size)
		}
		whole = false
	}
	return whole, nil
}

// changes lists what has to be written: files sorted by name, SOURCE.json
// last. Every target is looked at before the first byte is staged.
func (s *Staging) changes(files map[string][]byte, source *Source) ([]change, error) {
	var changes []change
	add := func(name string, data []byte, same func(old []byte) bool) error {
		if err := checkTarget(s.disk.root, s.dir, name); err != nil {
			return err
		}
		old, err := readRegular(s.disk.root, name, SizeLimit(name))
		if err == nil && same(old) {
			return nil
		}
		changes = append(changes, change{name, data, !errors.Is(err, fs.ErrNotExist)})
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := add(name, files[name], func(old []byte) bool { return bytes.Equal(old, files[name]) }); err != nil {
			return nil, err
		}
	}
	anyOld := func([]byte) bool { return true } // a user's own lines stay
	if err := add(attributesName, []byte(attributes), anyOld); err != nil {
		return nil, err
	}
	if source == nil {
		return changes, nil
	}
	err := add(SourceName, source.Format(), func(old []byte) bool {
		was, err := Parse(old)
		return err == nil && reflect.DeepEqual(was, normalized(source)) // whatever its indentation
	})
	return changes, err
}

// normalized is a Source as Parse returns it.
func normalized(source *Source) *Source {
	if s, err := Parse(source.Format()); err == nil {
		return s
	}
	return source
}

// stage writes the new files into the staging folder, keeps the old ones
// there, and brings all of it to the disk.
func (s *Staging) stage(changes []change) error {
	if err := s.clearStaging(); err != nil {
		return err
	}
	if err := s.replace(commandName, []byte(s.command+"\n")); err != nil {
		return err
	}
	for _, c := range changes {
		if err := s.disk.write(c.staged(), c.data); err != nil {
			return err
		}
		if c.had {
			if err := s.disk.keep(c.name, c.kept()); err != nil {
				return err
			}
		}
	}
	if err := s.disk.syncDir(stagingName); err != nil {
		return err
	}
	return s.disk.syncDir(".")
}

// swap renames the new files into place, and puts the old ones back when one
// of the renames fails.
func (s *Staging) swap(changes []change) error {
	for i, c := range changes {
		if err := s.disk.rename(c.staged(), c.name); err != nil {
			err = s.renameError(c.name, err)
			if back := s.putBack(changes[:i]); back != nil {
				s.broken = true
				err = fault.New(fault.Usage, "%w; the old files could not be put back (%s), so the folder is half written", err, causeOf(back)).
					Hint("%s", s.command)
			}
			return err
		}
	}
	if err := s.disk.syncDir("."); err != nil {
		s.broken = true
		return err
	}
	return nil
}

func (s *Staging) putBack(renamed []change) error {
	for _, c := range slices.Backward(renamed) {
		var err error
		if c.had {
			err = s.disk.rename(c.kept(), c.name)
		} else {
			err = s.disk.remove(c.name)
		}
		if err != nil {
			return err
		}
	}
	return s.disk.syncDir(".")
}
