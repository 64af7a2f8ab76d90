//go:build unix

package notifications_test

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// README's commands, pasted into a shell in this folder, bring a mail to Ann. What a
// reader fills in is in the environment.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts the whole example")
	}
	for _, name := range []string{"bash", "curl"} {
		switch _, err := exec.LookPath(name); {
		case err == nil:
		case os.Getenv("CI") == "true":
			t.Fatal(err)
		default:
			t.Skip(err)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlock.FindAllSubmatch(readme, -1)
	if len(blocks) != 2 || string(blocks[1][1]) != "go test ./...\n" {
		t.Fatalf("README.md has %d blocks for a shell, and one of them is tried here", len(blocks))
	}
	script := withoutPlaceholders(t, string(blocks[0][1]))

	server := pgtest.NewServer(t, pgtest.Options{})
	admin := server.Connect(t)
	for _, sql := range []string{`create role app login`, `create database app owner app`, `create database "stega-events"`} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	arrived := newInbox()
	cmd := exec.Command("bash", "-e", "-c", script)
	cmd.Env = append(os.Environ(),
		"PATH="+build(t)+string(os.PathListSeparator)+os.Getenv("PATH"),
		"APP_DATABASE_URL="+server.URL("app", "app"), "EVENTS_DATABASE_URL="+server.URL("stega-events", "app"),
		"PGQUE_VENDOR_DATABASE_URL="+server.URL("stega-events", ""),
		"SMTP_ADDR="+arrived.mailServer(t), "SMTP_FROM=support@example.com", "SMTP_PLAINTEXT=true", "SLACK_WEBHOOK_URL="+arrived.webhook(t),
		"HTTP_ADDR="+freeAddress(t), "PGQUE_VENDOR_DIR="+vendored(t), "PGQUE_VENDOR_ALLOW_STANDIN=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer // read after its end only
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	signal := func(s syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, s) }
	t.Cleanup(func() {
		signal(syscall.SIGKILL)
		<-ended
		if t.Failed() {
			t.Logf("%s", out.String())
		}
	})

	deadline := time.After(5 * time.Minute)
	for arrived.count() == 0 {
		select {
		case <-ended:
			t.Fatal("everything has ended, and no mail came")
		case <-deadline:
			t.Fatal("no mail came")
		case <-time.After(50 * time.Millisecond):
		}
	}
	arrived.mu.Lock()
	if arrived.letters["ann@example.com | We have received your ticket 1"] == 0 {
		t.Errorf("the mail that came is another one: %v", arrived.letters)
	}
	arrived.mu.Unlock()
	signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		t.Error("not everything ends at SIGTERM")
	}
}

// withoutPlaceholders leaves out the lines that a reader fills in, and those of this
// machine's own: which address is free, and where the files are.
func withoutPlaceholders(t *testing.T, block string) (script string) {
	t.Helper()
	left := 0
	for line := range strings.Lines(block) {
		if strings.HasPrefix(line, "export ") && (strings.Contains(line, "…") || strings.Contains(line, "HTTP_ADDR=")) {
			left++
			continue
		}
		script += line
	}
	if left != 4 {
		t.Fatalf("README.md has %d lines to fill in, not 4", left)
	}
	return script
}

// vendored makes a folder with the stand-in, or with PgQue itself, as update leaves it.
func vendored(t *testing.T) string {
	t.Helper()
	variants := pgtest.Variants(t)
	sql := variants[min(1, len(variants)-1)].SQL
	dir := t.TempDir()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]any{}
	for _, file := range []struct {
		name, path string
		data       []byte
	}{
		{"LICENSE", "LICENSE", []byte("a licence for tests\n")},
		{"NOTICE", "NOTICE", []byte("a notice for tests\n")},
		{"pgque.sql", "sql/pgque.sql", sql},
	} {
		blob := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(file.data)), file.data...))
		files[file.name] = map[string]any{
			"path": file.path, "size": len(file.data),
			"sha256": fmt.Sprintf("%x", sha256.Sum256(file.data)), "git_blob": fmt.Sprintf("%x", blob),
		}
		write(file.name, file.data)
	}
	source, err := json.Marshal(map[string]any{
		"schema": 1, "repository": "NikolayS/PgQue", "tag": "v0.2.0", "commit": strings.Repeat("c0ffee01", 5),
		"sql_version": "0.2.0", "files": files,
	})
	if err != nil {
		t.Fatal(err)
	}
	write("SOURCE.json", source)
	return dir
}
