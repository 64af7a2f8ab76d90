package pgserver

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// jar makes an archive as Maven has them: a zip that holds a tar.xz with
// programs that do nothing but fail, as initdb does for root.
func jar(t *testing.T) []byte {
	t.Helper()
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("no xz to make the archive with")
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres", "pg_ctl"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", program(name)), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tarball, err := exec.Command("tar", "-C", dir, "-cJf", "-", "bin").Output()
	if err != nil {
		t.Skipf("no tar.xz: %v", err)
	}
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	f.Write(tarball)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDownload(t *testing.T) {
	t.Parallel()
	archive := jar(t)
	var requests atomic.Int32
	serve := func(body []byte) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if strings.HasSuffix(r.URL.Path, ".sha256") {
				sum := sha256.Sum256(archive)
				io.WriteString(w, hex.EncodeToString(sum[:]))
				return
			}
			w.Write(body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}

	cache := t.TempDir()
	if _, err := Download(t.Context(), cache, serve(archive[:len(archive)-1]), io.Discard); err == nil {
		t.Error("a damaged archive was taken")
	}
	dir, err := Download(t.Context(), cache, serve(archive), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, program("postgres"))); err != nil {
		t.Error(err)
	}
	before := requests.Load()
	again, err := Download(t.Context(), cache, "http://127.0.0.1:1", io.Discard)
	if err != nil || again != dir || requests.Load() != before {
		t.Errorf("again: %q, %v, %d requests", again, err, requests.Load()-before)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "download-*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestDownloadEndsInTime(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	cache, err := os.MkdirTemp("", "download-test-") // not t.TempDir: the library may still write
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(cache)
	if _, err := Download(ctx, cache, s.URL, io.Discard); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("a server that does not answer: %v", err)
	}
}
