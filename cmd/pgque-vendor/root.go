package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
)

// run builds the command tree, runs it once, prints a failure once, and
// returns the exit code.
func run(args []string, env *environment) int {
	ctx, stop := notifyContext(context.Background(), env)
	defer stop()
	root := newRootCommand(env, args...)
	root.SetArgs(args)
	help := &keptError{w: env.stdout}
	root.SetOut(help)
	env.complete(root, args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
	if brokenPipe(err) {
		return 0 // what ran until its reader was gone
	}
	printError(env.stderr, env.withHints(err))
	return exitCode(ctx, err)
}

// keptError keeps the first error of a writer: cobra drops those of its help.
type keptError struct {
	w   io.Writer
	err error
}

func (k *keptError) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	if k.err == nil {
		k.err = err
	}
	return n, err
}

// newRootCommand builds the command tree: what of it the arguments need, or all
// where there are none.
func newRootCommand(env *environment, args ...string) *cobra.Command {
	root := &cobra.Command{
		Use:   "pgque-vendor",
		Short: "Vendor PgQue's SQL, bootstrap a database with it, and run events on it",
		Long: `pgque-vendor vendors the SQL of PgQue, the PostgreSQL event queue, into a
repository; bootstraps a database with it; and runs the publisher, consumer and
ticker of an event system on it.

Every flag has an environment variable, PGQUE_VENDOR_ and the flag's name in
capitals (PGQUE_VENDOR_DIR for --dir), and one for a single command, which wins
over it (PGQUE_VENDOR_PEEK_LIMIT for peek --limit); a flag wins. "-" in a name is
"_", a flag without a value takes true or false, and a repeatable one takes a value
a line. Flags that lift a protection have none and must be typed.

` + exitCodeTable,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(env.stdin)
	root.SetErr(env.stderr)
	root.SetVersionTemplate("pgque-vendor {{.Version}}\n")
	root.SetFlagErrorFunc(refusedFlag)
	global := root.PersistentFlags()
	global.BoolVarP(&env.quiet, "quiet", "q", false, "no talk on stderr; warnings and errors stay")
	global.BoolVarP(&env.verbose, "verbose", "v", false, "log what is done to stderr")
	env.color = "auto"
	global.Var(choice{&env.color, []string{"auto", "always", "never"}}, "color", "colour: auto, always or never")
	root.AddCommand(commands(env, args)...)
	return root
}

// complete adds cobra's own commands, and what all commands have in common.
func (env *environment) complete(root *cobra.Command, args []string) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd(args...)
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.RunE = helpAbout
		case "completion":
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
	env.checkArguments(root)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		describeCompletions(root)
	}
}

// helpAbout is the help command. Cobra's own shows the root's help for a command that
// does not exist.
func helpAbout(cmd *cobra.Command, args []string) error {
	about, rest, err := cmd.Root().Find(args)
	switch {
	case err != nil:
		return fault.New(fault.Usage, "%s", err)
	case len(rest) > 0 && about.HasSubCommands():
		return unknownCommand(about, rest[0])
	}
	about.InitDefaultHelpFlag()
	about.InitDefaultVersionFlag()
	return about.Help()
}

// checkArguments has the arguments of each command checked once its flags have their
// values, some of them from the environment: what is right can depend on them.
func (env *environment) checkArguments(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Name() != "help" { // which works whatever the environment holds
			if err := env.prepare(cmd); err != nil {
				return err
			}
		}
		if check == nil {
			return nil
		}
		return usage(cmd, args, check(cmd, args))
	}
	for _, c := range cmd.Commands() {
		env.checkArguments(c)
	}
}

// prepare takes over what was typed, and what the environment adds to it.
func (env *environment) prepare(cmd *cobra.Command) error {
	env.takeTyped(cmd)
	if err := refuseEmpty(env.typed); err != nil {
		return err
	}
	if err := env.takeVariables(cmd); err != nil {
		return err
	}
	if env.verbose {
		env.log = slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	ctx := cmd.Context()
	context.AfterFunc(ctx, func() {
		if interrupted := (errInterrupted{}); errors.As(context.Cause(ctx), &interrupted) {
			env.log.Info("ending", "cause", interrupted)
		}
	})
	return nil
}

// usage makes cobra's complaint about arguments a usage error of ours.
func usage(cmd *cobra.Command, args []string, err error) error {
	var f *fault.Error
	switch {
	case err == nil, errors.As(err, &f):
		return err
	case cmd.HasSubCommands() && len(args) > 0:
		return unknownCommand(cmd, args[0])
	}
	return fault.New(fault.Usage, "%s", err).Hint("%s --help", cmd.CommandPath())
}

// unknownCommand names the commands that may have been meant.
func unknownCommand(parent *cobra.Command, name string) error {
	f := fault.New(fault.Usage, "unknown command %q for %q", name, parent.CommandPath())
	parent.SuggestionsMinimumDistance = 2
	if meant := parent.SuggestionsFor(name); name != "" && len(meant) <= 3 {
		for _, m := range meant {
			f.Hints = append(f.Hints, parent.CommandPath()+" "+m)
		}
	}
	return f.Hint("%s --help", parent.CommandPath())
}

// version is the module's version from the build, with the revision where the
// build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return v + " " + info.GoVersion
}

// writeJSON writes one document, indented, without HTML escapes, ending in LF.
func writeJSON(w io.Writer, document any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}
