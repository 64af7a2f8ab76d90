//go:build !docs

package main

import "github.com/spf13/cobra"

// docsCommands is empty here: what writes the manual (docs.go) is built only
// with "-tags docs", since its libraries would cost every start of the program
// and a tenth of its size.
func docsCommands(*environment) []*cobra.Command { return nil }
