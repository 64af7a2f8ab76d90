package main

import (
	"github.com/spf13/pflag"
	"github.com/stega/pgque-vendor/internal/fault"
)

// refuseEmpty refuses flags that were typed with an empty value, which is a shell
// variable that is not set: --consumer "$C". Taken for "not given" it would choose all.
func refuseEmpty(typed map[string]*pflag.Flag) error {
	for name, f := range typed {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if value == "" {
				return errEmptyFlag(name)
			}
		}
	}
	return nil
}

func errEmptyFlag(name string) error {
	return fault.New(fault.Usage, "--%s is empty: give it a value or leave it out", name)
}

// refuseEmptyArgument is refuseEmpty for an argument that may be left out.
func refuseEmptyArgument(name, value string) error {
	if value == "" {
		return fault.New(fault.Usage, "%s is empty: give it a value or leave it out", name)
	}
	return nil
}

// refuseEmptyVariables is refuseEmpty for the variables of some flags of the command
// that runs. Of other flags an empty variable is as good as none: compose files make
// them.
func (env *environment) refuseEmptyVariables(flags ...string) error {
	for _, flag := range flags {
		if env.command.Flags().Lookup(flag) == nil || env.typed[flag] != nil {
			continue
		}
		for _, name := range []string{variable(env.command, flag), variable(env.command.Root(), flag)} {
			value, set := env.lookup(name)
			if set && value == "" {
				return fault.New(fault.Usage, "the environment variable %s is empty: give it a value or unset it", name)
			}
			if set {
				break // the other has no say
			}
		}
	}
	return nil
}
