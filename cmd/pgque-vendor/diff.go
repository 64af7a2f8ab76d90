package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/linediff"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

type diffOptions struct {
	dir      string
	upstream upstreamFlags
	tag      string
	sqlPath  string
	stat     bool
	nameOnly bool
	api      bool
	json     bool
	unified  int
	output   string
}

// side is one side of a comparison: what the files hold, and what to call it.
type side struct {
	label string
	ids   map[string]gitobject.ID // by name; a file that is not there has none
	data  map[string][]byte       // only of the files that differ
}

// diffDocument is what "diff --json" writes.
type diffDocument struct {
	Schema    int             `json:"schema"`
	Dir       string          `json:"dir"`
	From      string          `json:"from"`
	To        string          `json:"to"`
	Identical bool            `json:"identical"`
	Files     []diffedFile    `json:"files"`
	Objects   []changedObject `json:"objects"`
}

type diffedFile struct {
	Name    string `json:"name"`
	State   string `json:"state"` // same, changed, added or removed
	Added   int    `json:"lines_added"`
	Removed int    `json:"lines_removed"`
	Binary  bool   `json:"binary"`
}

func newDiffCommand(env *environment) *cobra.Command {
	var o diffOptions
	cmd := &cobra.Command{
		Use:   "diff [TAG]",
		Short: "Show the vendored files against a tag, or against their own pinned commit",
		Long: `With TAG: what an update to it would change (a = the vendored files, b = the
tag). Without: local edits and corruption (a = the pinned commit's files from
upstream, b = the vendored files).

The output is a patch that git apply and patch -p1 take in the same directory.
Exit 0 when all files are the same, 1 when they differ.`,
		Example: `  pgque-vendor diff v0.2.0
  pgque-vendor diff --stat
  pgque-vendor diff v0.2.0 --api
  pgque-vendor diff v0.2.0 --output pgque.patch`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.tag = args[0]
				if err := refuseEmptyArgument("TAG", args[0]); err != nil {
					return err
				}
			}
			return o.run(cmd.Context(), env)
		},
	}
	registerDir(cmd, &o.dir)
	o.upstream.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.sqlPath, "sql-path", "", "`PATH` of the SQL file upstream (default: SOURCE.json's)")
	flags.BoolVar(&o.stat, "stat", false, "count lines instead of showing them")
	flags.BoolVar(&o.nameOnly, "name-only", false, "only the names of the files that differ")
	flags.BoolVar(&o.api, "api", false, "the SQL's functions and other objects that changed, instead of lines")
	flags.IntVarP(&o.unified, "unified", "U", linediff.DefaultContext, "`LINES` of context; a patch with 0 needs git apply --unidiff-zero")
	flags.StringVarP(&o.output, "output", "o", "", "write to `FILE`, the bytes as they are (a shell's > may change them)")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *diffOptions) run(ctx context.Context, env *environment) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := checkOutput("--output", o.output, o.dir); err != nil {
		return err
	}
	src, err := readSourceIfAny(o.dir)
	if err != nil {
		return err
	}
	if src == nil {
		return errNothingVendored(o.dir, o.upstream)
	}
	up, release, err := o.upstream.open(ctx, env, src)
	if err != nil {
		return err
	}
	defer release()
	disk, err := readDisk(o.dir) // while git starts
	if err != nil {
		return err
	}
	tag, err := o.resolve(ctx, env, up, src)
	if err != nil {
		return err
	}
	target, err := lookUpTarget(ctx, up, tag, sqlPathOr(o.sqlPath, src))
	if err != nil {
		return err
	}
	theirs, err := readUpstream(ctx, up, target, disk)
	if err != nil {
		return err
	}
	go release() // git ends while the lines are compared; the deferred call waits for that
	a, b := theirs, disk
	if o.tag != "" {
		a, b = disk, theirs
	}
	return o.show(env, a, b)
}

func (o *diffOptions) validate() error {
	if err := checkSQLPath(o.sqlPath); err != nil {
		return err
	}
	chosen := 0
	for _, on := range []bool{o.stat, o.nameOnly, o.api, o.json} {
		if on {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return fault.New(fault.Usage, "--stat, --name-only, --api and --json exclude each other")
	case o.unified < 0:
		return fault.New(fault.Usage, "--unified is %d: it must be 0 or more", o.unified)
	case o.tag != "":
		return gitobject.CheckTagName(o.tag)
	}
	return nil
}

// resolve returns the tag to compare with. Without one it is the pinned
// commit; that its tag moved is worth a word, not a failure.
func (o *diffOptions) resolve(ctx context.Context, env *environment, up upstream, src *vendorfile.Source) (gitobject.Tag, error) {
	if o.tag != "" && o.tag != src.Tag {
		return up.ResolveTag(ctx, o.tag)
	}
	tag, err := up.ResolveTag(ctx, src.Tag)
	switch {
	case err != nil && (o.tag != "" || !fault.Is(err, fault.Upstream) || ctx.Err() != nil):
		return tag, err
	case err != nil:
		env.warnf("can't tell whether %s moved: %s", src.Tag, err)
	case string(tag.Commit) != src.Commit:
		env.warnf("upstream's tag %q moved %s -> %s", src.Tag, shortID(src.Commit), shortID(tag.Commit))
	}
	if o.tag != "" {
		return tag, nil
	}
	return gitobject.Tag{Name: src.Tag, Commit: gitobject.ID(src.Commit)}, nil
}

// readDisk reads the vendored files as they are; one that is missing is no
// failure here, it is a difference.
func readDisk(dir string) (side, error) {
	s := side{label: "the vendored files", ids: map[string]gitobject.ID{}, data: map[string][]byte{}}
	for _, name := range vendoredNames {
		data, err := vendorfile.ReadGrownFile(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, err
		}
		if s.ids[name], err = gitobject.BlobID(data); err != nil {
			return s, err
		}
		s.data[name] = data
	}
	return s, nil
}

// readUpstream fetches the target's files that differ from the disk's.
func readUpstream(ctx context.Context, up upstream, t *target, disk side) (side, error) {
	have := map[gitobject.ID][]byte{}
	for name, id := range disk.ids {
		have[id] = disk.data[name]
	}
	files, err := fetchTarget(ctx, up, t, have)
	s := side{label: t.tag.Name, ids: map[string]gitobject.ID{}, data: files}
	for name, e := range t.entries {
		s.ids[name] = e.ID
	}
	return s, err
}

func (o *diffOptions) show(env *environment, a, b side) error {
	size := len(a.data[vendorfile.SQLName]) + len(b.data[vendorfile.SQLName]) // a patch is seldom larger
	out := bytes.NewBuffer(make([]byte, 0, size))
	same, err := o.render(env, out, a, b)
	if err != nil {
		return err
	}
	if err := o.write(env, out.Bytes()); err != nil {
		return err
	}
	if same {
		prove(env, a)
		return nil
	}
	return errFinding
}

// render writes what was asked for and reports whether the two sides are the
// same in it.
func (o *diffOptions) render(env *environment, out *bytes.Buffer, a, b side) (bool, error) {
	switch {
	case o.json:
		doc := o.describe(a, b)
		return doc.Identical, writeJSON(out, doc)
	case o.api:
		changes := changedObjects(a.data[vendorfile.SQLName], b.data[vendorfile.SQLName])
		for _, c := range changes {
			fmt.Fprintln(out, c.line())
		}
		return o.sayOtherFiles(env, a, b, len(changes)), nil
	}
	options := linediff.Options{Context: o.unified}
	if o.output == "" {
		options.Color = env.colored(env.stdout)
		options.Sanitize = env.tty(env.stdout)
	}
	same := true
	for _, name := range vendoredNames {
		fa, fb := o.file(a, name), o.file(b, name)
		var w io.Writer = out
		if o.stat || o.nameOnly {
			w = io.Discard
		}
		stat, err := linediff.Unified(w, fa, fb, options)
		if err != nil {
			return false, err
		}
		if stat.Note != "" {
			env.sayf("note: %s", stat.Note)
		}
		if stat.Identical {
			continue
		}
		same = false
		if o.nameOnly {
			fmt.Fprintln(out, fa.Name)
		}
		if o.stat {
			fmt.Fprintln(out, statLine(fa.Name, stat))
		}
	}
	return same, nil
}

// sayOtherFiles tells of differences that no list of objects shows, and reports
// whether there is none at all.
func (o *diffOptions) sayOtherFiles(env *environment, a, b side, objects int) (same bool) {
	var differ []string
	for _, name := range vendoredNames {
		if a.ids[name] != b.ids[name] && (objects == 0 || name != vendorfile.SQLName) {
			differ = append(differ, name)
		}
	}
	switch {
	case len(differ) == 0:
	case objects > 0:
		env.sayf("files that differ as well: %s", strings.Join(differ, ", "))
	default:
		env.sayf("no object of the SQL differs; these files do: %s; to see it: %s", strings.Join(differ, ", "), o.command("--stat"))
	}
	return objects == 0 && len(differ) == 0
}

// command is this comparison shown another way, for a hint.
func (o *diffOptions) command(how string) string {
	command := "pgque-vendor diff"
	if o.tag != "" {
		command += " " + shellQuote(o.tag)
	}
	command += " " + how
	if o.sqlPath != "" {
		command += " --sql-path " + shellQuote(o.sqlPath)
	}
	return command + o.upstream.again() + dirFlag(o.dir)
}

func (o *diffOptions) file(s side, name string) linediff.File {
	_, there := s.ids[name]
	return linediff.File{Name: path.Join(patchDir(o.dir), name), Data: s.data[name], Missing: !there}
}

func statLine(name string, s linediff.Stat) string {
	if s.Binary {
		return name + "  binary"
	}
	return fmt.Sprintf("%s  +%s -%s", name, thousands(int64(s.Added)), thousands(int64(s.Removed)))
}

func (o *diffOptions) describe(a, b side) diffDocument {
	doc := diffDocument{Schema: 1, Dir: filepath.ToSlash(o.dir), From: a.label, To: b.label, Identical: true, Files: []diffedFile{}, Objects: []changedObject{}}
	for _, name := range vendoredNames {
		fa, fb := o.file(a, name), o.file(b, name)
		stat := linediff.Count(fa, fb)
		f := diffedFile{Name: name, State: "changed", Added: stat.Added, Removed: stat.Removed, Binary: stat.Binary}
		switch {
		case stat.Identical:
			f.State = "same"
		case fa.Missing:
			f.State = "added"
		case fb.Missing:
			f.State = "removed"
		}
		doc.Identical = doc.Identical && stat.Identical
		doc.Files = append(doc.Files, f)
	}
	doc.Objects = append(doc.Objects, changedObjects(a.data[vendorfile.SQLName], b.data[vendorfile.SQLName])...)
	return doc
}

func (o *diffOptions) write(env *environment, data []byte) error {
	if o.output == "" {
		_, err := env.stdout.Write(data)
		return err
	}
	if err := os.WriteFile(o.output, data, 0o644); err != nil {
		return fault.New(fault.Usage, "write %q: %s", o.output, err)
	}
	return nil
}

// prove says what was compared when nothing differs, so that an empty answer
// is not taken for a comparison that did not happen.
func prove(env *environment, a side) {
	var bytes int64
	for _, data := range a.data {
		bytes += int64(len(data))
	}
	env.sayf("%s, %s bytes, identical", count(len(a.ids), "file"), thousands(bytes))
}
