package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/bootstrap"
)

// The verdict is one line that says what was done, from what to what.
func TestBootstrapVerdict(t *testing.T) {
	t.Parallel()
	file := bootstrap.File{SQL: []byte("x"), Tag: "v0.3.0", Commit: strings.Repeat("c0ffee01", 5), Path: "devel/sql/pgque.sql"}
	same := &bootstrap.Version{Tag: file.Tag, Commit: file.Commit, Path: file.Path}
	moves := slices.Repeat([]string{`ALTER TABLE pgque."t" OWNER TO "pgque_owner";`}, 89)
	other := &bootstrap.Version{Tag: file.Tag, Commit: file.Commit, Path: "sql/pgque.sql"}
	for _, test := range []struct {
		action bootstrap.Action
		plan   bootstrap.Plan
		want   string
	}{
		{bootstrap.Upgraded, bootstrap.Plan{From: &bootstrap.Version{Tag: "v0.2.0", Path: "sql/pgque.sql"}, Install: true},
			`upgraded PgQue in database "db" from v0.2.0 to v0.3.0 (c0ffee01c0ff) (0s)`},
		{bootstrap.Installed, bootstrap.Plan{Install: true}, `installed PgQue v0.3.0 (c0ffee01c0ff) in database "db", owned by "owner" (0s)`},
		{bootstrap.Installed, bootstrap.Plan{From: same, Install: true}, `reinstalled PgQue v0.3.0 (c0ffee01c0ff) in database "db", owned by "owner" (0s)`},
		{bootstrap.WouldInstall, bootstrap.Plan{From: same, Install: true}, `would reinstall PgQue v0.3.0 (c0ffee01c0ff) in database "db"`},
		{bootstrap.Unchanged, bootstrap.Plan{From: same, After: []string{"GRANT a;", "GRANT b;"}}, `database "db" has PgQue v0.3.0 (c0ffee01c0ff); completed: GRANT a; GRANT b (0s)`},
		{bootstrap.Unchanged, bootstrap.Plan{From: same, Moves: moves}, `database "db" has PgQue v0.3.0 (c0ffee01c0ff); completed in 89 steps (0s)`},
		{bootstrap.Upgraded, bootstrap.Plan{From: other, Install: true},
			`upgraded PgQue in database "db" from "sql/pgque.sql" of v0.3.0 (c0ffee01c0ff) to "devel/sql/pgque.sql" of v0.3.0 (c0ffee01c0ff) (0s)`},
	} {
		test.plan.Owner = "owner"
		r := &bootstrap.Report{Action: test.action, Database: "db", Plan: &test.plan}
		if got := new(bootstrapOptions).verdict(r, file, 0*time.Second); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
}
