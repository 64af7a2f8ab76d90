package ghtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// gitDir reads a repository through the git program.
type gitDir struct {
	dir   string
	known sync.Map // output by arguments, of commands about objects: these never change
}

type ref struct{ name, id string }

func (g *gitDir) run(args ...string) ([]byte, error) {
	return runGit(g.dir, nil, args...)
}

func runGit(dir string, extra []string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(context.Background(), "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = gitEnvironment(extra)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}

// gitEnvironment shuts out the person's own configuration and the repository
// that a git hook may have named.
func gitEnvironment(extra []string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			env = append(env, v)
		}
	}
	env = append(env,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_NO_LAZY_FETCH=1", "LC_ALL=C")
	return append(env, extra...)
}

// object runs a command whose answer depends on object ids alone.
func (g *gitDir) object(args ...string) ([]byte, error) {
	key := strings.Join(args, "\x00")
	if out, ok := g.known.Load(key); ok {
		return out.([]byte), nil
	}
	out, err := g.run(args...)
	if err == nil {
		g.known.Store(key, out)
	}
	return out, err
}

// refs returns the refs below a prefix, "refs/tags/" for example, by name.
func (g *gitDir) refs(prefix string) ([]ref, error) {
	out, err := g.run("for-each-ref", "--format=%(objectname) %(refname)", prefix)
	if err != nil {
		return nil, err
	}
	var refs []ref
	for line := range strings.Lines(string(out)) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		refs = append(refs, ref{name, id})
	}
	return refs, nil
}

// kind returns an object's type, or "" when there is no such object.
func (g *gitDir) kind(id string) string {
	if !isID(id) {
		return ""
	}
	out, err := g.object("cat-file", "-t", id)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// commit returns the commit that an object leads to, or "".
func (g *gitDir) commit(id string) string {
	out, err := g.object("rev-parse", "--quiet", "--verify", id+"^{commit}")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// header returns the header lines of a commit or tag by key (the first of
// each), and the message.
func (g *gitDir) header(kind, id string) (map[string]string, string, error) {
	out, err := g.object("cat-file", kind, id)
	if err != nil {
		return nil, "", err
	}
	head, message, _ := strings.Cut(string(out), "\n\n")
	fields := map[string]string{}
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, " ")
		if _, seen := fields[key]; !seen && key != "" {
			fields[key] = value
		}
	}
	return fields, message, nil
}

type treeEntry struct {
	mode, kind, id, path string
	size                 *int64
}

func (g *gitDir) tree(id string, recursive bool) ([]treeEntry, error) {
	args := []string{"ls-tree", "-z", "-l"}
	if recursive {
		args = append(args, "-r", "-t")
	}
	out, err := g.object(append(args, id)...)
	if err != nil {
		return nil, err
	}
	var entries []treeEntry
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		meta, path, ok := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		if !ok || len(f) != 4 {
			continue // an empty tree
		}
		e := treeEntry{mode: f[0], kind: f[1], id: f[2], path: path}
		if n, err := strconv.ParseInt(f[3], 10, 64); err == nil {
			e.size = &n
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (g *gitDir) blob(id string) ([]byte, error) { return g.object("cat-file", "blob", id) }

func isID(s string) bool {
	return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == ""
}
