package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

const defaultDir = "vendor/pgque"

func registerDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", defaultDir, "the vendored `FOLDER`, relative to the working directory")
}

// readSourceIfAny reads the folder's SOURCE.json; nil when there is none.
func readSourceIfAny(dir string) (*vendorfile.Source, error) {
	src, err := vendorfile.ReadSource(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return src, err
}

func errNothingVendored(dir string) error {
	return fault.New(fault.Usage, "nothing is vendored in %q: it has no SOURCE.json", dir).
		Hint("pgque-vendor update --latest%s", dirFlag(dir)).
		Hint("if it is elsewhere, name the folder with --dir")
}

// dirFlag is what a hint's command needs after its arguments, so that it works
// as printed.
func dirFlag(dir string) string {
	if dir == defaultDir {
		return ""
	}
	if strings.ContainsAny(dir, " \t'\"\\$&;|<>*?()") {
		return " --dir '" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	}
	return " --dir " + dir
}

// patchDir is the folder as a patch's headers name it: relative, with slashes,
// so that git apply and patch -p1 find it from the working directory. A folder
// outside it keeps only its last part; no patch reaches it from here.
func patchDir(dir string) string {
	dir = filepath.Clean(dir)
	if !filepath.IsLocal(dir) {
		return filepath.Base(dir)
	}
	return filepath.ToSlash(dir)
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
