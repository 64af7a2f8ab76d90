package main

import "github.com/spf13/cobra"

// commandMaker makes one command.
type commandMaker struct {
	name string // as the user types it
	make func(*environment) *cobra.Command
}

// commandMakers lists every command.
func commandMakers() []commandMaker {
	return []commandMaker{
		{"status", newStatusCommand},
		{"list", newListCommand},
		{"update", newUpdateCommand},
		{"restore", newRestoreCommand},
		{"diff", newDiffCommand},
		{"bootstrap", newBootstrapCommand},
		{"ticker", newTickerCommand},
		{"publish", newPublishCommand},
		{"consume", newConsumeCommand},
		{"peek", newPeekCommand},
		{"queues", newQueuesCommand},
		{"dlq", newDLQCommand},
		{"doctor", newDoctorCommand},
		{"health", newHealthCommand},
		{"demo", newDemoCommand},
	}
}

// commands makes the command that the first argument names. With anything else
// there it makes all, for help, completion and suggestions: they have so many
// flags that making them takes status as long as hashing its files.
func commands(env *environment, args []string) []*cobra.Command {
	var all []*cobra.Command
	for _, c := range commandMakers() {
		if len(args) > 0 && args[0] == c.name {
			return []*cobra.Command{c.make(env)}
		}
	}
	for _, c := range commandMakers() {
		all = append(all, c.make(env))
	}
	return append(all, docsCommands(env)...)
}
