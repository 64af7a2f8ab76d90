package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/standin"
)

// demoProbe is how long GitHub has to answer before the stand-in takes its place.
const demoProbe = "4s"

// chooseUpstream decides where PgQue comes from: --from, else GitHub, else, where
// that can't be reached, the stand-in.
func (d *demo) chooseUpstream(ctx context.Context, from string) error {
	if from != "" {
		d.fromFlag = []string{"--from", from}
		d.sayf("PgQue comes from %s.", from)
		return nil
	}
	// What list can do now, the steps can do as well: proxies, certificates and
	// rate limits are all in this one question.
	reason, err := d.ask(ctx, "list", "--timeout", demoProbe)
	if err != nil {
		return err
	}
	if reason == "" {
		d.sayf("PgQue comes from GitHub.")
		return nil
	}
	d.sayf("GitHub can't be reached (%s).\nSo the SQL is a stand-in that is built into pgque-vendor. It behaves like PgQue,\nbut is not PgQue, and nothing else installs it.", reason)
	if err := needGit("the stand-in"); err != nil {
		return err
	}
	repository := filepath.Join(d.folder, "stand-in.git")
	if err := makeStandinRepository(ctx, repository); err != nil {
		return err
	}
	d.env = append(d.env, "PGQUE_VENDOR_ALLOW_STANDIN=1")
	d.fromFlag = []string{"--from", "stand-in.git"}
	return nil
}

// makeStandinRepository makes a bare git repository that has the stand-in's two
// releases as tags.
func makeStandinRepository(ctx context.Context, dir string) error {
	var stream bytes.Buffer
	for n, tag := range []string{standin.Older, standin.Newer} {
		sql, err := standin.Release(tag)
		if err != nil {
			return err
		}
		const who = "pgque-vendor demo <demo@example.org>"
		fmt.Fprintf(&stream, "commit refs/heads/main\ncommitter %s %d +0000\n", who, 1750000000+n)
		fastImportData(&stream, "The stand-in, "+tag)
		for _, file := range []struct{ path, content string }{
			{"LICENSE", "The stand-in is a part of pgque-vendor, and under its licence: Apache-2.0.\n"},
			{"NOTICE", "This is pgque-vendor's stand-in, for tests and demos. It is not PgQue.\n"},
			{defaultSQLPath, string(sql)},
		} {
			fmt.Fprintf(&stream, "M 100644 inline %s\n", file.path)
			fastImportData(&stream, file.content)
		}
		fmt.Fprintf(&stream, "reset refs/tags/%s\nfrom refs/heads/main\n\n", tag)
	}
	if err := demoGit(ctx, nil, "init", "--quiet", "--bare", dir); err != nil {
		return err
	}
	return demoGit(ctx, &stream, "--git-dir", dir, "fast-import", "--quiet")
}

func fastImportData(w *bytes.Buffer, text string) { fmt.Fprintf(w, "data %d\n%s\n", len(text), text) }

// demoGit runs git without anybody's configuration.
func demoGit(ctx context.Context, stdin *bytes.Buffer, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fault.New(fault.Usage, "make the stand-in's repository: git %s: %s: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
