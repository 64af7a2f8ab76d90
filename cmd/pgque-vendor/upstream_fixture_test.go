package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fixtureRelease is one tag of the repository that the tests make: the same
// names and kinds of tags as PgQue's, with small files of our own.
type fixtureRelease struct {
	tag       string
	annotated bool
	sql       string
	devel     string
}

func fixtureReleases() []fixtureRelease {
	first := fixtureSQL("1.0.0-dev", "")
	second := fixtureSQL("0.2.0-rc.1", "create function pgque.nack(batch bigint, reason text default 'none') returns int language sql as $$ select 1 $$;\n")
	stable := strings.ReplaceAll(second, "0.2.0-rc.1", "0.2.0")
	return []fixtureRelease{
		{tag: "alpha1", sql: first},
		{tag: "alpha2", sql: first},
		{tag: "alpha3", sql: first + "-- alpha3\n", annotated: true},
		{tag: "v0.1.0", sql: first + "-- first release\n"},
		{tag: "v0.2.0-rc.1", sql: second, annotated: true},
		{tag: "v0.2.0-rc.2", sql: second + "-- rc.2\n", annotated: true},
		{tag: "v0.2.0", sql: stable},
		{tag: "v0.3.0-alpha.1", sql: stable, annotated: true, devel: strings.ReplaceAll(stable, "0.2.0", "0.3.0-alpha.1")},
	}
}

func fixtureSQL(version, more string) string {
	return fmt.Sprintf(`-- a queue for tests → not PgQue
create schema if not exists pgque;
create function pgque.version() returns text language sql as $$ select '%s' $$;
create function pgque.send(queue text, payload jsonb) returns bigint language plpgsql as $body$
begin
  return 1; -- ≤ 1
end
$body$;
%s`, version, more)
}

// makeUpstream makes a bare git repository of the releases in dir. Dates and
// names are fixed, so every object id is the same each time.
func makeUpstream(dir string, releases []fixtureRelease) error {
	var in bytes.Buffer
	data := func(s string) { fmt.Fprintf(&in, "data %d\n%s\n", len(s), s) }
	file := func(path, content string) {
		fmt.Fprintf(&in, "M 100644 inline %s\n", path)
		data(content)
	}
	for i, r := range releases {
		who := fmt.Sprintf("A U Thor <author@example.com> %d +0000", 1750000000+i)
		fmt.Fprintf(&in, "commit refs/heads/main\nmark :%d\ncommitter %s\n", i+1, who)
		data("release " + r.tag)
		file("LICENSE", "a licence for tests\n")
		file("NOTICE", "a notice for tests\n")
		file("docs/readme.md", "other files stay where they are\n")
		file("sql/pgque.sql", r.sql)
		if r.devel != "" {
			file("devel/sql/pgque.sql", r.devel)
		}
		if r.annotated {
			fmt.Fprintf(&in, "tag %s\nfrom :%d\ntagger %s\n", r.tag, i+1, who)
			data(r.tag)
		} else {
			fmt.Fprintf(&in, "reset refs/tags/%s\nfrom :%d\n\n", r.tag, i+1)
		}
	}
	if err := runGit("", nil, "init", "-q", "--bare", "-b", "main", dir); err != nil {
		return err
	}
	return runGit(dir, &in, "fast-import", "--quiet")
}

func runGit(dir string, stdin *bytes.Buffer, args ...string) error {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s in %s: %w\n%s", strings.Join(args, " "), filepath.Base(dir), err, out)
	}
	return nil
}
