//go:build docs

package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"github.com/stega/pgque-vendor/internal/fault"
)

// docsCommands adds the command that writes the manual:
//
//	go run -tags docs ./cmd/pgque-vendor docs --man FOLDER
func docsCommands(env *environment) []*cobra.Command {
	return []*cobra.Command{newDocsCommand(env)}
}

// newDocsCommand writes the manual from the commands themselves, for releases
// and for docs/reference.
func newDocsCommand(env *environment) *cobra.Command {
	var man, markdown string
	cmd := &cobra.Command{
		Use:    "docs",
		Short:  "Write the manual: man pages or Markdown",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if man == "" && markdown == "" {
				return fault.New(fault.Usage, "docs needs --man or --markdown").Hint("pgque-vendor docs --man FOLDER")
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			root.InitDefaultVersionFlag()
			fenceDescriptions(root)
			if err := writeMarkdown(root, markdown); err != nil {
				return err
			}
			return writeMan(root, man)
		},
	}
	cmd.Flags().StringVar(&man, "man", "", "write man pages into `FOLDER`")
	cmd.Flags().StringVar(&markdown, "markdown", "", "write Markdown into `FOLDER`")
	return cmd
}

func writeMan(root *cobra.Command, dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fault.New(fault.Usage, "make the folder %q: %s", dir, err)
	}
	escapeUsages(root)
	noDate := time.Unix(0, 0).UTC() // the same commands give the same pages
	return doc.GenManTree(root, &doc.GenManHeader{Title: "PGQUE-VENDOR", Section: "1", Source: "pgque-vendor", Date: &noDate}, dir)
}

func writeMarkdown(root *cobra.Command, dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fault.New(fault.Usage, "make the folder %q: %s", dir, err)
	}
	return doc.GenMarkdownTree(root, dir)
}

// fenceDescriptions keeps the lines of the descriptions, which are plain text, as
// they are: Markdown, of which man pages are made too, would join them and their
// tables, and take PGQUE_VENDOR_ for emphasis.
func fenceDescriptions(cmd *cobra.Command) {
	if cmd.Long != "" {
		cmd.Long = "```text\n" + strings.TrimSpace(cmd.Long) + "\n```"
	}
	for _, c := range cmd.Commands() {
		fenceDescriptions(c)
	}
}

// escapeUsages keeps the generator of man pages from reading the texts of flags as
// Markdown. The backquotes stay: they mark what a flag takes.
func escapeUsages(cmd *cobra.Command) {
	plain := strings.NewReplacer("_", `\_`, "*", `\*`, "<", `\<`)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = plain.Replace(f.Usage) })
	for _, c := range cmd.Commands() {
		escapeUsages(c)
	}
}
