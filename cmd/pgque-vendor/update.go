package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

type updateOptions struct {
	dir            string
	upstream       upstreamFlags
	tag            string
	latest         bool
	sqlPath        string
	force          bool
	acceptMovedTag bool
	goMarker       bool
	dryRun         bool
	prBody         string
	json           bool

	unwritable error // why the folder can't be written, should it have to be
	saidMoved  bool  // that the tag moved: the folder is looked at twice
	note       string
}

func newUpdateCommand(env *environment) *cobra.Command {
	var o updateOptions
	cmd := &cobra.Command{
		Use:   "update TAG",
		Short: "Vendor the SQL of a tag and rewrite SOURCE.json",
		Long: `Vendor PgQue's SQL, licence and notice as they are at TAG, and rewrite
SOURCE.json. Every byte is proved against the commit that the tag names; files
that did not change are not downloaded and not rewritten. A failed or killed run
leaves the old files, the new files, or a state that status calls interrupted
and that the same command repairs.`,
		Example: `  pgque-vendor update v0.2.0
  pgque-vendor update --latest --dry-run
  pgque-vendor update v0.2.0 --from ../PgQue`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.tag = args[0]
				if err := refuseEmptyArgument("TAG", args[0]); err != nil {
					return err
				}
				o.latest = o.latest && env.typed["latest"] != nil // a typed tag wins over the environment
			}
			return o.run(cmd.Context(), env)
		},
	}
	registerDir(cmd, &o.dir)
	o.upstream.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&o.latest, "latest", false, "take the newest stable tag; stay where a newer one is vendored")
	flags.StringVar(&o.sqlPath, "sql-path", "", "`PATH` of the SQL file upstream (default: SOURCE.json's, else "+defaultSQLPath+")")
	flags.BoolVar(&o.force, "force", false, "overwrite local edits; unknown files stay where they are")
	flags.BoolVar(&o.acceptMovedTag, "accept-moved-tag", false, "take the tag although it names another commit than before")
	flags.BoolVar(&o.goMarker, "go-marker", false, "write vendor/modules.txt with the line that keeps a Go module building")
	flags.BoolVar(&o.dryRun, "dry-run", false, "show what would change and write nothing")
	flags.StringVar(&o.prBody, "pr-body", "", "write the summary as Markdown to `FILE`, for a pull request")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *updateOptions) run(ctx context.Context, env *environment) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := checkOutput("--pr-body", o.prBody, o.dir); err != nil {
		return err
	}
	local, err := o.checkLocal(env)
	if err != nil {
		return err
	}
	if !o.force && local.unusableSource() { // no tag can make that right
		tag := cmp.Or(o.tag, "--latest")
		return local.refuseEdits("update "+tag, "", o.command(tag, "force"), nil)
	}
	up, release, err := o.upstream.open(ctx, env, local.source)
	if err != nil {
		return err
	}
	defer release()
	tag, err := o.resolve(ctx, up, local.source)
	if err != nil {
		return err
	}
	if err := o.checkMoved(env, local.source, tag); err != nil {
		return err
	}
	repository, sqlPath := o.upstream.repository(local.source), sqlPathOr(o.sqlPath, local.source)
	// SOURCE.json may say so after somebody edited the tag in it, as Renovate does;
	// --force takes nothing on its word.
	if !o.force && local.report.Clean() && local.pins(repository, tag, sqlPath) {
		if err := o.checkPinned(ctx, up, local.source); err != nil {
			return err
		}
		if err := o.writeMarker(env); err != nil {
			return err
		}
		return o.report(env, unchangedSummary(o.dir, local.source))
	}
	if o.dryRun {
		summary, _, err := o.prepare(ctx, up, local, tag)
		if err != nil {
			return err
		}
		summary.Action = "would-update"
		return o.report(env, summary)
	}
	if o.unwritable != nil {
		return o.unwritable
	}
	// The folder is finished and unlocked before the first word is printed: a
	// reader that has gone away ends this process.
	summary, err := o.write(ctx, env, up, tag)
	if err != nil {
		return err
	}
	return o.report(env, summary)
}

// checkLocal makes every check that needs no network, before the first
// request.
func (o *updateOptions) checkLocal(env *environment) (*localState, error) {
	notices, err := vendorfile.Surroundings(o.dir, o.goMarker)
	if err != nil {
		return nil, err
	}
	for _, n := range notices {
		env.sayf("note: %s", n)
	}
	if !o.dryRun {
		o.unwritable = vendorfile.CheckWritable(o.dir)
	}
	local, err := readLocal(o.dir)
	if o.unwritable != nil && (err != nil || !o.mayBeThere(local)) {
		return nil, o.unwritable
	}
	return local, err
}

// mayBeThere reports whether nothing may have to be written.
func (o *updateOptions) mayBeThere(local *localState) bool {
	return !o.force && local.source != nil && local.report.Clean() && (o.latest || o.tag == local.source.Tag)
}

// change is what an update writes.
type change struct {
	files  map[string][]byte
	source *vendorfile.Source
}

// prepare fetches and proves the tag's files, and says what they change.
func (o *updateOptions) prepare(ctx context.Context, up upstream, local *localState, tag gitobject.Tag) (*updateSummary, *change, error) {
	target, err := lookUpTarget(ctx, up, tag, sqlPathOr(o.sqlPath, local.source))
	if err != nil {
		return nil, nil, err
	}
	files, err := fetchTarget(ctx, up, target, local.byBlob())
	if err != nil {
		return nil, nil, err
	}
	repository := o.upstream.repository(local.source)
	id, err := repositoryID(ctx, up, local.source, repository)
	if err != nil {
		return nil, nil, err
	}
	source := target.source(repository, id, files)
	if !o.force {
		diff := "pgque-vendor diff" + o.upstream.again() + dirFlag(o.dir)
		if err := local.refuseEdits("update "+tag.Name, diff, o.command(tag.Name, "force"), source.Files); err != nil {
			return nil, nil, err
		}
	}
	return summarize(o.dir, local, target, source, files), &change{files, source}, nil
}

// write takes the folder's lock, looks at the folder again, since another run
// may have changed it, and writes the tag's files.
func (o *updateOptions) write(ctx context.Context, env *environment, up upstream, tag gitobject.Tag) (_ *updateSummary, err error) {
	staging, err := vendorfile.Begin(o.dir, o.command(tag.Name, ""))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, staging.Close()) }()
	local, err := readLocal(o.dir)
	if err != nil {
		return nil, err
	}
	if err := o.checkMoved(env, local.source, tag); err != nil {
		return nil, err
	}
	summary, new, err := o.prepare(ctx, up, local, tag)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // a signal while it was compared
		return nil, context.Cause(ctx)
	}
	if err := o.writeMarker(env); err != nil {
		return nil, err
	}
	written, err := staging.Commit(new.files, new.source)
	if err != nil {
		return nil, err
	}
	if len(written) == 0 && !staging.Interrupted() { // with --force
		return unchangedSummary(o.dir, new.source), nil
	}
	summary.Action = "updated"
	return summary, nil
}

// writeMarker comes when nothing can be refused any more: a refused update changes
// nothing.
func (o *updateOptions) writeMarker(env *environment) error {
	if !o.goMarker || o.dryRun {
		return nil
	}
	written, err := vendorfile.WriteGoMarker(o.dir)
	if err == nil && written {
		env.sayf("wrote vendor/modules.txt: go commands now leave vendor/ alone; commit it as well: git add vendor/modules.txt")
	}
	return err
}

// command is this command once more, for a hint; also lifts one more
// protection, if it is not "". It is also what repairs the folder when this run
// dies, so it has all that this run needed.
func (o *updateOptions) command(tag, also string) string {
	command := "pgque-vendor update " + shellQuote(tag)
	if o.sqlPath != "" {
		command += " --sql-path " + shellQuote(o.sqlPath)
	}
	if o.force || also == "force" {
		command += " --force"
	}
	if o.acceptMovedTag || also == "accept-moved-tag" {
		command += " --accept-moved-tag"
	}
	if o.goMarker {
		command += " --go-marker"
	}
	return command + o.upstream.again() + dirFlag(o.dir)
}

func (o *updateOptions) validate() error {
	if err := checkSQLPath(o.sqlPath); err != nil {
		return err
	}
	if o.latest && o.tag != "" {
		return fault.New(fault.Usage, "--latest and the tag %q exclude each other", o.tag)
	}
	if o.tag == "" {
		return nil
	}
	return gitobject.CheckTagName(o.tag)
}

// resolve finds the tag's commit. Without a tag it asks for one, and names the
// newest stable release. From a newer pre-release --latest does not go back.
func (o *updateOptions) resolve(ctx context.Context, up upstream, src *vendorfile.Source) (gitobject.Tag, error) {
	if o.tag != "" {
		return up.ResolveTag(ctx, o.tag)
	}
	tags, err := up.Tags(ctx)
	if err != nil {
		return gitobject.Tag{}, err
	}
	newest, ok := gitobject.NewestStable(tags)
	if !ok {
		return gitobject.Tag{}, fault.New(fault.Upstream, "upstream has no tag that is a stable version").
			Hint("pgque-vendor list%s%s", o.upstream.again(), dirFlag(o.dir))
	}
	if !o.latest {
		return gitobject.Tag{}, fault.New(fault.Usage, "update needs a tag; the newest stable one is %s", newest.Name).
			Hint("%s", o.command(newest.Name, "")).
			Hint("pgque-vendor list%s%s", o.upstream.again(), dirFlag(o.dir))
	}
	if src == nil || !gitobject.Newer(src.Tag, newest.Name) || o.upstream.repository(src) != src.Repository {
		return up.ResolveTag(ctx, newest.Name)
	}
	o.note = fmt.Sprintf("%s is newer than the newest stable release, so nothing is to do; to go back to that: %s", src.Tag, o.command(newest.Name, ""))
	if !slices.ContainsFunc(tags, func(t gitobject.Tag) bool { return t.Name == src.Tag }) { // taken back upstream
		return gitobject.Tag{Name: src.Tag, Commit: gitobject.ID(src.Commit)}, nil
	}
	return up.ResolveTag(ctx, src.Tag)
}

// checkMoved refuses a tag that names another commit than SOURCE.json pins: a
// release that changes under its name is what pinning is for.
func (o *updateOptions) checkMoved(env *environment, src *vendorfile.Source, tag gitobject.Tag) error {
	if src == nil || src.Tag != tag.Name || src.Commit == string(tag.Commit) {
		return nil
	}
	link := compareLink(o.upstream, src, string(tag.Commit))
	if o.acceptMovedTag {
		if !o.saidMoved {
			env.warnf("tag %q moved %s -> %s; accepted", tag.Name, shortID(src.Commit), shortID(tag.Commit))
		}
		o.saidMoved = true
		return nil
	}
	return fault.New(fault.Integrity, "tag %q moved %s -> %s", tag.Name, src.Commit, tag.Commit).
		Hint("see what changed: %s", link).
		Hint("to take it: %s", o.command(tag.Name, "accept-moved-tag"))
}

// checkPinned refuses to call a tag's what is not, because SOURCE.json was changed
// together with the files.
func (o *updateOptions) checkPinned(ctx context.Context, up upstream, src *vendorfile.Source) error {
	findings, err := checkPinned(ctx, up, o.dir, src)
	if err != nil || len(findings) == 0 {
		return err
	}
	return fault.New(fault.Integrity, "%q is not %s: %s", o.dir, src.Tag, findings[0].Message).
		Hint("see what differs: pgque-vendor diff%s%s", o.upstream.again(), dirFlag(o.dir)).
		Hint("to take upstream's: %s", o.command(src.Tag, "force"))
}

func (o *updateOptions) report(env *environment, s *updateSummary) error {
	if o.note != "" {
		s.Notes = append(s.Notes, o.note)
	}
	var unwritten error
	if o.prBody != "" && !o.dryRun {
		if err := os.WriteFile(o.prBody, []byte(s.markdown()), 0o644); err != nil {
			unwritten = fault.New(fault.Usage, "the update is done, but its summary could not be written to %q: %s", o.prBody, cause(err))
		}
	}
	show := s.print
	if o.json {
		show = func(env *environment) error { return writeJSON(env.stdout, s) }
	}
	if err := show(env); err != nil {
		return err
	}
	return unwritten
}
