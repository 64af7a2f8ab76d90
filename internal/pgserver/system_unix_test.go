//go:build unix

package pgserver

import (
	"os"
	"path/filepath"
	"testing"
)

// An initdb that outlives its parent still makes files while they are removed. An
// rm that fails once, for a folder that is not empty, takes its place.
func TestGuardRemovesAgain(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	rm := "#!/bin/sh\n" + `[ -e "$2/data/late" ] && exec /bin/rm "$@"` + "\n" + `mkdir -p "$2/data"; : > "$2/data/late"; exit 1` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "rm"), []byte(rm), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	guard, err := startGuard(dir)
	if err != nil {
		t.Fatal(err)
	}
	guard.release()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}
