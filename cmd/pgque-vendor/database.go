package main

import (
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"github.com/stega/pgque-vendor/internal/fault"
)

// databaseFlags are the connection flags of every command that talks to a
// database. None takes a password: a command line is seen by everybody on the
// machine.
type databaseFlags struct {
	urlFile string
	wait    time.Duration
}

func (f *databaseFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.urlFile, "database-url-file", "", "read the database's URL from this `FILE`")
	cmd.Flags().DurationVar(&f.wait, "wait", 60*time.Second, "wait this long for the server and the database; 0 tries once")
}

// resolve finds the connection settings and says in one line which they are.
func (f *databaseFlags) resolve(env *environment, applicationName string) (*dbconn.Settings, error) {
	if f.wait < 0 {
		return nil, fault.New(fault.Usage, "--wait is %s: it takes 0 or more", f.wait)
	}
	urlFile := f.urlFile
	if urlFile == env.getenv("PGQUE_VENDOR_DATABASE_URL_FILE") {
		urlFile = "" // not typed: it is the variable's, which has its own place in the order
	}
	settings, err := dbconn.Resolve(dbconn.Input{
		URLFile:         urlFile,
		Lookup:          env.lookup,
		ReadFile:        os.ReadFile,
		ApplicationName: applicationName,
	})
	if err != nil {
		return nil, err
	}
	env.sayf("using %s", settings.Target())
	if len(settings.Ignored) > 0 {
		env.log.Debug("connection parameters that do nothing here", "names", settings.Ignored)
	}
	return settings, nil
}

// connect resolves the settings and waits for the database.
func (f *databaseFlags) connect(ctx context.Context, env *environment, applicationName string) (*pgx.Conn, *dbconn.Settings, error) {
	settings, err := f.resolve(env, applicationName)
	if err != nil {
		return nil, nil, err
	}
	conn, err := settings.Wait(ctx, dbconn.WaitOptions{Limit: f.wait, Say: env.sayf})
	return conn, settings, err
}
