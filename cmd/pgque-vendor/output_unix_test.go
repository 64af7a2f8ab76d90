//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// As in "list | head": a reader that has seen enough changes no exit code.
func TestReaderIsGone(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin())
	b.publish(numbered(3)...)
	upstream := filepath.Join(t.TempDir(), "upstream.git")
	if err := makeUpstream(upstream, fixtureReleases()); err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "changed")
	for _, dir := range []string{filepath.Join(b.dir, "vendor/pgque"), changed} {
		if _, stderr, code := runCommand(t, nil, "update", "v0.1.0", "--dir", dir, "--from", upstream); code != 0 {
			t.Fatal(stderr)
		}
	}
	if err := os.WriteFile(filepath.Join(changed, "pgque.sql"), []byte("-- mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		code int
		args string
	}{
		{0, "--help"},
		{0, "--version"},
		{0, "help diff"},
		{0, "completion bash"},
		{0, "list --from " + upstream},
		{1, "list --check --from " + upstream},
		{0, "list --json --from " + upstream},
		{1, "diff v0.2.0 --from " + upstream},
		{1, "diff v0.2.0 --json --from " + upstream},
		{0, "status"},
		{1, "status --dir " + changed},
		{1, "status --format github --dir " + changed},
		{0, "restore --from " + upstream},
		{0, "update v0.1.0 --from " + upstream},
		{0, "peek q"},
		{0, "peek q --json"},
		{0, "queues"},
		{0, "queues --watch --every 100ms"},
		{0, "dlq list"},
		{0, "publish q t 1"},
		{1, "doctor --tick-every 1ms"},
		{6, "bootstrap --check --json"}, // the stand-in is foreign to it
	} {
		t.Run(test.args, func(t *testing.T) {
			b := *b
			b.T = t
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			reader.Close()
			r := b.startAs(func(cmd *exec.Cmd) { cmd.Stdout = writer }, strings.Fields(test.args)...)
			writer.Close()
			r.wantCode(test.code)
			if said := r.stderr.String(); strings.Contains(said, "pipe") || test.code < 2 && strings.Contains(said, "error:") {
				t.Errorf("stderr: %s", said)
			}
		})
	}
}

// What consume starts has the system's own way with broken pipes: "yes" ends by it.
func TestCommandDiesOfBrokenPipe(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)...)
	r := b.consume(`{ sh -c 'kill -PIPE $$; echo survived'; echo $? > code; }`)
	b.untilFile("code")
	if got := b.file("code"); got != "141\n" {
		t.Errorf("exit code %s, want 141; stdout: %s", got, r.stdout)
	}
}

// A standard output that is closed takes nothing, and "consume --print" would ack all.
func TestPrintToClosedStdout(t *testing.T) {
	t.Parallel()
	b := newConsumeBench(t, pgtest.Standin()).tick()
	b.publish(numbered(1)...)
	shell := func(line string) *running {
		return b.startAs(func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", line}
		})
	}
	r := shell(`exec pgque-vendor consume q c --print >&-`)
	r.wantCode(2)
	if !strings.Contains(r.stderr.String(), "error: stdout is closed") {
		t.Errorf("stderr: %s", r.stderr)
	}
	if got := b.db.Value(t, "select coalesce(max(sub_last_tick), 1) from pgque.subscription"); got != "1" {
		t.Errorf("the consumer is at tick %s", got)
	}
	discarding := shell(`exec pgque-vendor consume q c --print > /dev/null`)
	b.untilSQL(settled, "t")
	discarding.signal(os.Interrupt)
	discarding.wantCode(0)
}
