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
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
	var verbose bool
	root := &cobra.Command{
		Use:   "pgque-vendor",
		Short: "Vendor PgQue's SQL, bootstrap a database with it, and run events on it",
		Long: `pgque-vendor vendors the SQL of PgQue, the PostgreSQL event queue, into a
repository; bootstraps a database with it; and runs the publisher, consumer and
ticker of an event system on it.

Every flag has an environment variable, PGQUE_VENDOR_ and the flag's name in
capitals (PGQUE_VENDOR_DIR for --dir), and one for a single command, which wins
over it (PGQUE_VENDOR_PEEK_LIMIT for peek --limit); a flag wins. Flags that lift a
protection have none and must be typed.

` + exitCodeTable,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			env.takeTyped(cmd)
			if err := refuseEmpty(env.typed); err != nil {
				return err
			}
			if err := flagsFromEnvironment(cmd, env.lookup); err != nil {
				return err
			}
			if verbose {
				env.log = slog.New(slog.NewTextHandler(env.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
			}
			context.AfterFunc(cmd.Context(), func() {
				if interrupted := (errInterrupted{}); errors.As(context.Cause(cmd.Context()), &interrupted) {
					env.log.Info("ending", "cause", interrupted)
				}
			})
			switch env.color {
			case "auto", "always", "never":
				return nil
			}
			return fault.New(fault.Usage, "--color is %q: it takes auto, always or never", env.color)
		},
	}
	root.SetIn(env.stdin)
	root.SetErr(env.stderr)
	root.SetVersionTemplate("pgque-vendor {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fault.New(fault.Usage, "%s", err).Hint("%s --help", cmd.CommandPath())
	})
	global := root.PersistentFlags()
	global.BoolVarP(&env.quiet, "quiet", "q", false, "no talk on stderr; warnings and errors stay")
	global.BoolVarP(&verbose, "verbose", "v", false, "log what is done to stderr")
	global.StringVar(&env.color, "color", "auto", "colour: auto, always or never")

	for _, c := range commands(env, args) {
		c.Args = usageArgs(c.Args)
		root.AddCommand(c)
	}
	return root
}

// usageArgs makes a wrong number of arguments a usage error of ours.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		err := check(cmd, args)
		var f *fault.Error
		if err == nil || errors.As(err, &f) {
			return err
		}
		return fault.New(fault.Usage, "%s", err).Hint("%s --help", cmd.CommandPath())
	}
}

// mustBeTyped names the flags that lift a protection: an environment variable
// that was set for another purpose must never lift one.
var mustBeTyped = map[string]bool{
	"force": true, "accept-moved-tag": true, "reinstall": true, "allow-drift": true,
	"yes": true, "go-marker": true, "help": true, "version": true,
}

// rivals are flags that exclude each other. A variable of one says nothing
// where another was typed.
var rivals = [][]string{{"from", "api-url"}, {"json", "format"}, {"json", "stat", "name-only", "api"}}

func rivalTyped(flags *pflag.FlagSet, name string) bool {
	for _, group := range rivals {
		for _, other := range group {
			if slices.Contains(group, name) && other != name && flags.Changed(other) {
				return true
			}
		}
	}
	return false
}

// variable is the environment variable of a flag for one command, or, with the root
// command, for all that have the flag.
func variable(cmd *cobra.Command, flag string) string {
	_, words, _ := strings.Cut(cmd.CommandPath()+" "+flag, " ")
	return "PGQUE_VENDOR_" + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(words))
}

// flagsFromEnvironment gives each flag that was not typed the value of its
// environment variable: the command's own, since commands have flags of one name that
// take different things, else that of all. An empty variable is as good as none; a
// repeatable flag takes one value a line.
func flagsFromEnvironment(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	flags := cmd.Flags()
	var failure error
	overruled := map[string]bool{} // looked up before the first variable is taken
	flags.VisitAll(func(f *pflag.Flag) { overruled[f.Name] = rivalTyped(flags, f.Name) })
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || mustBeTyped[f.Name] || overruled[f.Name] || failure != nil {
			return
		}
		own := variable(cmd, f.Name)
		name := own
		value, _ := lookup(name)
		if value == "" {
			name = variable(cmd.Root(), f.Name)
			value, _ = lookup(name)
		}
		if value == "" {
			return
		}
		values := []string{value}
		if _, repeatable := f.Value.(pflag.SliceValue); repeatable {
			values = strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				refused := fault.New(fault.Usage, "the environment variable %s: %s", name, err)
				if failure = refused; name != own {
					failure = refused.Hint("if it is for another command, set %s for this one", own)
				}
				return
			}
		}
	})
	return failure
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
