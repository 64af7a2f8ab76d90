package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/fault"
)

// takeTyped remembers the command that runs and the flags that were typed with it.
// What came from the environment is there for the commands of hints as well.
func (env *environment) takeTyped(cmd *cobra.Command) {
	env.command, env.typed = cmd, map[string]*pflag.Flag{}
	cmd.Flags().Visit(func(f *pflag.Flag) { env.typed[f.Name] = f })
}

// keptBy names the flags that a hint's command keeps of the command that gives the
// hint: they say which folder and database it is about, and, in bootstrap, what is
// wanted there. Flags that lift a protection are never passed on.
func keptBy(command string) []string {
	switch command {
	case "diff", "list", "restore", "status", "update":
		return []string{"dir"}
	case "consume", "dlq", "peek", "publish", "queues", "ticker":
		return []string{"database-url-file"}
	case "doctor":
		return []string{"dir", "database-url-file"}
	case "bootstrap":
		return []string{"dir", "database-url-file", "owner", "grant-admin", "grant-writer", "grant-reader", "no-grant", "queue", "subscribe"}
	}
	return nil
}

// again makes a hint's command work as it is printed, on the same folder and the
// same database as the command that runs. Other hints stay as they are.
func (env *environment) again(hint string) string {
	line, ours := strings.CutPrefix(hint, "pgque-vendor ")
	if !ours || env.command == nil || strings.HasSuffix(line, " --help") {
		return hint
	}
	end := endOfFlags(line)
	call, rest := strings.TrimRight(line[:end], " "), line[end:]
	name, _, _ := strings.Cut(call, " ")
	for _, flag := range keptBy(name) {
		switch {
		case strings.Contains(call+" ", " --"+flag+" "):
		case flag == "dir":
			if dir := env.command.Flags().Lookup(flag); dir != nil {
				call += dirFlag(dir.Value.String())
			}
		case env.typed[flag] != nil:
			call += typedAgain(env.typed[flag])
		}
	}
	if strings.HasPrefix(rest, " #") {
		rest = "  " + rest
	}
	return "pgque-vendor " + call + rest
}

// endOfFlags is where flags can be put into a command line: before its comment and
// before the "--" of another command.
func endOfFlags(line string) int {
	quoted := false
	for i := 0; i < len(line); i++ {
		switch {
		case line[i] == '\'':
			quoted = !quoted
		case quoted:
		case line[i] == '\\':
			i++
		case strings.HasPrefix(line[i:], " #"), strings.HasPrefix(line[i:], " -- "):
			return i
		}
	}
	return len(line)
}

// typedAgain writes a flag with its values.
func typedAgain(f *pflag.Flag) string {
	values := []string{f.Value.String()}
	switch v := f.Value.(type) {
	case pflag.SliceValue:
		values = v.GetSlice()
	case interface{ IsBoolFlag() bool }:
		if f.Value.String() != "true" {
			return ""
		}
		return " --" + f.Name
	}
	var b strings.Builder
	for _, value := range values {
		b.WriteString(" --" + f.Name + " " + shellQuote(value))
	}
	return b.String()
}

// withHints is the error with its hints as they are to be printed.
func (env *environment) withHints(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		f.Hints = slices.Clone(f.Hints)
		env.blameVariables(f)
		if errors.Is(err, events.ErrNotInstalled) && vendoredBeforeEvents(cmp.Or(env.getenv("PGQUE_VENDOR_DIR"), defaultDir)) {
			f.Hints = append([]string{"pgque-vendor update --latest"}, f.Hints...)
		}
		for i, hint := range f.Hints {
			f.Hints[i] = env.again(hint)
		}
	}
	return err
}
