package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/ghtest"
)

// These benchmarks run whole processes, ours and what a user would use instead
// in turn, and report the ratio of their median times. With PGQUE_UPSTREAM_GIT
// they use PgQue's real files; without it the files are too small to say much.
//
//	go test ./cmd/pgque-vendor -run '^$' -bench Process -benchtime 30x

// binary builds the program as a release does and installs it as cp and tar do.
// The linker's own file would start slower until it is copied or the machine
// restarts: written through a map of memory, it is in the kernel's cache in
// single pages, which take longer to map.
func binary(b *testing.B) string {
	b.Helper()
	linked, installed := filepath.Join(b.TempDir(), "linked"), filepath.Join(b.TempDir(), "pgque-vendor")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", linked, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	from, err := os.Open(linked)
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(installed, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(struct{ io.Writer }{to}, from) // the kernel would copy a file by itself
	if err = errors.Join(err, to.Close()); err != nil {
		b.Fatal(err)
	}
	return installed
}

func benchUpstream(b *testing.B) string {
	b.Helper()
	if clone := os.Getenv("PGQUE_UPSTREAM_GIT"); clone != "" {
		return clone
	}
	dir := filepath.Join(b.TempDir(), "upstream.git")
	if err := makeUpstream(dir, fixtureReleases()); err != nil {
		b.Fatal(err)
	}
	return dir
}

// measure runs a command and returns how long it took, and for how long it and
// what it started had a processor. Exit code 1 is a difference found, no failure.
func measure(b *testing.B, dir string, args ...string) (wall, cpu time.Duration) {
	b.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Stdout = io.Discard
	began := time.Now()
	err := cmd.Run()
	wall = time.Since(began)
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		b.Fatalf("%v: %v", args, err)
	}
	return wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// race runs ours and theirs in turn and reports their medians, the ratio, that
// of the processor's time, which a busy machine changes less, and our peak memory.
func race(b *testing.B, dir string, ours, theirs []string) {
	var a, z, aCPU, zCPU []time.Duration
	measure(b, dir, ours...)
	measure(b, dir, theirs...)
	for b.Loop() {
		wall, cpu := measure(b, dir, ours...)
		a, aCPU = append(a, wall), append(aCPU, cpu)
		wall, cpu = measure(b, dir, theirs...)
		z, zCPU = append(z, wall), append(zCPU, cpu)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(a).Seconds()*1000, "ms-ours")
	b.ReportMetric(median(z).Seconds()*1000, "ms-theirs")
	b.ReportMetric(float64(median(a))/float64(median(z)), "ratio")
	b.ReportMetric(float64(median(aCPU))/float64(median(zCPU)), "ratio-cpu")
	if peak, ok := peakMemory(b, dir, ours); ok {
		b.ReportMetric(peak, "MB-peak")
	}
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

// peakMemory asks GNU time: the kernel counts the memory of the process that
// starts another one as that one's, and a test binary has plenty.
func peakMemory(b *testing.B, dir string, args []string) (megabytes float64, ok bool) {
	cmd := exec.Command("/usr/bin/time", append([]string{"-q", "-f", "%M", "-o", filepath.Join(b.TempDir(), "peak")}, args...)...)
	cmd.Dir = dir
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != 1 {
		return 0, false
	}
	data, err := os.ReadFile(cmd.Args[5])
	if err != nil {
		return 0, false
	}
	_, err = fmt.Sscan(string(data), &megabytes)
	return megabytes * 1024 / 1e6, err == nil
}

func vendored(b *testing.B, bin, tag, upstream string) string {
	b.Helper()
	dir := b.TempDir()
	measure(b, dir, bin, "update", tag, "--from", upstream)
	return dir
}

// BenchmarkProcessStatus: status against "sha256sum -c" on the same files.
func BenchmarkProcessStatus(b *testing.B) {
	bin := binary(b)
	dir := vendored(b, bin, "v0.2.0", benchUpstream(b))
	var sums strings.Builder
	for _, name := range vendoredNames {
		data, err := os.ReadFile(filepath.Join(dir, defaultDir, name))
		if err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.Join(defaultDir, name))
	}
	if err := os.WriteFile(filepath.Join(dir, "sums"), []byte(sums.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	race(b, dir, []string{bin, "status"}, []string{"sha256sum", "-c", "sums"})
}

// BenchmarkProcessDiff: diff against "git diff --no-index" on the same two files.
func BenchmarkProcessDiff(b *testing.B) {
	bin, upstream := binary(b), benchUpstream(b)
	dir := vendored(b, bin, "v0.1.0", upstream)
	other, err := exec.Command("git", "-C", upstream, "cat-file", "blob", "v0.2.0:sql/pgque.sql").Output()
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new.sql"), other, 0o644); err != nil {
		b.Fatal(err)
	}
	race(b, dir,
		[]string{bin, "diff", "v0.2.0", "--from", upstream},
		[]string{"git", "diff", "--no-index", filepath.Join(defaultDir, "pgque.sql"), "new.sql"})
}

// BenchmarkProcessStart: --version against a program that does nothing.
func BenchmarkProcessStart(b *testing.B) {
	bin := binary(b)
	info, err := os.Stat(bin)
	if err != nil {
		b.Fatal(err)
	}
	race(b, b.TempDir(), []string{bin, "--version"}, []string{"true"})
	b.ReportMetric(float64(info.Size())/1e6, "MB-binary")
}

// BenchmarkProcessUpdate: a first update with 50 ms of latency a request, and
// how many requests it makes one after another.
func BenchmarkProcessUpdate(b *testing.B) {
	bin := binary(b)
	server := ghtest.New(ghtest.Options{GitDir: benchUpstream(b), Repository: "NikolayS/PgQue", Latency: 50 * time.Millisecond})
	defer server.Close()
	trips, requests := 0, 0
	for b.Loop() {
		server.Forget()
		measure(b, b.TempDir(), bin, "update", "v0.2.0", "--api-url", server.URL, "--no-cache")
		trips, requests = max(trips, server.RoundTrips()), max(requests, len(server.Requests()))
	}
	b.ReportMetric(float64(trips), "round-trips")
	b.ReportMetric(float64(requests), "requests")
}
