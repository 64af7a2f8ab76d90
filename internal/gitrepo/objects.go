package gitrepo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// The most that a commit, tag or tree object may hold. Real ones have a few
// kilobytes; the limits keep a hostile repository from filling the memory.
const (
	maxHeaderObject = 1 << 20
	maxTree         = 16 << 20
)

// errMissing says that the repository has no such object.
var errMissing = errors.New("no such object")

// object is one of the repository's objects; the id was computed from the
// content.
type object struct {
	id         gitobject.ID
	objectType string
	content    []byte
}

// objectReader reads objects through one long-lived "git cat-file --batch",
// started at the first read: starting git costs more than all the reads of a
// command together.
type objectReader struct {
	repository *Repository
	lifetime   context.Context

	mu      sync.Mutex
	shutOff bool
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  *bytes.Buffer
}

// read returns the object with an id. One larger than limit bytes is not read
// (tooLarge). errMissing when the repository lacks it, fault.Integrity when
// its content has another id.
func (o *objectReader) read(ctx context.Context, id gitobject.ID, limit int64) (object, error) {
	if _, err := gitobject.ParseID(string(id)); err != nil {
		return object{}, err // never let anything else than an id into the protocol
	}
	got, err := o.ask(ctx, string(id), limit)
	if err == nil && got.id != id {
		return object{}, fault.New(fault.Integrity, "git answered with the object %s when asked for %s", got.id, id)
	}
	return got, err
}

// ask is read for an object by any of git's names for it.
func (o *objectReader) ask(ctx context.Context, name string, limit int64) (object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if ctx.Err() != nil {
		return object{}, stopped(ctx)
	}
	if err := o.start(); err != nil {
		return object{}, err
	}
	// A blocked read ends when the process does.
	process := o.cmd.Process
	defer context.AfterFunc(ctx, func() { process.Kill() })()

	said, got, err := o.exchange(name, limit)
	if err != nil {
		return object{}, o.failed(ctx, err)
	}
	if said != got.id {
		return object{}, fault.New(fault.Integrity, "the repository %q is damaged: its object %s has the content of %s", o.repository.path, said, got.id).
			Hint("git -C %s fsck", quotedPath(o.repository.path))
	}
	return got, nil
}

// failed ends the process, whatever the failure was, since only then all that
// git had to say about it has arrived, and since what the pipe still holds is
// of no use. It returns what read returns.
func (o *objectReader) failed(ctx context.Context, err error) error {
	said := o.end()
	var ended processEnded
	switch {
	case ctx.Err() != nil:
		return stopped(ctx)
	case errors.Is(err, errMissing) && (saysDamage(said) || saysLocal(said)):
		return o.repository.explain(said, err)
	case errors.As(err, &ended) && saysPromised(said):
		return errMissing
	case errors.As(err, &ended):
		return o.repository.explain(said, ended.err)
	}
	return err
}

// processEnded wraps an error of the pipes to git: the process is gone.
type processEnded struct{ err error }

func (e processEnded) Error() string { return e.err.Error() }

// tooLarge says that an object exceeds the reader's limit.
type tooLarge struct{ size int64 }

func (e tooLarge) Error() string { return fmt.Sprintf("it has %d bytes", e.size) }

// exchange asks for one object. Git answers "ID TYPE SIZE", the content and a
// newline, or "NAME missing". said is the id in git's word. The object's own is
// computed as the content comes, while git makes ready what follows.
func (o *objectReader) exchange(name string, limit int64) (said gitobject.ID, got object, err error) {
	if _, err := io.WriteString(o.in, name+"\n"); err != nil {
		return "", object{}, processEnded{err}
	}
	header, err := o.out.ReadString('\n')
	if err != nil {
		return "", object{}, processEnded{err}
	}
	fields := strings.Fields(header)
	if len(fields) == 2 && fields[1] == "missing" {
		return "", object{}, errMissing
	}
	if len(fields) > 0 && len(fields[0]) == 64 {
		return "", object{}, o.repository.sha256Refused()
	}
	if len(fields) != 3 {
		return "", object{}, fault.New(fault.Usage, "git answered %q when asked for the object %q", strings.TrimSpace(header), name)
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return "", object{}, fault.New(fault.Usage, "git answered %q when asked for the object %q", strings.TrimSpace(header), name)
	}
	if size > limit {
		return "", object{}, tooLarge{size}
	}
	hasher := gitobject.NewHasher(fields[1], size)
	got = object{objectType: fields[1], content: make([]byte, size)}
	if _, err := io.ReadFull(io.TeeReader(o.out, hasher), got.content); err != nil {
		return "", object{}, processEnded{err}
	}
	if _, err := o.out.Discard(1); err != nil {
		return "", object{}, processEnded{err}
	}
	got.id, err = hasher.ID()
	return gitobject.ID(fields[0]), got, err
}

func (o *objectReader) start() error {
	if o.shutOff {
		return fault.New(fault.Usage, "the repository %q is closed", o.repository.path)
	}
	if o.cmd != nil {
		return nil
	}
	// The process outlives the call that starts it: it has the context of
	// Open, and read kills it besides when a call is cancelled.
	cmd := o.repository.git.command(o.lifetime, "--git-dir="+o.repository.gitDir, "cat-file", "--batch")
	in, err := cmd.StdinPipe()
	if err != nil {
		return fault.New(fault.Usage, "start git: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fault.New(fault.Usage, "start git: %w", err)
	}
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return fault.New(fault.Usage, "start git: %w", err)
	}
	o.cmd, o.in, o.out, o.stderr = cmd, in, bufio.NewReaderSize(out, 64<<10), stderr
	return nil
}

// end stops the process, if there is one, and returns its standard error. The
// next read starts another.
func (o *objectReader) end() (said string) {
	if o.cmd == nil {
		return ""
	}
	o.in.Close() // the real git may be a child of what we started
	o.cmd.Process.Kill()
	_ = o.cmd.Wait() // its error says only that it was killed
	said = o.stderr.String()
	o.cmd = nil
	return said
}

// shut stops the process for good, also one that a read waits for.
func (o *objectReader) shut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shutOff = true
	o.end()
}
