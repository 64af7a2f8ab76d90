package main

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Where there is nothing to do, a tree that can't be written is no trouble; where there
// is, it is known before upstream is asked.
func TestReadOnlyTree(t *testing.T) {
	work := t.TempDir()
	upstream := filepath.Join(t.TempDir(), "upstream.git")
	if err := makeUpstream(upstream, fixtureReleases()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(work, "third_party", "pgque")
	mustRun(t, "update", "v0.2.0", "--dir", dir, "--from", upstream)
	if err := unix.Mount(work, work, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mounting needs root and its rights: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(work, unix.MNT_DETACH) })
	if err := unix.Mount("", work, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("mounting needs root and its rights: %v", err)
	}
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"update v0.2.0 --from " + upstream, 0, "already at v0.2.0"},
		{"update --latest --from " + upstream, 0, "already at v0.2.0"},
		{"restore --from " + upstream, 0, "nothing to restore"},
		{"update v0.1.0 --from /nowhere", 2, "can't be written"},
		{"update v0.2.0 --force --from /nowhere", 2, "can't be written"},
	} {
		stdout, stderr, code := runCommand(t, nil, append(strings.Fields(tt.args), "--dir", dir)...)
		if code != tt.code || !strings.Contains(stdout+stderr, tt.says) {
			t.Errorf("%s: exit %d, want %d and %q\n%s%s", tt.args, code, tt.code, tt.says, stdout, stderr)
		}
	}
}
