package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

const defaultDir = "vendor/pgque"

func registerDir(cmd *cobra.Command, dir *string) {
	*dir = defaultDir
	cmd.Flags().Var((*folderValue)(dir), "dir", "the vendored `FOLDER`, relative to the working directory")
}

// folderValue is a folder's path in its shortest form: the system and Go read
// "link/../x" as two different folders.
type folderValue string

func (f *folderValue) String() string { return string(*f) }
func (f *folderValue) Type() string   { return "string" }

func (f *folderValue) Set(path string) error {
	if path == "" {
		return errors.New("it is empty")
	}
	*f = folderValue(filepath.Clean(path))
	return nil
}

// readSourceIfAny reads the folder's SOURCE.json; nil when there is none.
func readSourceIfAny(dir string) (*vendorfile.Source, error) {
	src, err := vendorfile.ReadSource(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return src, err
}

func errNothingVendored(dir string, up upstreamFlags) error {
	return fault.New(fault.Usage, "nothing is vendored in %q: it has no SOURCE.json", dir).
		Hint("pgque-vendor update --latest%s%s", up.again(), dirFlag(dir)).
		Hint("if it is elsewhere, name the folder with --dir")
}

// dirFlag is what a hint's command needs after its arguments, so that it works
// as printed.
func dirFlag(dir string) string {
	if dir == defaultDir {
		return ""
	}
	return " --dir " + shellQuote(dir)
}

// patchDir is the folder as a patch's headers name it: relative, with slashes,
// so that git apply and patch -p1 find it from the working directory. A folder
// outside it keeps only its last part; no patch reaches it from here.
func patchDir(dir string) string {
	dir = filepath.Clean(dir)
	if filepath.IsAbs(dir) {
		if here, err := os.Getwd(); err == nil {
			if inside, err := filepath.Rel(here, dir); err == nil {
				dir = inside
			}
		}
	}
	if !filepath.IsLocal(dir) {
		return filepath.Base(dir)
	}
	return filepath.ToSlash(dir)
}

// checkOutput refuses a file to be written that would replace a vendored one,
// or that can't be written, before anything else is done.
func checkOutput(flag, path, dir string) error {
	if path == "" {
		return nil
	}
	info, statErr := os.Stat(path)
	for _, name := range append([]string{vendorfile.SourceName}, vendoredNames...) {
		vendored := filepath.Join(dir, name)
		same := filepath.Clean(path) == vendored
		if there, err := os.Stat(vendored); err == nil && statErr == nil {
			same = same || os.SameFile(info, there)
		}
		if same {
			return fault.New(fault.Usage, "%s is %q, which is a vendored file", flag, path)
		}
	}
	if folder, err := os.Stat(filepath.Dir(path)); err != nil || !folder.IsDir() {
		return fault.New(fault.Usage, "write %q: there is no folder %q", path, filepath.Dir(path))
	}
	if err := tryOutput(path); err != nil {
		return fault.New(fault.Usage, "write %q: %s", path, err)
	}
	return nil
}

// tryOutput opens the file as a write would, and leaves it as it was. What is no
// file, such as a pipe, is not touched: its reader would notice.
func tryOutput(path string) error {
	flags := os.O_WRONLY
	info, err := os.Stat(path)
	_, absent := os.Lstat(path)
	switch {
	case errors.Is(absent, fs.ErrNotExist):
		flags |= os.O_CREATE | os.O_EXCL
	case errors.Is(err, fs.ErrNotExist):
		return nil // a link to a file that is still to be made
	case err != nil:
		return cause(err)
	case info.IsDir():
		return errors.New("it is a directory")
	case !info.Mode().IsRegular():
		return nil
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err != nil {
		return cause(err)
	}
	f.Close()
	if flags&os.O_CREATE != 0 {
		return cause(os.Remove(path))
	}
	return nil
}

// cause is an error without the path that the text around it names already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// sqlPathOr is where the SQL file lies upstream: --sql-path, else where the
// vendored one came from, else where PgQue keeps it.
func sqlPathOr(flag string, src *vendorfile.Source) string {
	if flag != "" {
		return flag
	}
	if src != nil {
		return src.Files[vendorfile.SQLName].Path
	}
	return defaultSQLPath
}

// checkSQLPath refuses a --sql-path that can't be one, before anybody is asked.
func checkSQLPath(path string) error {
	switch path {
	case "":
		return nil
	case vendorfile.LicenseName, vendorfile.NoticeName:
		return fault.New(fault.Usage, "--sql-path is %q, which is vendored as that file", path)
	}
	if err := vendorfile.CheckPath(path); err != nil {
		return fault.New(fault.Usage, "--sql-path: %s", err)
	}
	return nil
}
