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

// Download fetches the server programs that embedded-postgres publishes
// (PostgreSQL 17) into a folder below cacheDir and returns their bin folder. A
// second call finds them there and downloads nothing. talk gets what the
// library says.
func Download(ctx context.Context, cacheDir string, talk io.Writer) (string, error) {
	version := embeddedpostgres.V17
	home := filepath.Join(cacheDir, "postgresql-"+string(version))
	if found, ok := programsIn(filepath.Join(home, "bin")); ok {
		return found, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", fmt.Errorf("create %q: %w", home, err)
	}
	scratch, err := os.MkdirTemp(cacheDir, "download-")
	if err != nil {
		return "", fmt.Errorf("create a folder in %q: %w", cacheDir, err)
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}

	// The library has no call that only downloads. Its Start downloads and
	// unpacks first, so the programs are there even where the rest of it
	// fails, as it must for root, whom PostgreSQL refuses.
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		CachePath(cacheDir).
		BinariesPath(home).
		RuntimePath(filepath.Join(scratch, "runtime")).
		DataPath(filepath.Join(scratch, "data")).
		Logger(talk))
	started := make(chan error, 1)
	go func() {
		defer os.RemoveAll(scratch)
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		started <- err
	}()
	select {
	case err = <-started:
	case <-ctx.Done(): // the library takes no context; what it still does ends with the process
		return "", fmt.Errorf("download PostgreSQL %s: %w", version, context.Cause(ctx))
	}
	if found, ok := programsIn(filepath.Join(home, "bin")); ok {
		return found, nil
	}
	if err == nil {
		err = errors.New("the archive holds no server")
	}
	return "", fmt.Errorf("download PostgreSQL %s: %w", version, err)
}
