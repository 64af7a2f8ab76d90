package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgserver"
)

// What the demo's events are sent to, and who takes them.
const (
	demoDatabase = "stega-events"
	demoLogin    = "app"
	demoQueue    = "tickets"
	demoConsumer = "notifications"
)

type demoOptions struct {
	from string
	keep bool
}

func newDemoCommand(env *environment) *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show everything in half a minute, on a database of its own",
		Long: `Start a throwaway PostgreSQL and go through all of it: list, update, status,
bootstrap, ticker, publish, consume with one failure that is retried, queues and
doctor. Each step is shown as the command that you would type, with its output.
Nothing has to be set up, and nothing is left behind.

PostgreSQL is the one on this machine, else one that is downloaded, once. PgQue
comes from GitHub, or from --from. When GitHub can't be reached, a stand-in that is
built in takes its place; the demo says so. For --from and the stand-in git is
needed. It works as root, too.

Exit 0 only if every step did what it should. --keep goes on at the end with the
status page, until SIGINT or SIGTERM.`,
		Example: `  pgque-vendor demo
  pgque-vendor demo --keep
  pgque-vendor demo --from ../PgQue`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "take PgQue from a local git repository or .bundle file at `PATH`")
	flags.BoolVar(&o.keep, "keep", false, "at the end go on running, with the status page, until a signal")
	return cmd
}

func (o *demoOptions) run(ctx context.Context, env *environment) error {
	// On Linux a child dies with the thread that started it (see ownGroup), so all
	// are started from this one, which lives as long as we do.
	runtime.LockOSThread()
	began := env.now()
	from, err := o.validate()
	if err != nil {
		return err
	}
	programs, err := demoPrograms(ctx, env)
	if err != nil {
		return err
	}
	cluster, err := startDemoServer(ctx, programs)
	if err != nil {
		return err
	}
	defer cluster.Close()
	d, err := newDemo(env, cluster)
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if err := d.chooseUpstream(ctx, from); err != nil {
		return err
	}
	if err := d.vendor(ctx); err != nil {
		return err
	}
	if err := d.runEvents(ctx, o.keep); err != nil {
		return err
	}
	if !o.keep {
		if err := d.endTicker(); err != nil {
			return err
		}
	}
	d.sayf("\nAll steps did what they should, in %.0f seconds.", env.now().Sub(began).Seconds())
	if o.keep {
		return d.goOn(ctx)
	}
	return nil
}

// validate returns --from as a path that holds in the demo's own folder.
func (o *demoOptions) validate() (string, error) {
	if o.from == "" {
		return "", nil
	}
	if _, err := os.Stat(o.from); err != nil {
		return "", fault.New(fault.Usage, "--from is %q: %s", o.from, err)
	}
	if err := needGit("--from"); err != nil {
		return "", err
	}
	from, err := filepath.Abs(o.from)
	if err != nil {
		return "", fault.New(fault.Usage, "--from is %q: %s", o.from, err)
	}
	return from, nil
}

// needGit fails where the git program is not to be found.
func needGit(what string) error {
	if _, err := exec.LookPath("git"); err != nil {
		return fault.New(fault.Usage, "%s needs the git program: %s", what, err).
			Hint("install git: https://git-scm.com/downloads")
	}
	return nil
}

// vendor shows how the SQL comes into a repository, and how it is checked there.
func (d *demo) vendor(ctx context.Context) error {
	d.heading("Which releases are there?")
	if err := d.step(ctx, append([]string{"list"}, d.fromFlag...)...); err != nil {
		return err
	}
	d.heading("Vendor the newest one")
	if err := d.step(ctx, append([]string{"update", "--latest"}, d.fromFlag...)...); err != nil {
		return err
	}
	d.heading("Check every byte, as CI does; no network")
	return d.step(ctx, "status")
}

// runEvents shows the roles of an event system on the database.
func (d *demo) runEvents(ctx context.Context, keep bool) error {
	d.heading("Install it into the database")
	d.export("PGHOST="+d.cluster.Host, "PGPORT="+d.port(), "PGDATABASE="+demoDatabase, "PGPASSFILE="+d.passFile, "PGUSER="+pgserver.Superuser)
	err := d.step(ctx, "bootstrap", "--grant-admin", demoLogin, "--queue", demoQueue, "--subscribe", demoQueue+"/"+demoConsumer)
	if err != nil {
		return err
	}
	d.heading("Start the ticker, without which nothing is delivered")
	d.export("PGUSER=" + demoLogin)
	if err := d.startTicker(ctx, keep); err != nil {
		return err
	}
	d.heading("Send three events")
	for _, e := range demoEvents {
		if err := d.step(ctx, "publish", demoQueue, e.kind, e.payload); err != nil {
			return err
		}
	}
	d.heading("Handle them; one fails at first, and is retried")
	if err := d.consumeAll(ctx); err != nil {
		return err
	}
	d.heading("How does it stand?")
	if err := d.step(ctx, "queues"); err != nil {
		return err
	}
	d.heading("Is anything wrong?")
	return d.step(ctx, "doctor")
}

// demoLimit is how long one step may take: far more than it needs.
const demoLimit = 90 * time.Second
