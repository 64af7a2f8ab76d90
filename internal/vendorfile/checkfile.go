package vendorfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

var bom = []byte("\xef\xbb\xbf")

// checkFile compares one file with what SOURCE.json says of it. It is hashed
// as it is read; only a file that differs is read again, to say how.
func (r *Report) checkFile(root *os.Root, entries map[string]fs.DirEntry, name string) {
	want := r.Source.Files[name]
	result := FileResult{Name: name, ExpectedSize: want.Size, ExpectedSHA256: want.SHA256}
	defer func() { r.Files = append(r.Files, result) }()

	if _, ok := entries[name]; !ok {
		result.State = Missing
		message := "it is not there"
		if rule := ignoredBy(r.Dir, name); rule != "" {
			message += "; git never saw it: " + rule
		}
		r.find(string(Missing), name, message, r.command("restore"))
		return
	}
	size, sum, err := hashRegular(root, name)
	var irregular *notRegularError
	switch {
	case errors.As(err, &irregular):
		result.State = NotRegular
		r.findIrregular(name, irregular.mode, r.command("restore"))
		return
	case err != nil:
		result.State = Unreadable
		r.find(string(Unreadable), name, "can't be read: "+causeOf(err), "chmod u+r "+shellWord(r.path(name)))
		return
	}
	result.Size, result.SHA256 = size, sum
	if size == want.Size && sum == want.SHA256 {
		result.State = OK
		r.Bytes += size
		return
	}
	var message string
	result.State, message = explain(root, name, size, want)
	hint := r.command("restore --force")
	if result.State == Missing {
		hint = r.command("restore")
	}
	r.find(string(result.State), name, message, hint)
}

// explain says how a file that is not the right one differs. Only hashes of
// the right file are at hand, so it tries what people and tools do to files
// and looks whether undoing that gives the right bytes.
func explain(root *os.Root, name string, size int64, want File) (State, string) {
	if limit := SizeLimit(name); size > limit {
		return Modified, fmt.Sprintf("it has %d bytes, over the limit of %d; it must have %d", size, limit, want.Size)
	}
	data, err := readRegular(root, name, SizeLimit(name))
	if err != nil {
		return Unreadable, "can't be read: " + causeOf(err)
	}
	return explainBytes(data, want)
}

func explainBytes(data []byte, want File) (State, string) {
	if len(data) == 0 {
		return Empty, fmt.Sprintf("it is empty; it must have %d bytes", want.Size)
	}
	size := int64(len(data))
	is := func(b []byte) bool { return int64(len(b)) == want.Size && hashOf(b) == want.SHA256 }
	lf := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	switch {
	case looksUTF16(data):
		return UTF16, `it looks like UTF-16, as ">" in Windows PowerShell writes`
	case bytes.HasPrefix(data, bom):
		message := "it starts with a UTF-8 byte order mark (BOM)"
		if is(data[len(bom):]) || is(lf[len(bom):]) {
			message += "; but for that and line endings it is right"
		}
		return BOM, message
	case is(lf):
		return LineEndings, fmt.Sprintf("it differs only in line endings (%d CRLF); the line \"* -text\" in %s keeps git from changing them", len(data)-len(lf), attributesName)
	case is(bytes.ReplaceAll(lf, []byte("\n"), []byte("\r\n"))):
		return LineEndings, "it differs only in line endings (its CRLF became LF)"
	case is(append(data[:len(data):len(data)], '\n')):
		return Modified, "it was changed, in whitespace only: the newline at its end is gone"
	case is(bytes.TrimSuffix(data, []byte("\n"))), is(append(bytes.TrimRight(data, " \t\r\n"), '\n')):
		return Modified, "it was changed, in whitespace only: there is more of it at its end"
	case cutOff(data, want.Size):
		return Truncated, fmt.Sprintf("it is cut off: %d of %d bytes", size, want.Size)
	}
	return Modified, fmt.Sprintf("it was changed: %d bytes, it must have %d (%+d)", size, want.Size, size-want.Size)
}

// cutOff reports whether a file that is too short was cut, not edited: the
// bytes stop in the middle of a line, or at the end of a disk block. Hashes
// can't prove it, and an edit that removes lines leaves whole lines.
func cutOff(data []byte, wantSize int64) bool {
	size := int64(len(data))
	return size < wantSize && (data[size-1] != '\n' || size%4096 == 0)
}

// looksUTF16 recognises the byte order mark, and without one, text whose every
// second byte is NUL.
func looksUTF16(data []byte) bool {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return true
	}
	head := data[:min(len(data), 64)&^1]
	var zeros [2]int
	for i, c := range head {
		if c == 0 {
			zeros[i%2]++
		}
	}
	pairs := len(head) / 2
	return pairs >= 4 && (zeros[0] == pairs && zeros[1] == 0 || zeros[1] == pairs && zeros[0] == 0)
}

// notRegularError is returned for what is no regular file, and so is not
// opened: opening a named pipe would wait for ever.
type notRegularError struct{ mode fs.FileMode }

func (e *notRegularError) Error() string { return "it is " + kindOfFile(e.mode) }

// openRegular opens a file of the folder, and never through a symlink.
func openRegular(root *os.Root, name string) (*os.File, int64, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, &notRegularError{info.Mode()}
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = errors.New("it was replaced while it was read")
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, opened.Size(), nil
}

// hashRegular reads a file once. Past the size limit it stops: such a file is
// wrong whatever its hash, which is then "".
func hashRegular(root *os.Root, name string) (size int64, sum string, err error) {
	f, size, err := openRegular(root, name)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	limit := SizeLimit(name)
	if size > limit {
		return size, "", nil
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, limit+1))
	if err != nil {
		return 0, "", err
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}

// readRegular reads a file of at most limit bytes.
func readRegular(root *os.Root, name string, limit int64) ([]byte, error) {
	f, size, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, size, limit)
}

func readLimited(f io.Reader, size, limit int64) ([]byte, error) {
	tooLarge := fmt.Errorf("it is larger than %d bytes", limit)
	if size > limit {
		return nil, tooLarge
	}
	b := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	if _, err := b.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(b.Len()) > limit {
		return nil, tooLarge
	}
	return b.Bytes(), nil
}

// ReadSource reads the folder's SOURCE.json. The error matches fs.ErrNotExist
// when the folder or the file is not there, and ErrNewerSchema as Parse's does.
func ReadSource(dir string) (*Source, error) {
	data, err := readFile(dir, SourceName, sourceLimit)
	if err != nil {
		return nil, err
	}
	return parseIn(dir, data)
}

// parseIn is Parse for the SOURCE.json of a folder, which its hints then name.
func parseIn(dir string, data []byte) (*Source, error) {
	src, err := Parse(data)
	var f *fault.Error
	if errors.As(err, &f) {
		for i, hint := range f.Hints {
			if arguments, ok := strings.CutPrefix(hint, "pgque-vendor "); ok {
				f.Hints[i] = commandFor(dir, arguments)
			}
		}
	}
	return src, err
}

// ReadFile reads a file of the folder as it is, not through a symlink, and not
// more than its size limit. The error matches fs.ErrNotExist.
func ReadFile(dir, name string) ([]byte, error) { return readFile(dir, name, SizeLimit(name)) }

// ReadGrownFile reads as ReadFile does, and up to 256 MiB: for a comparison,
// which can say of a file over its size limit that it differs.
func ReadGrownFile(dir, name string) ([]byte, error) { return readFile(dir, name, 256<<20) }

func readFile(dir, name string, limit int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.New(fault.Usage, "open the folder %q: %w", dir, unwrapPath(err))
	}
	defer root.Close()
	data, err := readRegular(root, name, limit)
	var irregular *notRegularError
	if errors.As(err, &irregular) {
		return nil, fault.New(fault.Policy, "%q is %s, not a regular file", filepath.Join(dir, name), kindOfFile(irregular.mode))
	}
	if err != nil {
		return nil, fault.New(fault.Usage, "read %q: %w", filepath.Join(dir, name), unwrapPath(err))
	}
	return data, nil
}

// ReadVerified returns SOURCE.json and the bytes of one file, read once and
// proved to be what SOURCE.json pins, for a caller that goes on with that very
// buffer. Unlike Check it follows symlinks, since that is how mounted
// configuration comes. The failure is fault.Integrity.
func ReadVerified(dir, name string) (*Source, []byte, error) {
	raw, err := readFollowing(filepath.Join(dir, SourceName), sourceLimit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fault.New(fault.Integrity, "nothing is vendored in %q: it has no SOURCE.json", dir).
			Hint("%s", commandFor(dir, "update --latest")).
			Hint("if it is elsewhere, name the folder with --dir")
	case err != nil:
		return nil, nil, err
	}
	src, err := parseIn(dir, raw)
	if err != nil {
		return nil, nil, err
	}
	data, err := readFollowing(filepath.Join(dir, name), SizeLimit(name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fault.New(fault.Integrity, "%w", err).Hint("%s", commandFor(dir, "restore"))
	case err != nil:
		return nil, nil, err
	}
	want, ok := src.Files[name]
	if !ok {
		return nil, nil, fault.New(fault.Integrity, "SOURCE.json lists no file %q", name)
	}
	if int64(len(data)) != want.Size || hashOf(data) != want.SHA256 {
		_, why := explainBytes(data, want)
		return nil, nil, fault.New(fault.Integrity, "%q is not what SOURCE.json pins: %s", filepath.Join(dir, name), why).
			Hint("%s", commandFor(dir, "restore --force"))
	}
	return src, data, nil
}

func readFollowing(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fault.New(fault.Integrity, "read %q: %w", path, unwrapPath(err))
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.Integrity, "%q is %s, not a regular file", path, kindOfFile(info.Mode()))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.New(fault.Integrity, "read %q: %w", path, unwrapPath(err))
	}
	defer f.Close()
	data, err := readLimited(f, info.Size(), limit)
	if err != nil {
		return nil, fault.New(fault.Integrity, "read %q: %w", path, unwrapPath(err))
	}
	return data, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func kindOfFile(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a symlink"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode.IsRegular():
		return "a regular file"
	}
	return "a special file"
}

// unwrapPath takes the operation and the path off an error: the text around it
// names the file better.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}

func causeOf(err error) string { return unwrapPath(err).Error() }
