package vendorfile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
)

// LocalEdits returns what an update to target would lose, or leave behind as
// nobody's: edited files, files of unknown origin, a SOURCE.json that can't be
// read. A file that is missing, or that equals the target already, is no edit,
// and neither is what an interrupted update left. target is the Files of the
// Source that the update would write.
func LocalEdits(r *Report, target map[string]File) []Finding {
	var edits []Finding
	checked := map[string]bool{}
	for _, f := range r.Files {
		checked[f.Name] = true
		t, ok := target[f.Name]
		if f.State == OK || f.State == Missing || ok && f.Size == t.Size && f.SHA256 == t.SHA256 {
			continue
		}
		edits = append(edits, r.findingsOf(f.Name)...)
	}
	for _, name := range slices.Sorted(maps.Keys(target)) {
		if !checked[name] {
			edits = append(edits, r.unknownFile(name, target[name])...)
		}
	}
	for _, f := range r.Findings {
		if f.Code == Extra && !alreadyIn(edits, f.File) || f.File == SourceName && f.Code != NoSource || f.File == "" && f.Code == string(NotRegular) {
			edits = append(edits, f)
		}
	}
	return edits
}

func (r *Report) findingsOf(name string) []Finding {
	var found []Finding
	for _, f := range r.Findings {
		if f.File == name {
			found = append(found, f)
		}
	}
	return found
}

func alreadyIn(findings []Finding, name string) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.File == name })
}

// unknownFile looks at a file that the update would write and that no
// SOURCE.json tells about.
func (r *Report) unknownFile(name string, target File) []Finding {
	root, err := os.OpenRoot(r.Dir)
	if err != nil {
		return nil // no folder, so nothing to lose
	}
	defer root.Close()
	size, sum, err := hashRegular(root, name)
	finding := Finding{Code: Extra, File: name, Message: fmt.Sprintf("%d bytes of unknown origin", size), Hint: "git diff -- " + shellWord(r.path(name))}
	var irregular *notRegularError
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && size == target.Size && sum == target.SHA256:
		return nil
	case errors.As(err, &irregular):
		finding.Code, finding.Message = string(NotRegular), irregular.Error()
	case err != nil:
		finding.Code, finding.Message = string(Unreadable), "can't be read: "+causeOf(err)
	}
	return []Finding{finding}
}
