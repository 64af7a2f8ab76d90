package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/bootstrap"
	"github.com/stega/pgque-vendor/internal/dbconn"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/sqltext"
	"github.com/stega/pgque-vendor/internal/standin"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

type bootstrapOptions struct {
	dir         string
	database    databaseFlags
	owner       string
	grantAdmin  []string
	grantWriter []string
	grantReader []string
	noGrant     bool
	queues      []string
	subscribe   []string
	reinstall   bool
	allowDrift  bool
	check       bool
	plan        bool
	timeout     time.Duration
	lockTimeout time.Duration
	json        bool
}

func newBootstrapCommand(env *environment) *cobra.Command {
	var o bootstrapOptions
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Install the vendored PgQue into a database, or bring it up to date",
		Long: `Install the vendored pgque.sql into a database, or upgrade what is there, in one
transaction; grant PgQue's roles to your logins; prove the result. A run that
finds nothing to do only reads, in tens of milliseconds, so run it at every
start.

The connection comes from --database-url-file, PGQUE_VENDOR_DATABASE_URL[_FILE],
DATABASE_URL[_FILE] or PG* (also PGPASSWORD_FILE), in this order. The vendored
files are verified before anything is connected to.

With none of the grant flags, pgque_admin is granted to the login that bootstrap
itself connects with.`,
		Example: `  pgque-vendor bootstrap --grant-admin app
  pgque-vendor bootstrap --grant-admin app --queue tickets:max_retries=3 --subscribe tickets/mailer
  pgque-vendor bootstrap --check`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	registerDir(cmd, &o.dir)
	o.database.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.owner, "owner", "", "the `ROLE` that owns a new install; CURRENT_USER for the login (default "+bootstrap.DefaultOwner+")")
	flags.StringArrayVar(&o.grantAdmin, "grant-admin", nil, "grant pgque_admin to this `ROLE`; repeatable")
	flags.StringArrayVar(&o.grantWriter, "grant-writer", nil, "grant pgque_writer to this `ROLE`; repeatable")
	flags.StringArrayVar(&o.grantReader, "grant-reader", nil, "grant pgque_reader to this `ROLE`; repeatable")
	flags.BoolVar(&o.noGrant, "no-grant", false, "grant nothing")
	flags.StringArrayVar(&o.queues, "queue", nil, "make this queue and set its parameters: `NAME[:param=value,…]`; repeatable")
	flags.StringArrayVar(&o.subscribe, "subscribe", nil, "subscribe a consumer: `QUEUE/CONSUMER`; repeatable")
	flags.BoolVar(&o.reinstall, "reinstall", false, "run the file although the database has this release, replacing changed functions")
	flags.BoolVar(&o.allowDrift, "allow-drift", false, "keep functions that differ from the file, and go on with the rest")
	flags.BoolVar(&o.check, "check", false, "change nothing; exit 1 when there is work to do")
	flags.BoolVar(&o.plan, "plan", false, "change nothing; show what would be done")
	flags.DurationVar(&o.timeout, "timeout", 5*time.Minute, "limit of the whole run, waiting included; 0 for none")
	flags.DurationVar(&o.lockTimeout, "lock-timeout", 3*time.Second, "wait this long for a table's lock at a time, then let others through and try again")
	flags.BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *bootstrapOptions) run(ctx context.Context, env *environment) error {
	start := env.now()
	if err := o.validate(); err != nil {
		return err
	}
	provision, err := newProvisioner(o.queues, o.subscribe)
	if err != nil {
		return err
	}
	file, err := o.readFile(env)
	if err != nil {
		return o.failed(env, file, env.now().Sub(start), err)
	}
	settings, err := o.database.resolve(env, "pgque-vendor bootstrap")
	if err != nil {
		return o.failed(env, file, env.now().Sub(start), err)
	}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	settings.OnWarning(func(text string) { env.warnf("the server says: %s", text) })
	options := o.options(env, provision)
	var report *bootstrap.Report
	if o.check || o.plan {
		report, err = o.inspect(ctx, env, settings, file, options)
	} else {
		report, err = bootstrap.Run(ctx, o.dial(env, settings, file, options), file, options)
	}
	if report == nil {
		return o.failed(env, file, env.now().Sub(start), err)
	}
	return o.finish(env, report, file, provision, env.now().Sub(start), err)
}

func (o *bootstrapOptions) validate() error {
	given := len(o.grantAdmin)+len(o.grantWriter)+len(o.grantReader) > 0
	switch {
	case o.noGrant && given:
		return fault.New(fault.Usage, "--no-grant and a --grant flag exclude each other")
	case o.reinstall && o.allowDrift:
		return fault.New(fault.Usage, "--reinstall and --allow-drift exclude each other: one replaces changed functions, the other keeps them")
	case o.check && o.plan:
		return fault.New(fault.Usage, "--check and --plan exclude each other")
	case o.timeout < 0:
		return fault.New(fault.Usage, "--timeout is %s: it takes 0 (no limit) or more", o.timeout)
	case o.lockTimeout < time.Millisecond:
		return fault.New(fault.Usage, "--lock-timeout is %s: it takes 1ms or more", o.lockTimeout)
	}
	for _, role := range slices.Concat([]string{o.owner}, o.grantAdmin, o.grantWriter, o.grantReader) {
		if !utf8.ValidString(role) {
			return fault.New(fault.Usage, "the name of the role %q is not valid UTF-8", role)
		}
	}
	if reserved(o.owner) || strings.HasPrefix(o.owner, "pg_") { // the latter may have rights to the whole server
		return fault.New(fault.Usage, "--owner %q: no schema can belong to it", o.owner)
	}
	for _, flag := range []struct {
		name, role string
		to         []string
	}{{"grant-admin", bootstrap.Admin, o.grantAdmin}, {"grant-writer", bootstrap.Writer, o.grantWriter}, {"grant-reader", bootstrap.Reader, o.grantReader}} {
		for _, to := range flag.to {
			switch {
			case to == "":
				return fault.New(fault.Usage, "--%s has an empty role name", flag.name)
			case reserved(to):
				return fault.New(fault.Usage, "--%s %q: there can be no such role", flag.name, to)
			case to != flag.role && (to == bootstrap.Writer || to == bootstrap.Reader):
				return fault.New(fault.Usage, "--%s %q: it takes a role of yours, not one of PgQue's", flag.name, to)
			}
		}
	}
	return nil
}

// reserved reports names that PostgreSQL keeps for itself.
func reserved(role string) bool {
	return role == "public" || role == "none"
}

// readFile reads the SQL once, proved against SOURCE.json; that buffer is what
// is installed. What else is wrong with the folder is a warning here.
func (o *bootstrapOptions) readFile(env *environment) (bootstrap.File, error) {
	source, sql, err := vendorfile.ReadVerified(o.dir, vendorfile.SQLName)
	if err != nil {
		return bootstrap.File{}, err
	}
	if line, text, found := sqltext.MetaCommand(sql); found {
		return bootstrap.File{}, fault.New(fault.Policy, "pgque.sql:%d: the psql command %q is not supported: the file is sent to the server as it is", line, text)
	}
	if line, text, found := sqltext.TransactionControl(sql); found {
		return bootstrap.File{}, fault.New(fault.Policy, "pgque.sql:%d: the statement %q is not supported: the file is run in one transaction with the lock before it and the proof after it, which it must not end", line, text)
	}
	if firstLine, _, _ := strings.Cut(string(sql[:min(len(sql), 500)]), "\n"); firstLine == standin.Marker && env.getenv("PGQUE_VENDOR_ALLOW_STANDIN") != "1" {
		return bootstrap.File{}, fault.New(fault.Policy, "%q holds the stand-in for tests and demos, not PgQue", o.dir).
			Hint("pgque-vendor update --latest%s", dirFlag(o.dir))
	}
	o.warnAboutFolder(env)
	pinned := source.Files[vendorfile.SQLName]
	return bootstrap.File{SQL: sql, SHA256: pinned.SHA256, Repository: source.Repository, Tag: source.Tag, Commit: source.Commit, Path: pinned.Path}, nil
}

func (o *bootstrapOptions) warnAboutFolder(env *environment) {
	report, err := vendorfile.Check(o.dir)
	if err != nil {
		env.warnf("%s", err)
		return
	}
	for _, f := range report.Findings {
		if f.Code == string(vendorfile.NotRegular) || f.File == vendorfile.SQLName {
			continue // proved above, through the symlink of a mount
		}
		env.warnf("%s: %s (pgque-vendor status has more)", f.File, f.Message)
	}
}

func (o *bootstrapOptions) options(env *environment, provision *provisioner) bootstrap.Options {
	options := bootstrap.Options{
		Owner:       o.owner,
		Reinstall:   o.reinstall,
		AllowDrift:  o.allowDrift,
		LockTimeout: o.lockTimeout,
		Tool:        version(),
		Say:         env.sayf,
	}
	if provision != nil {
		options.Provisioner = provision
	}
	for role, logins := range map[string][]string{bootstrap.Admin: o.grantAdmin, bootstrap.Writer: o.grantWriter, bootstrap.Reader: o.grantReader} {
		for _, login := range logins {
			options.Grants = append(options.Grants, bootstrap.Grant{Role: role, To: login})
		}
	}
	options.GrantSelf = len(options.Grants) == 0 && !o.noGrant
	return options
}

// dial waits for the database. A standby is taken only when there is nothing to
// do on it.
func (o *bootstrapOptions) dial(env *environment, settings *dbconn.Settings, file bootstrap.File, options bootstrap.Options) bootstrap.Dial {
	accept := func(ctx context.Context, conn *pgx.Conn) (string, error) {
		if conn.PgConn().ParameterStatus("in_hot_standby") != "on" {
			return "", nil
		}
		report, err := bootstrap.Inspect(ctx, conn, file, options)
		if err != nil || report.Plan.Refusal != nil || report.Plan.Empty() {
			return "", err
		}
		return "the server is in recovery (a standby), and there is work to do", nil
	}
	return func(ctx context.Context) (*pgx.Conn, error) {
		return settings.Wait(ctx, dbconn.WaitOptions{Limit: o.database.wait, Say: env.sayf, Accept: accept})
	}
}

func (o *bootstrapOptions) inspect(ctx context.Context, env *environment, settings *dbconn.Settings, file bootstrap.File, options bootstrap.Options) (*bootstrap.Report, error) {
	conn, err := settings.Wait(ctx, dbconn.WaitOptions{Limit: o.database.wait, Say: env.sayf})
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	report, err := bootstrap.Inspect(ctx, conn, file, options)
	if err != nil {
		return nil, err
	}
	if report.Plan.Refusal != nil {
		return report, report.Plan.Refusal
	}
	return report, nil
}

func describeTag(tag, commit string) string {
	if commit == "" {
		return tag
	}
	return fmt.Sprintf("%s (%.12s)", tag, commit)
}
