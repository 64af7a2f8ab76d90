package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// describeCompletions tells the shells what can stand where: the words of a choice,
// files where a flag takes one, and nothing where nothing is known.
func describeCompletions(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	if cmd.Name() == "consume" {
		cmd.ValidArgsFunction = completeCommand
	}
	describe := func(f *pflag.Flag) {
		var takes string
		takes, f.Usage = pflag.UnquoteUsage(f)
		known := cobra.NoFileCompletions
		if c, ok := f.Value.(choice); ok {
			known = cobra.FixedCompletions(c.of, cobra.ShellCompDirectiveNoFileComp)
		}
		if takes != "FILE" && takes != "FOLDER" && f.Name != "from" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, known) // it fails for one that has its own
		}
	}
	cmd.LocalNonPersistentFlags().VisitAll(describe)
	cmd.PersistentFlags().VisitAll(describe)
	for _, c := range cmd.Commands() {
		describeCompletions(c)
	}
}

// completeCommand leaves COMMAND, after QUEUE and CONSUMER, to the shell's files.
func completeCommand(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) < 2 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}
