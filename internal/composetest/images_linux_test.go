package composetest

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is the root of this repository, as an absolute path.
func repository(t testing.TB) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func goEnv(t testing.TB, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatalf("go env %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// makeImages makes the two images that compose.yml names. No registry is at hand:
// PostgreSQL's comes from Debian's packages, ours from the repository's Dockerfile,
// with a Debian in place of Go's image and the machine's own Go mounted into it.
func (e *engine) makeImages() {
	e.t.Helper()
	path := "/usr/local/go/bin:/usr/lib/postgresql/17/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	e.podman("import", "--quiet", "--change", "ENV PATH="+path, "--change", "ENV GOTOOLCHAIN=local", "--change", "ENV GOPROXY=off",
		filepath.Join(e.tools, "rootfs.tar"), "localhost/base")
	testdata := filepath.Join(repository(e.t), "internal", "composetest", "testdata")
	e.podman("build", "--quiet", "--format", "docker", "--file", filepath.Join(testdata, "postgres.Dockerfile"),
		"--tag", "docker.io/library/postgres:17-alpine", testdata)
	download := exec.Command("go", "mod", "download")
	download.Dir = repository(e.t)
	e.output(download) // GOPROXY is off in the build: what it needs is mounted
	e.podman("build", "--quiet", "--format", "docker", "--build-arg", "GO_IMAGE=localhost/base",
		"--volume", goEnv(e.t, "GOROOT")+":/usr/local/go:ro",
		"--volume", goEnv(e.t, "GOMODCACHE")+":/root/go/pkg/mod",
		"--volume", goEnv(e.t, "GOCACHE")+":/root/.cache/go-build",
		"--tag", "docker.io/library/pgque-vendor:dev", repository(e.t))
}

// checkImage: it is small, and its program knows its version, as the build sees
// the repository whole.
func (e *engine) checkImage() {
	e.t.Helper()
	var image struct{ Size int64 }
	if err := e.get("images/pgque-vendor:dev/json", &image); err != nil || image.Size > 30e6 {
		e.t.Errorf("the image has %d bytes, not under 30 MB: %v", image.Size, err)
	}
	version := e.podman("run", "--rm", "--network", "none", "pgque-vendor:dev", "--version")
	e.t.Logf("the image has %.1f MB and is %s", float64(image.Size)/1e6, version)
	status := exec.Command("git", "status", "--porcelain")
	status.Dir = repository(e.t)
	changes, err := status.Output()
	if err != nil {
		return // no checkout, so no version
	}
	if strings.Contains(version, "(devel)") || strings.Contains(version, "+dirty") && len(changes) == 0 {
		e.t.Errorf("the image's program, built from a clean checkout, says %q", version)
	}
}
