package gitrepo

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// unpackBundle makes a temporary bare repository from a bundle file and
// returns its folder. Git computes each object's id from its content while it
// unpacks.
func unpackBundle(ctx context.Context, git gitProgram, file string, o Options) (dir string, err error) {
	if err := checkBundle(file, o.Path); err != nil {
		return "", err
	}
	dir, err = os.MkdirTemp(o.TempDir, "pgque-vendor-bundle-")
	if err != nil {
		return "", fault.New(fault.Usage, "unpack the bundle %q: %w", o.Path, err)
	}
	// The one place where git may use a transport: the bundle as a file. No
	// template, so that no hook of the user's comes along.
	git.env = append(git.env[:len(git.env):len(git.env)], "GIT_ALLOW_PROTOCOL=file")
	_, said, err := git.output(ctx, "clone", "--quiet", "--mirror", "--template=", "--", file, dir)
	if err == nil {
		return dir, nil
	}
	os.RemoveAll(dir)
	why := messages(said)[0]
	switch {
	case ctx.Err() != nil:
		return "", err
	case strings.Contains(said, "prerequisite"):
		return "", fault.New(fault.Usage, "the bundle %q is not whole: it builds on commits that it does not hold", o.Path).
			Hint("git bundle create FILE --all, in a full clone")
	case saysLocal(said):
		return "", fault.New(fault.Usage, "unpack the bundle %q: %s", o.Path, why).
			Hint("it is unpacked in the folder for temporary files; TMPDIR (on Windows TMP) can name one with more room")
	case saysDamage(said):
		return "", fault.New(fault.Integrity, "the bundle %q is damaged: %s", o.Path, why)
	}
	return "", fault.New(fault.Usage, "unpack the bundle %q: %s", o.Path, why)
}

// checkBundle tells a bundle from any other file, by its first line.
func checkBundle(file, shown string) error {
	f, err := os.Open(file)
	if err != nil {
		return fault.New(fault.Usage, "open the repository %q: %w", shown, err)
	}
	defer f.Close()
	const first = len("# v2 git bundle\n")
	head := make([]byte, first+1) // one byte more: a bundle has at least one ref
	_, err = io.ReadFull(f, head)
	if err == nil && (bytes.HasPrefix(head, []byte("# v2 git bundle\n")) || bytes.HasPrefix(head, []byte("# v3 git bundle\n"))) {
		return nil
	}
	return fault.New(fault.Usage, "%q is neither a git repository nor a bundle file", shown).
		Hint("git bundle create FILE --all, in a full clone, makes one")
}
