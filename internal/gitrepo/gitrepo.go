// Package gitrepo is a local git repository, or a bundle file, as a source of
// tags, trees and blobs. It reads through the git program and trusts nothing
// but object ids: every object that comes back is hashed again here, from the
// commit to its trees to the blob, so that a damaged or tampered repository is
// noticed as surely as a lying server. Nothing is written to the repository
// and nothing is fetched.
package gitrepo

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// Options say which repository to open.
type Options struct {
	// Path is the repository: a work tree, a bare repository, a linked work
	// tree or submodule (whose .git is a file), or a file made by git bundle.
	// Directories above it are not searched.
	Path string
	// Env is the environment for git, as "NAME=value". Variables that start
	// with GIT_ are left out: they could point git at another repository.
	// Empty is fine.
	Env []string
	// Git is the git program; "" looks for "git" on the PATH.
	Git string
	// TempDir is where a bundle is unpacked; "" is the system's folder for
	// temporary files.
	TempDir string
	// Log gets each git command at debug level; nil is silent.
	Log *slog.Logger
}

// Repository is an open repository. Its methods can be called from several
// goroutines. Close it, or git processes and temporary files stay behind.
type Repository struct {
	path   string // as the user wrote it, for messages
	gitDir string
	git    gitProgram

	objects *objectReader

	refsMu sync.Mutex // held while git lists them
	refs   []ref      // of refs/tags, once read

	mu    sync.Mutex
	trees map[gitobject.ID][]gitobject.TreeEntry // verified trees by id
	roots map[gitobject.ID]gitobject.ID          // verified: a commit's root tree

	close     sync.Once
	stopWatch func() bool
	unpacked  string // the temporary repository of a bundle
}

// Open finds the repository and starts git. Cancelling the context ends all of
// git's processes and removes temporary files, as Close does. The failure is
// fault.Usage when there is no git program, no repository at the path, or a
// bundle that can't be unpacked.
func Open(ctx context.Context, o Options) (*Repository, error) {
	program, err := findGit(o)
	if err != nil {
		return nil, err
	}
	r := &Repository{
		path:  o.Path,
		git:   program,
		trees: map[gitobject.ID][]gitobject.TreeEntry{},
		roots: map[gitobject.ID]gitobject.ID{},
	}
	abs, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fault.New(fault.Usage, "find the repository %q: %w", o.Path, err)
	}
	info, err := os.Stat(abs)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, noSuchRepository(o.Path)
	case err != nil:
		return nil, fault.New(fault.Usage, "open the repository %q: %w", o.Path, err)
	case info.IsDir():
		r.gitDir, err = findGitDir(abs, o.Path)
	case !info.Mode().IsRegular(): // opening a named pipe would wait for ever
		return nil, fault.New(fault.Usage, "open the repository %q: it is no file and no folder", o.Path)
	default:
		r.unpacked, err = unpackBundle(ctx, program, abs, o)
		r.gitDir = r.unpacked
	}
	if err != nil {
		return nil, err
	}
	r.objects = &objectReader{repository: r, lifetime: ctx}
	r.stopWatch = context.AfterFunc(ctx, r.cleanUp)
	if err := r.objects.start(); err != nil { // it gets ready while the caller prepares
		r.Close()
		return nil, err
	}
	return r, nil
}

func noSuchRepository(path string) error {
	err := fault.New(fault.Usage, "there is no repository %q: no such file or directory", path)
	if strings.Contains(path, "://") || strings.HasPrefix(path, "git@") {
		return err.Hint("git clone --bare %s pgque.git, then pass --from pgque.git", quotedPath(path))
	}
	return err
}

// Close ends git and removes temporary files. It is safe to call twice.
func (r *Repository) Close() error {
	r.stopWatch()
	r.cleanUp()
	return nil
}

func (r *Repository) cleanUp() {
	r.close.Do(func() {
		r.objects.shut()
		if r.unpacked != "" {
			os.RemoveAll(r.unpacked) // best effort: it is a temporary folder
		}
	})
}

func findGit(o Options) (gitProgram, error) {
	path := o.Git
	if path == "" {
		path = "git"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return gitProgram{}, fault.New(fault.Usage, "a local repository is read with the git program, which can't be run: %w", err).
			Hint("install git, or leave out --from to read from GitHub")
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return gitProgram{path: path, env: cleanEnv(o.Env), log: log}, nil
}

// findGitDir returns the git directory of the repository at dir itself. Git's
// own search would go on in the directories above, and a mistyped path inside
// the user's project would then read the project's repository. Naming the
// directory to git also means that git does not refuse repositories of another
// owner (safe.directory). That check keeps hooks and configuration of strangers
// from running programs; the two commands used here run neither, and the ways
// in which reading an object can start a program are shut in cleanEnv.
func findGitDir(abs, shown string) (string, error) {
	for _, dir := range []string{filepath.Join(abs, ".git"), abs} {
		info, err := os.Stat(dir)
		if err != nil {
			continue
		}
		if !info.IsDir() { // ".git" as a file: git follows it
			return dir, nil
		}
		if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err == nil {
			return dir, nil
		}
	}
	e := fault.New(fault.Usage, "%q is no git repository", shown)
	if parent := repositoryAbove(abs); parent != "" {
		return "", e.Hint("pass the repository's own folder: --from %s", parent)
	}
	return "", e.Hint("git clone --bare https://github.com/NikolayS/PgQue pgque.git, then pass --from pgque.git")
}

// repositoryAbove returns the repository that dir lies in, or "".
func repositoryAbove(dir string) string {
	for parent := filepath.Dir(dir); parent != dir; dir, parent = parent, filepath.Dir(parent) {
		if _, err := os.Stat(filepath.Join(parent, ".git")); err == nil {
			return parent
		}
	}
	return ""
}

// quotedPath is a path as an argument in a hint that can be pasted.
func quotedPath(path string) string {
	if path != "" && !strings.ContainsAny(path, " \t\n'\"\\$`!*?[](){}<>|&;#~") {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
