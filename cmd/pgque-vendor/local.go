package main

import (
	"errors"
	"io/fs"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// localState is the vendored folder as an update or a restore finds it.
type localState struct {
	report *vendorfile.Report
	source *vendorfile.Source // nil when there is none, or none that can be read
	files  map[string][]byte  // the files that could be read, by name
}

// readLocal looks at the folder. A SOURCE.json that can't be read is no
// failure yet: update can replace it. One that a newer version wrote is.
func readLocal(dir string) (*localState, error) {
	report, err := vendorfile.Check(dir)
	if err != nil {
		return nil, err
	}
	if errors.Is(report.SourceErr, vendorfile.ErrNewerSchema) {
		return nil, report.SourceErr
	}
	l := &localState{report: report, source: report.Source, files: map[string][]byte{}}
	for _, name := range vendoredNames {
		data, err := vendorfile.ReadFile(dir, name)
		if err == nil {
			l.files[name] = data
		} else if !errors.Is(err, fs.ErrNotExist) && report.Source == nil {
			return nil, err // with a source, the report says what is wrong with the file
		}
	}
	return l, nil
}

// unusableSource reports whether there is a SOURCE.json that can't be used.
func (l *localState) unusableSource() bool {
	return l.source == nil && !errors.Is(l.report.SourceErr, fs.ErrNotExist)
}

// byBlob returns the files' bytes by their blob id: what need not be fetched.
func (l *localState) byBlob() map[gitobject.ID][]byte {
	have := map[gitobject.ID][]byte{}
	for _, data := range l.files {
		if id, err := gitobject.BlobID(data); err == nil {
			have[id] = data
		}
	}
	return have
}

// pins reports whether SOURCE.json says exactly this revision.
func (l *localState) pins(repository string, tag gitobject.Tag, sqlPath string) bool {
	return l.source != nil &&
		l.source.Repository == repository &&
		l.source.Tag == tag.Name &&
		l.source.Commit == string(tag.Commit) &&
		l.source.Files[vendorfile.SQLName].Path == sqlPath
}

// refuseEdits refuses to overwrite what somebody changed by hand. Command is
// what was refused; diff and forced are the commands that the hints name.
func (l *localState) refuseEdits(command, diff, forced string, target map[string]vendorfile.File) error {
	edits := vendorfile.LocalEdits(l.report, target)
	if len(edits) == 0 {
		return nil
	}
	err := fault.New(fault.Policy, "%q has %s that %s would lose or leave behind", l.report.Dir, count(len(edits), "local edit"), command)
	for _, f := range edits {
		name := f.File
		if name == "" {
			name = l.report.Dir
		}
		err.Text += "\n  " + oneLine(name) + ": " + f.Message
	}
	if l.source != nil { // without it there is nothing to compare with
		err.Hint("see them: %s", diff)
	}
	return err.Hint("to go on all the same: %s", forced)
}
