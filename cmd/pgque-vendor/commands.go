package main

import "github.com/spf13/cobra"

// commands lists every command in the order of the help.
func commands(env *environment) []*cobra.Command {
	return append([]*cobra.Command{
		newStatusCommand(env),
		newListCommand(env),
		newUpdateCommand(env),
		newRestoreCommand(env),
		newDiffCommand(env),
		newBootstrapCommand(env),
		newTickerCommand(env),
		newPublishCommand(env),
		newConsumeCommand(env),
		newPeekCommand(env),
		newQueuesCommand(env),
		newDLQCommand(env),
		newDoctorCommand(env),
		newHealthCommand(env),
		newDemoCommand(env),
	}, docsCommands(env)...)
}
