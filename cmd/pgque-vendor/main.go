// Command pgque-vendor vendors PgQue's SQL into a repository, bootstraps a
// database with it, and runs the roles of an event system on it.
package main

import (
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], processEnvironment()))
}
