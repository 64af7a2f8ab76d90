package vendorfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// State says what a vendored file is, compared with SOURCE.json.
type State string

// The states of a file. All but OK are findings, with the state as their code.
const (
	OK          State = "ok"
	Missing     State = "missing"
	Modified    State = "modified"
	LineEndings State = "line-endings" // the right bytes but for CRLF or LF
	BOM         State = "bom"          // starts with a UTF-8 byte order mark
	UTF16       State = "utf-16"       // re-encoded, as ">" in Windows PowerShell does
	Truncated   State = "truncated"    // shorter, and cut off
	Empty       State = "empty"
	NotRegular  State = "not-regular" // a symlink, a directory, a device
	Unreadable  State = "unreadable"
)

// The codes of findings about the folder.
const (
	Extra       = "extra"       // something that nobody vendored
	Interrupted = "interrupted" // an update or restore died half way, or runs right now
	NoSource    = "no-source"
	BadSource   = "bad-source"
)

// Finding is one thing that is not as it must be.
type Finding struct {
	Code    string `json:"code"` // a State, or one of the folder's codes
	File    string `json:"file"` // the name in the folder; "" for the folder itself
	Message string `json:"message"`
	Hint    string `json:"hint"` // the command that repairs it
}

// FileResult is what Check found about a file that SOURCE.json lists.
type FileResult struct {
	Name           string `json:"name"`
	State          State  `json:"state"`
	Size           int64  `json:"size"`   // bytes read; 0 when it could not be read
	SHA256         string `json:"sha256"` // "" when it could not be read
	ExpectedSize   int64  `json:"expected_size"`
	ExpectedSHA256 string `json:"expected_sha256"`
}

// Report is the state of a vendored folder.
type Report struct {
	Dir         string  // as given to Check
	Source      *Source // nil when SOURCE.json is missing or bad
	SourceErr   error   // why Source is nil; fs.ErrNotExist or ErrNewerSchema can be matched
	Files       []FileResult
	Findings    []Finding
	Notes       []string // worth a line, no finding
	Bytes       int64    // of the files that are OK
	Interrupted bool     // an update or restore died half way, or runs right now

	NoAttributes bool // .gitattributes is not there; Commit writes it
}

// Clean reports whether every file was checked and nothing was found. No file
// checked is not clean.
func (r *Report) Clean() bool { return len(r.Findings) == 0 && len(r.Files) >= len(Required()) }

// Check compares the folder with its SOURCE.json. It reads every byte of every
// file, each time, and writes nothing, so it works in a read-only tree. It
// follows no symlink inside the folder and reads nothing outside of it. What
// is wrong with the folder is in the Report; the error is for a folder that
// could not be looked at.
func Check(dir string) (*Report, error) {
	r := &Report{Dir: dir}
	defer r.sort()

	info, err := os.Lstat(filepath.Clean(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.SourceErr = err
		r.findMissingFolder()
		return r, nil
	case err != nil:
		return nil, fault.New(fault.Usage, "look at %q: %s", dir, causeOf(err))
	case !info.IsDir():
		r.SourceErr = fault.New(fault.Integrity, "%q is %s, not a folder", dir, kindOfFile(info.Mode()))
		r.find(string(NotRegular), "", fmt.Sprintf("it is %s, not a folder", kindOfFile(info.Mode())),
			"rm "+shellWord(filepath.ToSlash(filepath.Clean(dir)))+"; "+r.command("update --latest"))
		return r, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.New(fault.Usage, "open the folder %q: %s", dir, causeOf(err))
	}
	defer root.Close()
	entries, err := readDir(root)
	if err != nil {
		return nil, fault.New(fault.Usage, "list the folder %q: %s", dir, causeOf(err))
	}

	r.checkStaging(root, entries)
	r.checkSource(root, entries)
	if r.Source != nil {
		for _, name := range r.Source.names() {
			r.checkFile(root, entries, name)
		}
		r.noteVersion()
	}
	r.checkExtras(entries)
	r.noteAttributes(root, entries)
	return r, nil
}

// readDir lists the folder by name. The listing, not a look-up, says whether a
// file is there: on a system that ignores case a look-up also finds PGQUE.SQL.
func readDir(root *os.Root) (map[string]fs.DirEntry, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	list, err := d.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	entries := make(map[string]fs.DirEntry, len(list))
	for _, e := range list {
		entries[e.Name()] = e
	}
	return entries, nil
}

func (r *Report) checkSource(root *os.Root, entries map[string]fs.DirEntry) {
	restore := r.checkout(r.path(SourceName), "update --latest --force")
	if _, ok := entries[SourceName]; !ok {
		r.SourceErr = &fs.PathError{Op: "open", Path: r.path(SourceName), Err: fs.ErrNotExist}
		r.find(NoSource, SourceName, "there is no SOURCE.json, so nothing says what the files must be", restore)
		return
	}
	data, err := readRegular(root, SourceName, sourceLimit)
	var irregular *notRegularError
	switch {
	case errors.As(err, &irregular):
		r.SourceErr = fault.New(fault.Integrity, "%s is %s, not a regular file", SourceName, kindOfFile(irregular.mode))
		r.findIrregular(SourceName, irregular.mode, restore)
		return
	case err != nil:
		r.SourceErr = fault.New(fault.Usage, "read %q: %s", r.path(SourceName), causeOf(err))
		r.find(string(Unreadable), SourceName, "can't be read: "+causeOf(err), "chmod u+r "+shellWord(r.path(SourceName)))
		return
	}
	r.Source, r.SourceErr = parseIn(r.Dir, data)
	if r.SourceErr == nil {
		return
	}
	r.Source = nil
	var f *fault.Error
	hint := restore
	if errors.As(r.SourceErr, &f) && len(f.Hints) > 0 {
		hint = f.Hints[0]
	}
	r.find(BadSource, SourceName, strings.TrimPrefix(r.SourceErr.Error(), SourceName+":"), hint)
}

// checkExtras finds what nobody vendored. Where SOURCE.json can't be read, the
// names that are always required are not held against it.
func (r *Report) checkExtras(entries map[string]fs.DirEntry) {
	known := map[string]string{foldCase(SourceName): SourceName, attributesName: attributesName, stagingName: stagingName}
	names := Required()
	if r.Source != nil {
		names = r.Source.names()
	}
	for _, name := range names {
		known[foldCase(name)] = name
	}
	for name, e := range entries {
		likeOurs, alike := known[foldCase(name)]
		switch {
		case likeOurs == name:
			continue
		case alike:
			r.findExtra(name, e, fmt.Sprintf("nobody vendored it; its name differs from %q only in case", likeOurs))
		case e.Type() == 0:
			r.findExtra(name, e, "nobody vendored this file")
		default:
			r.findExtra(name, e, "nobody vendored it; it is "+kindOfFile(e.Type()))
		}
	}
}

func (r *Report) findExtra(name string, e fs.DirEntry, message string) {
	remove := "rm "
	if e.IsDir() {
		remove = "rm -r "
	}
	r.find(Extra, name, message, remove+shellWord(r.path(name)))
}

// checkStaging finds the folder that an update or a restore works in.
func (r *Report) checkStaging(root *os.Root, entries map[string]fs.DirEntry) {
	e, ok := entries[stagingName]
	if !ok {
		return
	}
	r.Interrupted = true
	if !e.IsDir() {
		r.find(Interrupted, stagingName, "the staging folder of an update is "+kindOfFile(e.Type()), "rm "+shellWord(r.path(stagingName)))
		return
	}
	who := readOwner(root)
	hint := who.Command
	if hint == "" {
		hint = r.command("restore --force")
	}
	r.find(Interrupted, "", "an update or restore has not finished: it died half way, or runs right now"+who.suffix(), hint)
}

func (r *Report) find(code, file, message, hint string) {
	r.Findings = append(r.Findings, Finding{Code: code, File: file, Message: message, Hint: hint})
}

func (r *Report) findIrregular(name string, mode fs.FileMode, then string) {
	remove := "rm "
	if mode.IsDir() {
		remove = "rm -r "
	}
	r.find(string(NotRegular), name, "it is "+kindOfFile(mode)+", not a regular file", remove+shellWord(r.path(name))+"; "+then)
}

// sort puts findings in the order of their files, the folder's own first.
func (r *Report) sort() {
	slices.SortFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Code, b.Code))
	})
}

// path is a file of the folder as a hint's command names it.
func (r *Report) path(name string) string {
	return filepath.ToSlash(filepath.Join(r.Dir, name))
}

// command is a pgque-vendor command for this folder.
// checkout takes a path back from git, where the folder is in a work tree, else it is
// the command that makes it anew.
func (r *Report) checkout(path, anew string) string {
	abs, err := filepath.Abs(r.Dir)
	if err != nil || repositoryRoot(abs) == "" {
		return r.command(anew)
	}
	return "git checkout -- " + shellWord(path)
}

func (r *Report) command(arguments string) string { return commandFor(r.Dir, arguments) }

func commandFor(dir, arguments string) string {
	command := "pgque-vendor " + arguments
	if dir = filepath.ToSlash(filepath.Clean(dir)); dir != "vendor/pgque" {
		command += " --dir " + shellWord(dir)
	}
	return command
}

// noteVersion tells when the SQL calls itself something else than its tag, as
// three of upstream's five "v" tags do.
func (r *Report) noteVersion() {
	version, ok := strings.CutPrefix(r.Source.Tag, "v")
	if !ok || r.Source.SQLVersion == "" || version == r.Source.SQLVersion || version[0] < '0' || version[0] > '9' {
		return
	}
	r.Notes = append(r.Notes, fmt.Sprintf("the SQL of %s reports version %s; that is how upstream made it", r.Source.Tag, r.Source.SQLVersion))
}

// noteAttributes tells when nothing keeps git from changing line endings.
func (r *Report) noteAttributes(root *os.Root, entries map[string]fs.DirEntry) {
	if r.Source == nil {
		return
	}
	if _, ok := entries[attributesName]; !ok {
		r.Notes = append(r.Notes, fmt.Sprintf("%s is missing: with core.autocrlf git changes the files' line endings; to write it: %s", r.path(attributesName), r.command("restore")))
		r.NoAttributes = true
		return
	}
	data, err := readRegular(root, attributesName, sourceLimit)
	var irregular *notRegularError
	if errors.As(err, &irregular) {
		r.findIrregular(attributesName, irregular.mode, r.command("restore"))
		return
	}
	if err != nil || !turnsTextOff(string(data)) {
		r.Notes = append(r.Notes, fmt.Sprintf("%s has no line \"* -text\": with core.autocrlf git changes the files' line endings", r.path(attributesName)))
	}
}

func turnsTextOff(attributes string) bool {
	for line := range strings.Lines(attributes) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "*" && (slices.Contains(f[1:], "-text") || slices.Contains(f[1:], "binary")) {
			return true
		}
	}
	return false
}
