package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stega/pgque-vendor/internal/fault"
)

// mustBeTyped names the flags that lift a protection: an environment variable
// that was set for another purpose must never lift one.
var mustBeTyped = map[string]bool{
	"force": true, "accept-moved-tag": true, "reinstall": true, "allow-drift": true,
	"yes": true, "go-marker": true, "help": true, "version": true,
}

// rivals are flags that exclude each other. A variable of one says nothing
// where another was typed.
var rivals = [][]string{
	{"from", "api-url"},
	{"json", "format"}, {"json", "stat", "name-only", "api"},
	{"print", "stream"}, {"print", "workers"},
	{"ndjson", "header"},
	{"check", "plan"},
	{"no-grant", "grant-admin"}, {"no-grant", "grant-writer"}, {"no-grant", "grant-reader"},
}

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

// takeVariables gives each flag that was not typed the value of its environment
// variable: the command's own, since commands have flags of one name that take
// different things, else that of all. An empty variable is as good as none; a
// repeatable flag takes one value a line.
func (env *environment) takeVariables(cmd *cobra.Command) error {
	flags := cmd.Flags()
	var failure error
	env.variables = map[string]string{}
	overruled := map[string]bool{} // looked up before the first variable is taken
	flags.VisitAll(func(f *pflag.Flag) { overruled[f.Name] = rivalTyped(flags, f.Name) })
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || mustBeTyped[f.Name] || overruled[f.Name] || failure != nil {
			return
		}
		own := variable(cmd, f.Name)
		name := own
		value, _ := env.lookup(name)
		if value == "" {
			name = variable(cmd.Root(), f.Name)
			value, _ = env.lookup(name)
		}
		if value == "" {
			return
		}
		env.variables[f.Name] = name
		values := []string{value}
		if _, repeatable := f.Value.(pflag.SliceValue); repeatable {
			values = strings.FieldsFunc(value, func(r rune) bool { return r == '\n' || r == '\r' })
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				refused := fault.New(fault.Usage, "the environment variable %s is %q: %s", name, v, refusal(f, err))
				if failure = refused; name != own {
					failure = refused.Hint("if it is for another command, set %s for this one", own)
				}
				return
			}
		}
	})
	return failure
}

// refusal says why a flag does not take a value, in words for who typed it.
func refusal(f *pflag.Flag, err error) string {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		err = invalid.Unwrap()
	}
	switch f.Value.Type() {
	case "bool":
		return "it takes true or false"
	case "duration":
		return "it takes a time with its unit, such as 500ms, 30s or 5m"
	case "int", "int64":
		if errors.Is(err, strconv.ErrRange) {
			return "it is too large"
		}
		return "it takes a whole number"
	}
	return err.Error()
}

// refusedFlag makes cobra's complaint about a flag a usage error of ours.
func refusedFlag(cmd *cobra.Command, err error) error {
	text := err.Error()
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0]) // the flag is of a command that was misspelt
	}
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		f := invalid.GetFlag()
		if invalid.GetValue() == "" {
			return errEmptyFlag(f.Name)
		}
		text = fmt.Sprintf("--%s is %q: %s", f.Name, invalid.GetValue(), refusal(f, err))
	}
	return fault.New(fault.Usage, "%s", text).Hint("%s --help", cmd.CommandPath())
}

// blameVariables adds to a usage error which of the flags that it names were never
// typed, and where they come from.
func (env *environment) blameVariables(f *fault.Error) {
	if f.Class != fault.Usage {
		return
	}
	for _, flag := range slices.Sorted(maps.Keys(env.variables)) {
		hint := "--" + flag + " comes from the environment variable " + env.variables[flag]
		if namesFlag(f.Text, flag) && !slices.Contains(f.Hints, hint) {
			f.Hints = append(f.Hints, hint)
		}
	}
}

func namesFlag(text, flag string) bool {
	for {
		_, after, found := strings.Cut(text, "--"+flag)
		if !found {
			return false
		}
		if after == "" || !strings.ContainsAny(after[:1], "-abcdefghijklmnopqrstuvwxyz") {
			return true
		}
		text = after
	}
}

// choice is a flag that takes one of a few words.
type choice struct {
	value *string
	of    []string
}

func (c choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

func (c choice) Type() string { return "string" }

func (c choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		last := len(c.of) - 1
		return errors.New("it takes " + strings.Join(c.of[:last], ", ") + " or " + c.of[last])
	}
	*c.value = s
	return nil
}
