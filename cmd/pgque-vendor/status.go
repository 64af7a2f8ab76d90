package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

type statusOptions struct {
	dir      string
	upstream upstreamFlags
	ask      bool
	format   string
	sbom     string
	json     bool
}

// statusDocument is what "status --json" writes.
type statusDocument struct {
	Schema     int                     `json:"schema"`
	Dir        string                  `json:"dir"`
	Clean      bool                    `json:"clean"`
	Repository string                  `json:"repository"`
	Tag        string                  `json:"tag"`
	Commit     string                  `json:"commit"`
	SQLVersion string                  `json:"sql_version"`
	Files      []vendorfile.FileResult `json:"files"`
	Findings   []vendorfile.Finding    `json:"findings"`
	Notes      []string                `json:"notes"`
	Upstream   upstreamStatus          `json:"upstream"`
}

// upstreamStatus is what --upstream learned; without it, Checked is false and
// the rest is empty.
type upstreamStatus struct {
	Checked   bool         `json:"checked"`
	TagCommit gitobject.ID `json:"tag_commit"`
	Moved     bool         `json:"moved"`
	Newer     string       `json:"newer"`
}

func newStatusCommand(env *environment) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say what is vendored and check every byte of it, offline",
		Long: `Say what is vendored and check every byte of it against SOURCE.json. Needs no
network, no git, no token and no write access; reads everything each time.
Exit 1 if anything is not as it must be.

With --upstream it also asks whether the tag still names the pinned commit
(moved: exit 1), whether that commit holds these very files (a SOURCE.json that
was changed together with them shows only there: exit 1), and whether a newer
stable tag is there (a note).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	registerDir(cmd, &o.dir)
	o.upstream.register(cmd)
	cmd.Flags().BoolVar(&o.ask, "upstream", false, "also ask upstream about the tag")
	cmd.Flags().Var(choice{&o.format, []string{"text", "github"}}, "format", "text or github; github prints annotations (default: github when $GITHUB_ACTIONS is true)")
	cmd.Flags().Var(choice{&o.sbom, []string{"cyclonedx", "spdx"}}, "sbom", "write a bill of materials of what SOURCE.json pins instead: cyclonedx or spdx")
	cmd.Flags().BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *statusOptions) run(ctx context.Context, env *environment) error {
	if o.sbom != "" {
		return o.writeSBOM(env)
	}
	format, err := o.chooseFormat(env)
	if err != nil {
		return err
	}
	report, err := vendorfile.Check(o.dir)
	if err != nil {
		return err
	}
	doc := describeStatus(report)
	var unasked error
	if o.ask && report.Source != nil {
		unasked = o.askUpstream(ctx, env, report.Source, doc)
		if unasked != nil && doc.Clean {
			return unasked
		}
	}
	switch format {
	case "json":
		err = writeJSON(env.stdout, doc)
	case "github":
		err = printAnnotations(env, doc)
	default:
		err = printStatus(env.stdout, doc)
	}
	switch {
	case err != nil:
		return err
	case unasked != nil:
		return unasked // after what was found here
	case !doc.Clean:
		return errFinding
	}
	return nil
}

// writeSBOM describes what SOURCE.json pins. The files are not looked at: that
// is what status without --sbom is for.
func (o *statusOptions) writeSBOM(env *environment) error {
	src, err := readSourceIfAny(o.dir)
	if err != nil {
		return err
	}
	if src == nil {
		return errNothingVendored(o.dir, o.upstream)
	}
	doc, err := billOfMaterials(o.sbom, src, env.now())
	if err != nil {
		return err
	}
	return writeJSON(env.stdout, doc)
}

func (o *statusOptions) chooseFormat(env *environment) (string, error) {
	switch {
	case o.json && o.format != "":
		return "", fault.New(fault.Usage, "--json and --format exclude each other")
	case o.json:
		return "json", nil
	case o.format != "":
		return o.format, nil
	case env.getenv("GITHUB_ACTIONS") == "true":
		return "github", nil
	}
	return "text", nil
}

func describeStatus(r *vendorfile.Report) *statusDocument {
	doc := &statusDocument{
		Schema:   1,
		Dir:      filepath.ToSlash(filepath.Clean(r.Dir)),
		Clean:    r.Clean(),
		Files:    append([]vendorfile.FileResult{}, r.Files...),
		Findings: append([]vendorfile.Finding{}, r.Findings...),
		Notes:    append([]string{}, r.Notes...),
	}
	if src := r.Source; src != nil {
		doc.Repository, doc.Tag, doc.Commit, doc.SQLVersion = src.Repository, src.Tag, src.Commit, src.SQLVersion
		doc.Notes = append(doc.Notes, noteRepository(src)...)
	}
	return doc
}

// askUpstream compares the pinned commit with the one that the tag names now.
// Only the commit counts: a tag object that was made again is no move.
func (o *statusOptions) askUpstream(ctx context.Context, env *environment, src *vendorfile.Source, doc *statusDocument) error {
	up, release, err := o.upstream.open(ctx, env, src)
	if err != nil {
		return err
	}
	defer release()
	tag, err := up.ResolveTag(ctx, src.Tag)
	if err != nil {
		return err
	}
	tags, err := up.Tags(ctx)
	if err != nil {
		return err
	}
	doc.Upstream = upstreamStatus{Checked: true, TagCommit: tag.Commit, Moved: string(tag.Commit) != src.Commit}
	if doc.Upstream.Moved {
		doc.Clean = false
		doc.Findings = append(doc.Findings, vendorfile.Finding{
			Code:    "moved",
			File:    vendorfile.SourceName,
			Message: fmt.Sprintf("upstream's tag %s moved from %s to %s", src.Tag, src.Commit, tag.Commit),
			Hint:    "see what changed: " + compareLink(o.upstream, src, string(tag.Commit)),
		})
	}
	if err := o.comparePinned(ctx, up, src, doc); err != nil {
		return err
	}
	o.noteNewest(tags, src, doc)
	return nil
}

func (o *statusOptions) noteNewest(tags []gitobject.Tag, src *vendorfile.Source, doc *statusDocument) {
	newest, ok := gitobject.NewestStable(tags)
	note := ""
	switch {
	case !ok:
		return
	case gitobject.KindOf(src.Tag) == gitobject.Other && string(newest.Commit) != src.Commit:
		note = ageless(src.Tag, newest.Name)
	case gitobject.Newer(newest.Name, src.Tag):
		doc.Upstream.Newer = newest.Name
		note = "a newer stable release is there: " + newest.Name
	default:
		return
	}
	doc.Notes = append(doc.Notes, fmt.Sprintf("%s; to take it: pgque-vendor update %s%s%s",
		note, shellQuote(newest.Name), o.upstream.again(), dirFlag(o.dir)))
}

// comparePinned finds files that the pinned commit does not hold. When the tag moved,
// upstream may have that commit no more.
func (o *statusOptions) comparePinned(ctx context.Context, up upstream, src *vendorfile.Source, doc *statusDocument) error {
	findings, err := checkPinned(ctx, up, o.dir, src)
	if doc.Upstream.Moved && fault.Is(err, fault.Upstream) && ctx.Err() == nil {
		doc.Notes = append(doc.Notes, "the files could not be compared with the pinned commit: "+err.Error())
		return nil
	}
	for _, f := range findings {
		f.Hint = fmt.Sprintf("see what differs: pgque-vendor diff%[1]s%[2]s; to take upstream's: pgque-vendor update %[3]s --force%[1]s%[2]s",
			o.upstream.again(), dirFlag(o.dir), shellQuote(src.Tag))
		doc.Findings = append(doc.Findings, f)
		doc.Clean = false
	}
	return err
}

func printStatus(w io.Writer, doc *statusDocument) error {
	var b strings.Builder
	for _, f := range doc.Files {
		fmt.Fprintf(&b, "%-12s  %s\n", f.State, f.Name)
	}
	for _, f := range doc.Findings {
		name := f.File
		if name == "" {
			name = doc.Dir
		}
		fmt.Fprintf(&b, "%s: %s: %s\n", f.Code, oneLine(name), f.Message)
		if f.Hint != "" {
			fmt.Fprintf(&b, "    %s\n", oneLine(f.Hint))
		}
	}
	for _, n := range doc.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	fmt.Fprintln(&b, doc.verdict())
	_, err := io.WriteString(w, printable(b.String())+"\n")
	return err
}

// verdict is the last line: what was checked, and how it ended.
func (doc *statusDocument) verdict() string {
	asked := "upstream not contacted"
	if doc.Upstream.Checked {
		asked = "upstream asked"
	}
	if !doc.Clean {
		return fmt.Sprintf("%s is not clean: %s, %s checked; %s",
			doc.Dir, count(len(doc.Findings), "finding"), count(len(doc.Files), "file"), asked)
	}
	var bytes int64
	for _, f := range doc.Files {
		bytes += f.Size
	}
	return fmt.Sprintf("%s, %s bytes match %s (%s); %s",
		count(len(doc.Files), "file"), thousands(bytes), doc.Tag, shortID(doc.Commit), asked)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printAnnotations writes GitHub's workflow commands, and the verdict as a
// line of the log.
func printAnnotations(env *environment, doc *statusDocument) error {
	var b strings.Builder
	for _, f := range doc.Findings {
		message := f.Message
		if f.Hint != "" {
			message += "\n" + f.Hint
		}
		writeAnnotation(&b, "error", annotationPath(env, doc.Dir, f.File), f.Code, message)
	}
	for _, n := range doc.Notes {
		writeAnnotation(&b, "notice", annotationPath(env, doc.Dir, vendorfile.SourceName), "note", n)
	}
	fmt.Fprintln(&b, printable(doc.verdict()))
	_, err := io.WriteString(env.stdout, b.String())
	return err
}

func writeAnnotation(b *strings.Builder, level, file, title, message string) {
	data := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	fmt.Fprintf(b, "::%s file=%s,title=%s::%s\n", level, property.Replace(printable(file)), property.Replace("pgque-vendor: "+title), data.Replace(printable(message)))
}

// annotationPath names a file as GitHub does: from the root of the checkout,
// which need not be the working directory.
func annotationPath(env *environment, dir, name string) string {
	path := filepath.Join(dir, name)
	if workspace := env.getenv("GITHUB_WORKSPACE"); workspace != "" {
		if abs, err := filepath.Abs(path); err == nil {
			if rel, err := filepath.Rel(workspace, abs); err == nil && filepath.IsLocal(rel) {
				path = rel
			}
		}
	}
	return filepath.ToSlash(path)
}
