package repository_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// trackedFile is a file of this repository, for a module's zip.
type trackedFile string

func (f trackedFile) Path() string                 { return string(f) }
func (f trackedFile) Lstat() (os.FileInfo, error)  { return os.Lstat(filepath.FromSlash(string(f))) }
func (f trackedFile) Open() (io.ReadCloser, error) { return os.Open(filepath.FromSlash(string(f))) }

// moduleProxy makes a module proxy in a folder that has this repository as one
// version: all that git tracks, and what it would with the next commit.
func moduleProxy(t *testing.T, version module.Version) string {
	t.Helper()
	var files []zip.File
	for name := range strings.SplitSeq(run(t, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00") {
		if _, err := os.Lstat(name); name != "" && err == nil { // not one that is about to be removed
			files = append(files, trackedFile(name))
		}
	}
	proxy := t.TempDir()
	versions := filepath.Join(proxy, filepath.FromSlash(version.Path), "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"list":                    version.Version + "\n",
		version.Version + ".mod":  string(gomod),
		version.Version + ".info": `{"Version":"` + version.Version + `"}`,
	} {
		if err := os.WriteFile(filepath.Join(versions, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := os.Create(filepath.Join(versions, version.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := zip.Create(out, version, files); err != nil {
		t.Fatalf("this repository makes no module: %v", err)
	}
	return proxy
}

// "go install …@version" builds from the module's zip alone, which leaves vendor/
// and much else out; from an empty folder, with a module cache of its own.
func TestInstallFromModuleZip(t *testing.T) {
	t.Parallel()
	if _, err := os.Lstat(".git"); err != nil {
		t.Skip("this is no git checkout: ", err)
	}
	version := module.Version{Path: strings.TrimSpace(run(t, "go", "list", "-m")), Version: "v0.0.1-test.of.the.zip"}
	goEnv := func(name string) string { return strings.TrimSpace(run(t, "go", "env", name)) }
	sources := []string{
		fileURL(moduleProxy(t, version)),
		fileURL(filepath.Join(goEnv("GOMODCACHE"), "cache", "download")), // what this build has downloaded
		goEnv("GOPROXY"),
	}
	bin := t.TempDir()
	install := exec.Command("go", "install", "-trimpath", "-modcacherw", version.Path+"/cmd/pgque-vendor@"+version.Version)
	install.Dir = t.TempDir()
	install.Env = append(os.Environ(), "GOPROXY="+strings.Join(sources, ","), "GOMODCACHE="+t.TempDir(), "GOBIN="+bin,
		"GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local",
		"GOSUMDB=off") // nobody knows the sum of this version; those of the others are in go.sum
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("go install %s: %v\n%s", version, err, out)
	}
	name := "pgque-vendor"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	if got, want := run(t, filepath.Join(bin, name), "--version"), "pgque-vendor "+version.Version+" "; !strings.HasPrefix(got, want) {
		t.Errorf("the installed program says it is %q, want %q", got, want)
	}
}

func fileURL(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a drive
	}
	return "file://" + path
}

// A release is for the six targets, and its archives hold what the script makes.
func TestReleaseFiles(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(".goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Builds   []struct{ Goos, Goarch []string }
		Archives []struct{ Files []yaml.Node }
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Builds) != 1 || len(config.Archives) != 1 {
		t.Fatalf(".goreleaser.yaml has %d builds and %d archives, want one of each", len(config.Builds), len(config.Archives))
	}
	b := config.Builds[0]
	if !slices.Equal(b.Goos, []string{"linux", "darwin", "windows"}) || !slices.Equal(b.Goarch, []string{"amd64", "arm64"}) {
		t.Errorf(".goreleaser.yaml builds for %v on %v", b.Goos, b.Goarch)
	}
	if runtime.GOOS == "windows" {
		t.Skip("the script is for the machine that releases")
	}
	made := filepath.Join(t.TempDir(), "release-files")
	run(t, ".ci/release-files", made)
	for _, file := range config.Archives[0].Files {
		var entry struct{ Src string }
		if file.Kind == yaml.ScalarNode {
			entry.Src = file.Value
		} else if err := file.Decode(&entry); err != nil {
			t.Fatal(err)
		}
		pattern := entry.Src
		if rest, ok := strings.CutPrefix(pattern, "release-files/"); ok {
			pattern = filepath.Join(made, rest)
		}
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Errorf("an archive is to hold %s, and there is none (%v)", entry.Src, err)
		}
		for _, name := range found {
			if info, err := os.Stat(name); err != nil || info.Size() == 0 {
				t.Errorf("%s is empty (%v)", name, err)
			}
		}
	}
	for _, name := range []string{"completions/pgque-vendor.bash", "man/pgque-vendor.1", "man/pgque-vendor-bootstrap.1"} {
		if _, err := os.Stat(filepath.Join(made, name)); err != nil {
			t.Error(err)
		}
	}
}
