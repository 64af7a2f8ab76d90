package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/linediff"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// updateSummary says what an update changed. It is the document of "update
// --json"; print and markdown are the same for people.
type updateSummary struct {
	Schema     int             `json:"schema"`
	Action     string          `json:"action"` // updated, would-update or unchanged
	Dir        string          `json:"dir"`
	Repository string          `json:"repository"`
	From       *revision       `json:"from"` // null when nothing was vendored
	To         revision        `json:"to"`
	SQLVersion string          `json:"sql_version"`
	SameSQL    bool            `json:"same_sql"` // the SQL is the one that was there
	Files      []changedFile   `json:"files"`
	Objects    []changedObject `json:"objects"` // of the SQL; empty at the first update
	Legal      []string        `json:"legal_changed"`
	Notes      []string        `json:"notes"`
	Next       []string        `json:"next"`
}

type revision struct {
	Tag    string `json:"tag"`
	Commit string `json:"commit"`
}

type changedFile struct {
	Name       string `json:"name"`
	Change     string `json:"change"` // same, added or changed
	SizeBefore int64  `json:"size_before"`
	Size       int64  `json:"size"`
	Added      int    `json:"lines_added"`
	Removed    int    `json:"lines_removed"`
}

// summarize compares what was on disk with what the target holds.
func summarize(dir string, local *localState, t *target, src *vendorfile.Source, files map[string][]byte) *updateSummary {
	s := &updateSummary{
		Schema:     1,
		Dir:        filepath.ToSlash(dir),
		Repository: src.Repository,
		To:         revision{src.Tag, src.Commit},
		SQLVersion: src.SQLVersion,
		Files:      []changedFile{},
		Objects:    []changedObject{},
		Legal:      []string{},
		Notes:      []string{},
		Next:       []string{},
	}
	if old := local.source; old != nil {
		s.From = &revision{old.Tag, old.Commit}
	}
	for _, name := range vendoredNames {
		f := compareFile(name, local.files, files)
		s.Files = append(s.Files, f)
		if f.Change == "changed" && name != vendorfile.SQLName {
			s.Legal = append(s.Legal, name)
		}
	}
	oldSQL, had := local.files[vendorfile.SQLName]
	s.SameSQL = had && s.Files[len(s.Files)-1].Change == "same"
	if had && !s.SameSQL {
		s.Objects = append(s.Objects, changedObjects(oldSQL, files[vendorfile.SQLName])...)
	}
	s.note(local, t, src)
	s.next(dir)
	return s
}

// unchangedSummary is the summary of an update to what is vendored already.
func unchangedSummary(dir string, src *vendorfile.Source) *updateSummary {
	s := &updateSummary{
		Schema:     1,
		Action:     "unchanged",
		Dir:        filepath.ToSlash(dir),
		Repository: src.Repository,
		From:       &revision{src.Tag, src.Commit},
		To:         revision{src.Tag, src.Commit},
		SQLVersion: src.SQLVersion,
		SameSQL:    true,
		Files:      []changedFile{},
		Objects:    []changedObject{},
		Legal:      []string{},
		Notes:      []string{},
		Next:       []string{},
	}
	for _, name := range vendoredNames {
		size := src.Files[name].Size
		s.Files = append(s.Files, changedFile{Name: name, Change: "same", SizeBefore: size, Size: size})
	}
	return s
}

func compareFile(name string, before, after map[string][]byte) changedFile {
	old, had := before[name]
	stat := linediff.Count(linediff.File{Name: name, Data: old, Missing: !had}, linediff.File{Name: name, Data: after[name]})
	f := changedFile{
		Name:       name,
		Change:     "changed",
		SizeBefore: int64(len(old)),
		Size:       int64(len(after[name])),
		Added:      stat.Added,
		Removed:    stat.Removed,
	}
	switch {
	case stat.Identical:
		f.Change = "same"
	case !had:
		f.Change = "added"
	}
	return f
}

// note collects what a person should know before going on.
func (s *updateSummary) note(local *localState, t *target, src *vendorfile.Source) {
	add := func(format string, args ...any) { s.Notes = append(s.Notes, fmt.Sprintf(format, args...)) }
	old := local.source
	if old != nil && old.Repository != src.Repository {
		add("the repository changed: %s -> %s", old.Repository, src.Repository)
	}
	s.Notes = append(s.Notes, noteRepository(src)...)
	if s.SameSQL && old != nil && (old.Tag != src.Tag || old.Commit != src.Commit) {
		add("%s has the same SQL as the one you had (%s)", src.Tag, old.Tag)
	}
	if old != nil && !s.SameSQL && gitobject.Newer(old.Tag, src.Tag) {
		add("%s is older than %s: a database that has %s can't go back to it", src.Tag, old.Tag, old.Tag)
	}
	if want := strings.TrimPrefix(src.Tag, "v"); want != src.Tag && src.SQLVersion != "" && src.SQLVersion != want {
		add("the SQL of %s reports version %s; that is how upstream made it", src.Tag, src.SQLVersion)
	}
	sql := t.entries[vendorfile.SQLName]
	switch {
	case t.sqlPath == defaultSQLPath && t.devel != "" && t.devel != sql.ID:
		add("%s carries another SQL file, the one in development: --sql-path %s", src.Tag, develSQLPath)
	case t.sqlPath == develSQLPath && gitobject.KindOf(src.Tag) == gitobject.Stable:
		add("%s is a stable release; its released SQL is at --sql-path %s", src.Tag, defaultSQLPath)
	}
}

// next says what to do with the change.
func (s *updateSummary) next(dir string) {
	if s.From != nil { // git shows no difference in files that it does not know yet
		s.Next = append(s.Next, "review it: git diff -- "+shellQuote(dir))
	}
	s.Next = append(s.Next, "commit it: git add "+shellQuote(dir)+" && git commit")
	if !s.SameSQL {
		s.Next = append(s.Next, "a database gets it by: pgque-vendor bootstrap"+dirFlag(dir))
	}
}

// heading is the summary in a line.
func (s *updateSummary) heading() string {
	to := fmt.Sprintf("%s (%s)", s.To.Tag, shortID(s.To.Commit))
	switch {
	case s.Action == "unchanged":
		return "already at " + to
	case s.From == nil:
		return fmt.Sprintf("%s: %s", s.Repository, to)
	}
	return fmt.Sprintf("%s: %s (%s) -> %s", s.Repository, s.From.Tag, shortID(s.From.Commit), to)
}

func (s *updateSummary) print(env *environment) error {
	var b strings.Builder
	fmt.Fprintln(&b, s.heading())
	if s.Action != "unchanged" {
		for _, f := range s.Files {
			fmt.Fprintf(&b, "  %-9s  %s\n", f.Name, f.describe())
		}
		for _, name := range s.Legal {
			fmt.Fprintf(&b, "ATTENTION: %s changed: read it before you ship it\n", name)
		}
		if len(s.Objects) > 0 {
			fmt.Fprintf(&b, "objects of the SQL: %s\n", countChanges(s.Objects))
			for _, c := range s.Objects {
				fmt.Fprintf(&b, "  %s\n", c.line())
			}
		}
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	if s.Action == "updated" {
		for _, n := range s.Next {
			fmt.Fprintf(&b, "next: %s\n", n)
		}
	}
	if s.Action == "would-update" {
		fmt.Fprintln(&b, "nothing was written (--dry-run)")
	}
	_, err := io.WriteString(env.stdout, printable(b.String())+"\n")
	return err
}

func (f changedFile) describe() string {
	switch f.Change {
	case "same":
		return fmt.Sprintf("same, %s bytes", thousands(f.Size))
	case "added":
		return fmt.Sprintf("added, %s bytes", thousands(f.Size))
	}
	return fmt.Sprintf("%s -> %s bytes, +%s -%s lines",
		thousands(f.SizeBefore), thousands(f.Size), thousands(int64(f.Added)), thousands(int64(f.Removed)))
}

func countChanges(list []changedObject) string {
	added, removed := 0, 0
	for _, c := range list {
		switch c.Change {
		case "added":
			added++
		case "removed":
			removed++
		}
	}
	return fmt.Sprintf("%d added, %d removed, %d changed", added, removed, len(list)-added-removed)
}

// markdown is the summary as the body of a pull request. Names come from
// upstream: what could be markup stands in code, where nothing is interpreted.
func (s *updateSummary) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## PgQue %s\n\n%s\n\n", plainOrCode(s.To.Tag), plainOrCode(s.heading()))
	fmt.Fprintf(&b, "| file | before | after | lines |\n|---|---:|---:|---|\n")
	for _, f := range s.Files {
		lines := "same"
		if f.Change != "same" {
			lines = fmt.Sprintf("+%s -%s", thousands(int64(f.Added)), thousands(int64(f.Removed)))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, thousands(f.SizeBefore), thousands(f.Size), lines)
	}
	for _, name := range s.Legal {
		fmt.Fprintf(&b, "\n**Attention: `%s` changed. Read it before you ship it.**\n", name)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "\n- %s\n", plainOrCode(n))
	}
	if len(s.Objects) > 0 {
		fmt.Fprintf(&b, "\n<details><summary>Objects of the SQL: %s</summary>\n\n```diff\n", countChanges(s.Objects))
		for _, c := range s.Objects {
			fmt.Fprintln(&b, strings.Replace(c.line(), "~", "!", 1))
		}
		fmt.Fprintf(&b, "```\n\n</details>\n")
	}
	if !s.SameSQL {
		fmt.Fprintf(&b, "\nAfter the merge a database gets it by `pgque-vendor bootstrap`.\n")
	}
	return b.String()
}

// plainOrCode leaves alone what Markdown can't take for anything but text.
// Else the whole becomes code: GitHub knows no way to escape an @mention.
func plainOrCode(s string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;()/+->'"
	if strings.Trim(s, plain) == "" {
		return s
	}
	return code(printable(s))
}

// code is text as a code span, fenced by more backticks than it has in a row.
func code(s string) string {
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return fence + s + fence
}
