package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/vendorfile"
	"golang.org/x/sync/errgroup"
)

type listOptions struct {
	dir      string
	upstream upstreamFlags
	sql      bool
	sqlPath  string
	check    bool
	json     bool
}

// listDocument is what "list --json" writes.
type listDocument struct {
	Schema     int         `json:"schema"`
	Repository string      `json:"repository"`
	Tags       []listedTag `json:"tags"`
}

type listedTag struct {
	Tag       string        `json:"tag"`
	Commit    gitobject.ID  `json:"commit"`
	Kind      string        `json:"kind"`
	Vendored  bool          `json:"vendored"`
	Latest    bool          `json:"latest"`
	SQLBlob   *gitobject.ID `json:"sql_blob,omitempty"`
	SameSQLAs *string       `json:"same_sql_as,omitempty"`
}

func newListCommand(env *environment) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show upstream's tags, newest first",
		Long: `Show all of upstream's tags in the order of their versions, newest first; tags
that are no version come last, by name. The vendored tag and the newest stable
release are marked.

With --check, exit 1 if there is a newer stable release than the vendored one, or
if the vendored tag is no version, so that nothing tells.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	registerDir(cmd, &o.dir)
	o.upstream.register(cmd)
	cmd.Flags().BoolVar(&o.sql, "sql", false, "show for each tag whether it carries the SQL file, and which tags share it")
	cmd.Flags().StringVar(&o.sqlPath, "sql-path", "", "`PATH` of the SQL file upstream (default: SOURCE.json's, else "+defaultSQLPath+")")
	cmd.Flags().BoolVar(&o.check, "check", false, "exit 1 if a newer stable release than the vendored one exists")
	cmd.Flags().BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *listOptions) run(ctx context.Context, env *environment) error {
	if err := checkSQLPath(o.sqlPath); err != nil {
		return err
	}
	src, err := readSourceIfAny(o.dir)
	if err != nil {
		return err
	}
	if o.check && src == nil {
		return errNothingVendored(o.dir, o.upstream)
	}
	up, release, err := o.upstream.open(ctx, env, src)
	if err != nil {
		return err
	}
	defer release()

	tags, err := up.Tags(ctx)
	if err != nil {
		return err
	}
	gitobject.SortTags(tags)
	doc := listDocument{Schema: 1, Repository: o.upstream.repository(src), Tags: describeTags(tags, src)}
	if o.sql {
		if err := addSQL(ctx, up, doc.Tags, sqlPathOr(o.sqlPath, src)); err != nil {
			return err
		}
	}
	if o.json {
		err = writeJSON(env.stdout, doc)
	} else {
		err = o.print(env, doc)
	}
	switch {
	case err != nil:
		return err
	case !slices.ContainsFunc(tags, func(t gitobject.Tag) bool { return gitobject.KindOf(t.Name) != gitobject.Other }):
		return o.noVersion(doc.Repository)
	case !o.check:
		return nil
	}
	return o.checkNewer(env, tags, src)
}

// noVersion says that this is not, or not all of, PgQue's repository.
func (o *listOptions) noVersion(repository string) error {
	if o.upstream.from == "" {
		return fault.New(fault.Upstream, "repository %q has no tag that is a version", repository).
			Hint("pgque-vendor list --repo %s%s", defaultRepository, dirFlag(o.dir))
	}
	err := fault.New(fault.Upstream, "%q has no tag that is a version: is it PgQue's repository?", o.upstream.from)
	if folder, statErr := os.Stat(o.upstream.from); statErr == nil && folder.IsDir() { // no bundle
		err.Hint("if it is, fetch its tags: git -C %s fetch --tags", shellQuote(o.upstream.from))
	}
	return err
}

func describeTags(tags []gitobject.Tag, src *vendorfile.Source) []listedTag {
	latest, _ := gitobject.NewestStable(tags)
	listed := make([]listedTag, len(tags))
	for i, t := range tags {
		listed[i] = listedTag{
			Tag:      t.Name,
			Commit:   t.Commit,
			Kind:     string(gitobject.KindOf(t.Name)),
			Vendored: src != nil && src.Tag == t.Name,
			Latest:   t.Name == latest.Name,
		}
	}
	return listed
}

// addSQL asks each tag's tree for the SQL file, and says which older tag has
// the same one.
func addSQL(ctx context.Context, up upstream, tags []listedTag, path string) error {
	blobs := map[gitobject.ID]*gitobject.ID{} // by commit: many tags can share one
	for _, t := range tags {
		blobs[t.Commit] = new(gitobject.ID)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4) // GitHub asks for few requests at a time
	for commit, blob := range blobs {
		group.Go(func() error {
			entries, err := up.Entries(ctx, commit, []string{path})
			for _, e := range entries {
				*blob = e.ID
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range tags {
		tags[i].SQLBlob = blobs[tags[i].Commit]
	}
	nameSameSQL(tags)
	return nil
}

// nameSameSQL names for each tag the oldest one with the same SQL. Tags that
// are no version have no age that their name tells; they count as older than
// every version, in the order of the list.
func nameSameSQL(tags []listedTag) {
	oldest := map[gitobject.ID]string{}
	visit := func(t *listedTag) {
		same := oldest[*t.SQLBlob]
		if same == "" && *t.SQLBlob != "" {
			oldest[*t.SQLBlob] = t.Tag
		}
		t.SameSQLAs = &same
	}
	for i := range tags {
		if tags[i].Kind == string(gitobject.Other) {
			visit(&tags[i])
		}
	}
	for i := len(tags) - 1; i >= 0; i-- {
		if tags[i].Kind != string(gitobject.Other) {
			visit(&tags[i])
		}
	}
}

func (o *listOptions) print(env *environment, doc listDocument) error {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	for _, t := range doc.Tags {
		fmt.Fprintf(w, "%s\t%s\t%s", oneLine(t.Tag), t.Commit.Short(), t.Kind)
		if o.sql {
			switch {
			case *t.SQLBlob == "":
				fmt.Fprint(w, "\tno SQL file")
			case *t.SameSQLAs != "":
				fmt.Fprintf(w, "\tsame SQL as %s", oneLine(*t.SameSQLAs))
			default:
				fmt.Fprintf(w, "\tSQL %s", t.SQLBlob.Short())
			}
		}
		mark := ""
		switch {
		case t.Vendored && t.Latest:
			mark = "vendored, newest stable"
		case t.Vendored:
			mark = "vendored"
		case t.Latest:
			mark = "newest stable"
		}
		fmt.Fprintf(w, "\t%s\n", mark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range bytes.Lines(table.Bytes()) {
		if _, err := fmt.Fprintf(env.stdout, "%s\n", bytes.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// checkNewer ends "list --check": with a finding when a newer stable release
// than the vendored one is there.
func (o *listOptions) checkNewer(env *environment, tags []gitobject.Tag, src *vendorfile.Source) error {
	latest, ok := gitobject.NewestStable(tags)
	if !ok {
		return fault.New(fault.Upstream, "%q has no tag that is a stable version", src.Repository)
	}
	noVersion := gitobject.KindOf(src.Tag) == gitobject.Other
	switch {
	case noVersion && string(latest.Commit) == src.Commit:
		env.sayf("%s is the newest stable release: %s", oneLine(src.Tag), latest.Name)
		return nil
	case noVersion:
		env.sayf("%s", ageless(src.Tag, latest.Name))
	case gitobject.Newer(latest.Name, src.Tag):
		env.sayf("a newer stable release than %s is there: %s", src.Tag, latest.Name)
	case gitobject.Newer(src.Tag, latest.Name):
		env.sayf("%s is newer than the newest stable release, %s", src.Tag, latest.Name)
		return nil
	default:
		env.sayf("%s is the newest stable release", src.Tag)
		return nil
	}
	env.hintf("pgque-vendor update %s%s%s", shellQuote(latest.Name), o.upstream.again(), dirFlag(o.dir))
	return errFinding
}

// ageless is what can be said of a tag that is no version.
func ageless(tag, newest string) string {
	return fmt.Sprintf("%s is no version, so nothing tells its age; the newest stable release is %s", tag, newest)
}
