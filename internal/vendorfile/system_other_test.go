//go:build !linux

package vendorfile

import (
	"os"
	"testing"
)

func makePipe(t testing.TB, _ string) { t.Skip("named pipes are tested on Linux") }

func runAsNobody(t *testing.T, check func() string) string {
	t.Helper()
	if os.Geteuid() <= 0 {
		t.Skip("root, and Windows, may read everything; the test changes users on Linux only")
	}
	return check()
}

func setUmask(int) (old int) { return 0 }
