// Package composetest tests how pgque-vendor is delivered in containers: that the
// Dockerfile and compose.yml say what they must, that the program can be a
// container's first process, and, where podman is at hand, that the whole stack
// runs. There is nothing in it but tests.
package composetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// program is the path of pgque-vendor, built once for all tests.
func program(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	name := filepath.Join(built, "pgque-vendor")
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	out, err := exec.Command("go", "build", "-o", name, "github.com/stega/pgque-vendor/cmd/pgque-vendor").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build pgque-vendor: %w\n%s", err, out)
	}
	return name, nil
})

// built is the folder of the program.
var built string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "composetest-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	built = dir
	return m.Run()
}
