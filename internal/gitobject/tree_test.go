package gitobject_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

func TestTreeIDIsGitsInAnyOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustGit(t, dir, "", "init", "-q")
	blob := mustGit(t, dir, "x", "hash-object", "-w", "--stdin")
	empty := mustGit(t, dir, "", "mktree")
	// "a.b" < "a/" < "a0": a directory sorts as if its name ended with "/".
	entries := []gitobject.TreeEntry{
		{Mode: gitobject.ModeTree, Name: "a", ID: gitobject.ID(empty)},
		{Mode: gitobject.ModeFile, Name: "a.b", ID: gitobject.ID(blob)},
		{Mode: gitobject.ModeExecutable, Name: "a0", ID: gitobject.ID(blob)},
		{Mode: gitobject.ModeSymlink, Name: "ü", ID: gitobject.ID(blob)},
		{Mode: gitobject.ModeFile, Name: "with space", ID: gitobject.ID(blob)},
		{Mode: gitobject.ModeSubmodule, Name: "sub", ID: gitobject.ID(strings.Repeat("1", 40))},
	}
	var in strings.Builder
	for _, e := range entries {
		kind := map[string]string{gitobject.ModeTree: "tree", gitobject.ModeSubmodule: "commit"}[e.Mode]
		if kind == "" {
			kind = "blob"
		}
		fmt.Fprintf(&in, "%s %s %s\t%s\n", e.Mode, kind, e.ID, e.Name)
	}
	want := mustGit(t, dir, in.String(), "mktree", "--missing")
	for i := range 20 {
		rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		if got, err := gitobject.TreeID(entries); err != nil || string(got) != want {
			t.Fatalf("shuffle %d: TreeID = %q, %v; git says %s", i, got, err, want)
		}
	}

	raw, _ := git(t, dir, "", "cat-file", "tree", want)
	parsed, err := gitobject.ParseTree([]byte(raw))
	if err != nil || len(parsed) != len(entries) {
		t.Fatalf("ParseTree = %d entries, %v; want %d", len(parsed), err, len(entries))
	}
	for _, e := range parsed {
		if !slices.Contains(entries, e) {
			t.Errorf("ParseTree has %+v, which was not written", e)
		}
	}
}

func TestTreeIDRefuses(t *testing.T) {
	t.Parallel()
	id := gitobject.ID(strings.Repeat("a", 40))
	for name, entries := range map[string][]gitobject.TreeEntry{
		"empty name":        {{Mode: gitobject.ModeFile, Name: "", ID: id}},
		"slash":             {{Mode: gitobject.ModeFile, Name: "a/b", ID: id}},
		"parent":            {{Mode: gitobject.ModeFile, Name: "..", ID: id}},
		"self":              {{Mode: gitobject.ModeFile, Name: ".", ID: id}},
		"NUL":               {{Mode: gitobject.ModeFile, Name: "a\x00b", ID: id}},
		"short id":          {{Mode: gitobject.ModeFile, Name: "a", ID: id[1:]}},
		"upper-case id":     {{Mode: gitobject.ModeFile, Name: "a", ID: "A" + id[1:]}},
		"no mode":           {{Mode: "", Name: "a", ID: id}},
		"git's raw mode":    {{Mode: "40000", Name: "a", ID: id}},
		"word for mode":     {{Mode: "blob--", Name: "a", ID: id}},
		"twice":             {{Mode: gitobject.ModeFile, Name: "a", ID: id}, {Mode: gitobject.ModeFile, Name: "a", ID: id}},
		"file and tree":     {{Mode: gitobject.ModeFile, Name: "a", ID: id}, {Mode: gitobject.ModeTree, Name: "a", ID: id}},
		"with a.b between ": {{Mode: gitobject.ModeFile, Name: "a", ID: id}, {Mode: gitobject.ModeFile, Name: "a.b", ID: id}, {Mode: gitobject.ModeTree, Name: "a", ID: id}},
	} {
		if got, err := gitobject.TreeID(entries); !fault.Is(err, fault.Integrity) {
			t.Errorf("%s: TreeID = %q, %v; want an integrity failure", name, got, err)
		}
	}
}

func TestParseTreeRefuses(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("i", 20)
	for name, raw := range map[string]string{
		"no mode":         "a",
		"no name":         "100644 ",
		"cut id":          "100644 a\x00" + id[1:],
		"wrong order":     "100644 b\x00" + id + "100644 a\x00" + id,
		"twice":           "100644 a\x00" + id + "100644 a\x00" + id,
		"twice, not side": "100644 a\x00" + id + "100644 a.b\x00" + id + "40000 a\x00" + id,
		"slash":           "100644 a/b\x00" + id,
		"parent":          "40000 ..\x00" + id,
		"long mode":       "1000000644 a\x00" + id,
		"mode zero":       "0 a\x00" + id,
		"padded mode":     "040000 a\x00" + id,
	} {
		if got, err := gitobject.ParseTree([]byte(raw)); !fault.Is(err, fault.Integrity) {
			t.Errorf("%s: ParseTree = %v, %v; want an integrity failure", name, got, err)
		}
	}
}

// listing is a repository's tree as git ls-tree -r -t prints it, which is what
// GitHub's recursive trees API returns too.
func listing(t *testing.T, dir, treeish string) []gitobject.Entry {
	t.Helper()
	var entries []gitobject.Entry
	for line := range strings.SplitSeq(mustGit(t, dir, "", "ls-tree", "-r", "-t", "-z", treeish), "\x00") {
		if line == "" {
			continue
		}
		meta, path, _ := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		entries = append(entries, gitobject.Entry{Path: path, Mode: f[0], ID: gitobject.ID(f[2]), Size: -1})
	}
	return entries
}

func TestRecomputeTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustGit(t, dir, "", "init", "-q")
	for path, text := range map[string]string{
		"LICENSE": "licence", "sql/pgque.sql": "select 1;", "sql/deep/er/x": "x", "sql.d/y": "y", "sql0": "z", "ü/ü": "u",
	} {
		full := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mustGit(t, dir, "", "add", ".")
	want := mustGit(t, dir, "", "write-tree")
	entries := listing(t, dir, want)
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	if got, err := gitobject.RecomputeTree(entries); err != nil || string(got) != want {
		t.Fatalf("RecomputeTree = %q, %v; git says %s", got, err, want)
	}
	if got, err := gitobject.RecomputeTree(nil); err != nil || got != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Errorf("RecomputeTree of nothing = %q, %v; want git's empty tree", got, err)
	}

	at := func(path string) int {
		return slices.IndexFunc(entries, func(e gitobject.Entry) bool { return e.Path == path })
	}
	other := gitobject.ID(strings.Repeat("0", 40))
	for name, tamper := range map[string]func([]gitobject.Entry) []gitobject.Entry{
		"another blob": func(l []gitobject.Entry) []gitobject.Entry { l[at("sql/pgque.sql")].ID = other; return l },
		"another mode": func(l []gitobject.Entry) []gitobject.Entry {
			l[at("sql/deep/er/x")].Mode = gitobject.ModeSymlink
			return l
		},
		"a path left out": func(l []gitobject.Entry) []gitobject.Entry {
			return slices.Delete(l, at("sql/deep/er/x"), at("sql/deep/er/x")+1)
		},
		"a path added": func(l []gitobject.Entry) []gitobject.Entry {
			return append(l, gitobject.Entry{Path: "sql/new", Mode: gitobject.ModeFile, ID: other})
		},
		"another tree":        func(l []gitobject.Entry) []gitobject.Entry { l[at("sql/deep")].ID = other; return l },
		"directory left out":  func(l []gitobject.Entry) []gitobject.Entry { return slices.Delete(l, at("ü"), at("ü")+1) },
		"directory is a file": func(l []gitobject.Entry) []gitobject.Entry { l[at("sql.d")].Mode = gitobject.ModeFile; return l },
		"the same path twice": func(l []gitobject.Entry) []gitobject.Entry { return append(l, l[at("sql")]) },
		"an absolute path":    func(l []gitobject.Entry) []gitobject.Entry { l[at("sql0")].Path = "/sql0"; return l },
	} {
		if got, err := gitobject.RecomputeTree(tamper(slices.Clone(entries))); !fault.Is(err, fault.Integrity) {
			t.Errorf("%s: RecomputeTree = %q, %v; want an integrity failure", name, got, err)
		}
	}
	// At the root nothing is listed to compare with: another id comes back,
	// which is not the commit's.
	changed := slices.Clone(entries)
	changed[at("LICENSE")].ID = other
	if got, err := gitobject.RecomputeTree(changed); err != nil || string(got) == want {
		t.Errorf("with another LICENSE: RecomputeTree = %q, %v; want another root", got, err)
	}
}

// The listing of a real, large tree: every tag of upstream's clone.
func TestRecomputeUpstream(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("PGQUE_UPSTREAM_GIT")
	if dir == "" {
		t.Skip("PGQUE_UPSTREAM_GIT is not set")
	}
	for line := range strings.SplitSeq(mustGit(t, dir, "", "--git-dir=.", "for-each-ref", "--format=%(refname)", "refs/tags"), "\n") {
		want := mustGit(t, dir, "", "--git-dir=.", "rev-parse", line+"^{tree}")
		var entries []gitobject.Entry
		for l := range strings.SplitSeq(mustGit(t, dir, "", "--git-dir=.", "ls-tree", "-r", "-t", "-z", want), "\x00") {
			if meta, path, ok := strings.Cut(l, "\t"); ok {
				f := strings.Fields(meta)
				entries = append(entries, gitobject.Entry{Path: path, Mode: f[0], ID: gitobject.ID(f[2])})
			}
		}
		if got, err := gitobject.RecomputeTree(entries); err != nil || string(got) != want {
			t.Errorf("%s: RecomputeTree of %d entries = %q, %v; want %s", line, len(entries), got, err, want)
		}
	}
}

// Whatever ParseTree accepts, TreeID hashes to the same bytes' id.
func FuzzParseTree(f *testing.F) {
	id := strings.Repeat("i", 20)
	f.Add([]byte("100644 a\x00" + id + "40000 b\x00" + id))
	f.Add([]byte("40000 a\x00" + id + "100644 a0\x00" + id))
	f.Add([]byte("040000 a\x00" + id))
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := gitobject.ParseTree(raw)
		if err != nil {
			return
		}
		got, err := gitobject.TreeID(entries)
		if err != nil {
			t.Fatalf("TreeID refuses what ParseTree accepted: %v", err)
		}
		want, err := gitobject.ObjectID(gitobject.TypeTree, raw)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("TreeID = %s, the bytes hash to %s", got, want)
		}
	})
}
