package gitrepo

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

// gitProgram runs git in a fixed environment.
type gitProgram struct {
	path string
	env  []string
	log  *slog.Logger
}

// cleanEnv is the user's environment without what could steer git: its own
// variables and the language of its messages. What is added says: read only
// the named repository's configuration, take objects as they are stored
// (replace refs would show others), ask nobody, lock nothing, and never fetch
// an object that a partial clone lacks. GIT_NO_LAZY_FETCH does the last where
// git knows it (2.45, and security releases of older lines); for the others no
// transport is allowed, which stops the fetch before it can run a program that
// the repository's configuration names.
func cleanEnv(env []string) []string {
	clean := slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		return strings.HasPrefix(strings.ToUpper(v), "GIT_")
	})
	return append(clean,
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_ALLOW_PROTOCOL=none",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
	)
}

// command prepares git. The context ends it; a process that git itself
// started can't keep Wait from returning then.
func (g gitProgram) command(ctx context.Context, args ...string) *exec.Cmd {
	g.log.DebugContext(ctx, "git", "args", args)
	cmd := exec.CommandContext(ctx, g.path, args...)
	cmd.Env = g.env
	cmd.WaitDelay = 2 * time.Second
	return cmd
}

// output runs git and returns its standard output, and as said its standard
// error.
func (g gitProgram) output(ctx context.Context, args ...string) (out []byte, said string, err error) {
	cmd := g.command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err = cmd.Output()
	if ctx.Err() != nil {
		return nil, "", stopped(ctx)
	}
	return out, stderr.String(), err
}

// stopped is the failure of a call whose context ended.
func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Upstream, "git did not answer in time: %w", ctx.Err())
	}
	return context.Cause(ctx) // a signal, or another call's failure
}

// messages are the lines of git's standard error that say what went wrong, or
// all lines if none is marked so.
func messages(said string) []string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	var marked []string
	for _, line := range lines {
		for _, prefix := range []string{"fatal: ", "error: "} {
			if text, ok := strings.CutPrefix(line, prefix); ok {
				marked = append(marked, text)
			}
		}
	}
	if len(marked) == 0 {
		return lines
	}
	return marked
}

// explain turns what git said before it gave up into a failure with a class.
func (r *Repository) explain(said string, err error) error {
	why := messages(said)[0]
	if why == "" {
		why = err.Error()
	}
	switch {
	case strings.Contains(said, "not a git repository"):
		return fault.New(fault.Usage, "%q is no git repository", r.path)
	case strings.Contains(said, "repository extension"), strings.Contains(said, "repository version"), strings.Contains(said, "repo version"):
		return fault.New(fault.Usage, "git can't read the repository %q: %s", r.path, why).Hint("update git")
	case saysLocal(said):
		return fault.New(fault.Usage, "git can't read the repository %q: %s", r.path, why)
	case saysDamage(said):
		return fault.New(fault.Integrity, "the repository %q is damaged: %s", r.path, why).Hint("git -C %s fsck", quotedPath(r.path))
	}
	return fault.New(fault.Usage, "git can't read the repository %q: %s", r.path, why)
}

// saysLocal recognises git's words for what the machine refused, in which the data
// has no part. After them it often speaks of damage too.
func saysLocal(said string) bool {
	return containsAny(said, "No space left", "Out of diskspace", "Disk quota", "File too large", "Read-only file system",
		"Permission denied", "Input/output error", "Too many open files", "ut of memory", "Cannot allocate memory", "died of signal")
}

// saysDamage recognises git's words for objects that can't be read.
func saysDamage(said string) bool {
	return containsAny(said, "corrupt", "inflate", "unpack", "missing object", "bad object", "invalid object", "bad pack", "bad tree",
		"unable to read", "unable to stream", "unable to parse", "mismatch", "early EOF", "premature end", "index-pack")
}

// saysPromised recognises git's words for an object that a partial clone has
// to fetch, which it must not.
func saysPromised(said string) bool { return containsAny(said, "promisor", "lazy fetch") }

func containsAny(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(s, w) })
}
