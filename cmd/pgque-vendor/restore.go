package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

type restoreOptions struct {
	dir      string
	upstream upstreamFlags
	force    bool
	json     bool
}

// restoreDocument is what "restore --json" writes.
type restoreDocument struct {
	Schema   int      `json:"schema"`
	Action   string   `json:"action"` // restored or unchanged
	Dir      string   `json:"dir"`
	Tag      string   `json:"tag"`
	Commit   string   `json:"commit"`
	Restored []string `json:"restored"`
}

func newRestoreCommand(env *environment) *cobra.Command {
	var o restoreOptions
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Bring back exactly the files that SOURCE.json pins",
		Long: `Fetch exactly the files that SOURCE.json pins, by commit, and put back those
that are missing. Files that differ are replaced only with --force. What comes
must have the SHA-256 that SOURCE.json has; SOURCE.json is never rewritten.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), env) },
	}
	registerDir(cmd, &o.dir)
	o.upstream.register(cmd)
	cmd.Flags().BoolVar(&o.force, "force", false, "also replace files that differ")
	cmd.Flags().BoolVar(&o.json, "json", false, "write one JSON document")
	return cmd
}

func (o *restoreOptions) run(ctx context.Context, env *environment) error {
	unwritable := vendorfile.CheckWritable(o.dir) // no trouble where there is nothing to do
	local, err := o.readPinned()
	if err != nil {
		return err
	}
	wanted, err := o.wanted(local)
	if err != nil {
		return err
	}
	if len(wanted) == 0 && !local.report.Interrupted && !local.report.NoAttributes {
		return o.report(env, "unchanged", local.source, nil)
	}
	if unwritable != nil {
		return unwritable
	}
	files, err := o.fetch(ctx, env, local.source, wanted)
	if err != nil {
		return err
	}
	// As in update: finished before the first word is printed.
	written, err := o.write(files)
	if err != nil {
		return err
	}
	return o.report(env, "restored", local.source, written)
}

// readPinned reads the folder, whose SOURCE.json must be there and whole.
func (o *restoreOptions) readPinned() (*localState, error) {
	local, err := readLocal(o.dir)
	switch {
	case err != nil:
		return nil, err
	case local.source != nil:
		return local, nil
	case errors.Is(local.report.SourceErr, fs.ErrNotExist):
		return nil, errNothingVendored(o.dir, o.upstream)
	}
	return nil, local.report.SourceErr
}

// wanted names the files to fetch: the missing ones, and with --force those
// that differ.
func (o *restoreOptions) wanted(local *localState) ([]string, error) {
	var wanted, differ []string
	for _, f := range local.report.Files {
		switch f.State {
		case vendorfile.OK:
		case vendorfile.Missing:
			wanted = append(wanted, f.Name)
		default:
			differ = append(differ, f.Name)
		}
	}
	if len(differ) > 0 && !o.force {
		diff := "pgque-vendor diff" + o.upstream.again() + dirFlag(o.dir)
		return nil, local.refuseEdits("restore", diff, o.command(true), nil)
	}
	wanted = append(wanted, differ...)
	slices.Sort(wanted)
	return wanted, nil
}

// fetch brings the pinned bytes: from the cache when it has them all, since
// their hashes prove them, else by the commit from upstream.
func (o *restoreOptions) fetch(ctx context.Context, env *environment, src *vendorfile.Source, names []string) (map[string][]byte, error) {
	if files := o.fromCache(env, src, names); files != nil {
		return files, nil
	}
	up, release, err := o.upstream.open(ctx, env, src)
	if err != nil {
		return nil, err
	}
	defer release()
	tag := gitobject.Tag{Name: src.Tag, Commit: gitobject.ID(src.Commit)}
	target, err := lookUpTarget(ctx, up, tag, src.Files[vendorfile.SQLName].Path)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range names {
		pinned, id := src.Files[name], target.entries[name].ID
		if string(id) != pinned.GitBlob {
			return nil, fault.New(fault.Integrity, "commit %s has another %q than SOURCE.json pins: blob %s, not %s", src.Commit, pinned.Path, id, pinned.GitBlob).
				Hint("SOURCE.json was changed by hand: git log -p -- %s", shellQuote(filepath.ToSlash(o.dir)+"/SOURCE.json"))
		}
		data, err := up.Blob(ctx, id, vendorfile.SizeLimit(name))
		if err != nil {
			return nil, err
		}
		if !isPinned(data, pinned) {
			return nil, fault.New(fault.Integrity, "%q at commit %s has not the SHA-256 that SOURCE.json pins (%s)", pinned.Path, src.Commit, pinned.SHA256)
		}
		files[name] = data
	}
	return files, nil
}

func (o *restoreOptions) fromCache(env *environment, src *vendorfile.Source, names []string) map[string][]byte {
	if o.upstream.noCache || o.upstream.from != "" {
		return nil
	}
	cache := openCache(env)
	if cache == nil {
		return nil
	}
	files := map[string][]byte{}
	for _, name := range names {
		data, ok := cache.Get(gitobject.ID(src.Files[name].GitBlob))
		if !ok || !isPinned(data, src.Files[name]) {
			return nil
		}
		files[name] = data
	}
	return files
}

func isPinned(data []byte, f vendorfile.File) bool {
	sum := sha256.Sum256(data)
	return int64(len(data)) == f.Size && hex.EncodeToString(sum[:]) == f.SHA256
}

func (o *restoreOptions) write(files map[string][]byte) (written []string, err error) {
	staging, err := vendorfile.Begin(o.dir, o.command(o.force))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, staging.Close()) }()
	return staging.Commit(files, nil)
}

// command is this command once more, for a hint, and for the folder when this
// run dies.
func (o *restoreOptions) command(force bool) string {
	command := "pgque-vendor restore"
	if force {
		command += " --force"
	}
	return command + o.upstream.again() + dirFlag(o.dir)
}

func (o *restoreOptions) report(env *environment, action string, src *vendorfile.Source, written []string) error {
	if o.json {
		return writeJSON(env.stdout, restoreDocument{
			Schema:   1,
			Action:   action,
			Dir:      filepath.ToSlash(o.dir),
			Tag:      src.Tag,
			Commit:   src.Commit,
			Restored: append([]string{}, written...),
		})
	}
	if len(written) == 0 {
		_, err := fmt.Fprintf(env.stdout, "nothing to restore: the files are those that SOURCE.json pins for %s (%s)\n", src.Tag, shortID(src.Commit))
		return err
	}
	_, err := fmt.Fprintf(env.stdout, "restored from %s (%s): %s\n", src.Tag, shortID(src.Commit), strings.Join(written, ", "))
	return err
}
