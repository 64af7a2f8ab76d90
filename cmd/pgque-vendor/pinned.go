package main

import (
	"context"
	"fmt"

	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// checkPinned compares the folder with what the pinned commit holds upstream. Who
// changes SOURCE.json together with the files passes every check that goes by
// SOURCE.json; only upstream can tell. It downloads no file.
func checkPinned(ctx context.Context, up upstream, dir string, src *vendorfile.Source) ([]vendorfile.Finding, error) {
	var paths []string
	for _, name := range vendoredNames {
		paths = append(paths, src.Files[name].Path)
	}
	entries, err := up.Entries(ctx, gitobject.ID(src.Commit), paths)
	if err != nil {
		return nil, err
	}
	held := map[string]string{}
	for _, e := range entries {
		held[e.Path] = string(e.ID)
	}
	var findings []vendorfile.Finding
	for _, name := range vendoredNames {
		message, err := notUpstream(dir, name, src, held[src.Files[name].Path])
		if err != nil {
			return nil, err
		}
		if message != "" {
			findings = append(findings, vendorfile.Finding{Code: "not-upstream", File: name, Message: message})
		}
	}
	return findings, nil
}

// notUpstream says how a file differs from the blob that the commit holds, or "". That
// SOURCE.json's id is the right one proves nothing: it goes by the SHA-256 beside it.
func notUpstream(dir, name string, src *vendorfile.Source, held string) (string, error) {
	pinned := src.Files[name]
	switch {
	case held == "":
		return fmt.Sprintf("commit %s has no file %q", src.Commit, pinned.Path), nil
	case held != pinned.GitBlob:
		return fmt.Sprintf("SOURCE.json pins blob %s, but commit %s has %s at %q", pinned.GitBlob, src.Commit, held, pinned.Path), nil
	}
	data, err := vendorfile.ReadFile(dir, name)
	if err != nil || !isPinned(data, pinned) {
		return "", nil // the offline check has said so
	}
	id, err := gitobject.BlobID(data)
	if err == nil && string(id) != held {
		return fmt.Sprintf("it is blob %s, but commit %s has %s at %q", id, src.Commit, held, pinned.Path), nil
	}
	return "", err
}
