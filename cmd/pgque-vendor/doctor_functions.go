package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/internal/bootstrap"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// Codes of findings that the library has none of: it knows no vendored file.
const (
	codeFunctions = "functions-differ" // the database has not the vendored SQL
	codeRights    = "open-rights"      // more may be done than the vendored SQL allows
	codeVendored  = "vendored-files"   // the vendored SQL cannot be read
	codeRelease   = "old-release"      // PgQue is older than consumers need it
)

// compareFunctions compares what the database runs with the vendored SQL in dir. It
// gives the tag that it compared with, and a finding when they differ; "" and none
// where there is no dir.
func compareFunctions(ctx context.Context, env *environment, conn *pgx.Conn, dir string) (tag string, found *events.Finding, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return "", nil, nil
	}
	quiet := *env
	quiet.stderr = io.Discard // what else is wrong with the folder is status's to say
	file, err := (&bootstrapOptions{dir: dir}).readFile(&quiet)
	if err != nil {
		return "", &events.Finding{Code: codeVendored, Severity: events.Note, Fix: "pgque-vendor status",
			Text: fmt.Sprintf("the functions are not compared with the vendored SQL: %s", err)}, nil
	}
	report, err := bootstrap.Inspect(ctx, conn, file, bootstrap.Options{AllowDrift: true})
	if err != nil {
		return "", nil, err
	}
	plan := report.Plan
	has := "an unknown release"
	if plan.From != nil && plan.From.Tag != "" {
		has = plan.From.Tag
	}
	f := &events.Finding{Code: codeFunctions, Severity: events.Warning}
	switch {
	case plan.Refusal != nil && len(plan.Drift) > 0:
		f.Text, f.Fix = plan.Refusal.Text, strings.Join(plan.Refusal.Hints, "\n")
	case plan.Upgrade:
		is := file.Tag
		if has == is { // two files of one tag
			has, is = fmt.Sprintf("%q of %s", plan.From.Path, has), fmt.Sprintf("%q", file.Path)
		}
		f.Text = fmt.Sprintf("the database has %s and the vendored SQL is %s", has, is)
		f.Fix = "pgque-vendor bootstrap --no-grant"
	case len(plan.Drift) > 0:
		f.Text = fmt.Sprintf("%d functions are not those of the vendored %s: %s", len(plan.Drift), file.Tag, someOf(plan.Drift, 5))
		f.Fix = "pgque-vendor bootstrap --no-grant --reinstall"
	case len(plan.Exposed) > 0:
		f.Code, f.Text = codeRights, strings.Join(plan.Exposed, "; ")+": the vendored SQL does not allow it"
		f.Fix = "pgque-vendor bootstrap --no-grant --reinstall"
	default:
		return file.Tag, nil, nil
	}
	return file.Tag, f, nil
}

// someOf is the head of a list, and how many more there are.
func someOf(list []string, n int) string {
	if len(list) <= n {
		return strings.Join(list, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(list[:n], "; "), len(list)-n)
}

// oldRelease notes a PgQue that consumers of ours refuse. From the vendored SQL it
// would come again.
func oldRelease(ctx context.Context, conn *pgx.Conn, dir string) (*events.Finding, error) {
	var old bool
	err := conn.QueryRow(ctx, `
		with functions as (
			select p.proname, p.proargtypes, p.prosrc from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'pgque')
		select exists (select from functions where proname = 'version' and prosrc like '%1.0.0-dev%')
		    or not exists (select from functions where proname = 'receive' and proargtypes = '25 25 23'::oidvector) -- text, text, integer`,
		pgx.QueryExecModeSimpleProtocol).Scan(&old)
	if err != nil || !old {
		return nil, err
	}
	fix := "pgque-vendor bootstrap --no-grant"
	if src, err := readSourceIfAny(dir); err != nil || src == nil || vendoredBeforeEvents(dir) {
		fix = "pgque-vendor update --latest\n" + fix
	}
	return &events.Finding{Code: codeRelease, Severity: events.Note, Fix: fix,
		Text: "PgQue is older than 0.2.0 here: ticker, publish and queues work, consume and package events' consumers do not"}, nil
}

// vendoredBeforeEvents says that the vendored SQL is of a release before 0.2.0, with
// which consumers do not work.
func vendoredBeforeEvents(dir string) bool {
	src, err := readSourceIfAny(dir)
	return err == nil && src != nil && gitobject.Newer("v0.2.0", src.Tag)
}
