//go:build unix

package gitrepo_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitrepo"
	"golang.org/x/sys/unix"
)

// A named pipe is not opened: that would wait for a writer, and hear no signal.
func TestNamedPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	_, err := gitrepo.Open(t.Context(), gitrepo.Options{Path: pipe})
	if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "it is no file and no folder") {
		t.Errorf("Open: %v", err)
	}
}
