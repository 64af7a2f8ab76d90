package vendorfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

// tree is every file below dir with its bytes; a directory ends in "/".
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			all[rel+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		all[rel] = string(data)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all
}

func treeOf(files map[string][]byte, source *Source) map[string]string {
	all := map[string]string{"./": "", attributesName: attributes, SourceName: string(source.Format())}
	for name, data := range files {
		all[name] = string(data)
	}
	return all
}

func TestWriteNewFolder(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	source := sourceOf(t, "v0.1.0", files)
	dir := filepath.Join(t.TempDir(), "a", "b", "pgque")
	written := mustWrite(t, dir, files, source)
	if got := strings.Join(written, " "); got != ".gitattributes LICENSE NOTICE SOURCE.json pgque.sql" {
		t.Errorf("written: %s", got)
	}
	if got, want := tree(t, dir), treeOf(files, source); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// B015, B069: what is the same already keeps its time, and a SOURCE.json that
// means the same keeps its bytes.
func TestWriteOnlyWhatChanges(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	source := sourceOf(t, "v0.1.0", files)
	dir := vendored(t, "v0.1.0", files)
	pretty := strings.ReplaceAll(string(source.Format()), "  ", "\t")
	put(t, dir, SourceName, pretty)
	put(t, dir, attributesName, "* -text\n*.sql diff\n")
	old := time.Now().Add(-time.Hour)
	for name := range tree(t, dir) {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if written := mustWrite(t, dir, files, source); len(written) != 0 {
		t.Errorf("the same again wrote %q", written)
	}
	if got := tree(t, dir)[SourceName]; got != pretty {
		t.Errorf("SOURCE.json was rewritten to\n%s", got)
	}
	moved := sourceOf(t, "v0.1.1", files) // another tag with the same files
	before := times(t, dir)
	if written := mustWrite(t, dir, nil, moved); strings.Join(written, " ") != SourceName {
		t.Errorf("another tag wrote %q", written)
	}
	after := times(t, dir)
	for _, name := range []string{SQLName, LicenseName, NoticeName, attributesName} {
		if path := filepath.Join(dir, name); before[path] != after[path] {
			t.Errorf("the time of %s changed", name)
		}
	}
	if got := tree(t, dir); got[SourceName] != string(moved.Format()) || got[attributesName] != "* -text\n*.sql diff\n" {
		t.Errorf("got %v", got)
	}
}

// B024: 0644 and 0755, whatever the umask and whatever was there.
func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	files := contents("0.1.0")
	for _, mask := range []int{0, 0o022, 0o077} {
		old := setUmask(mask)
		top := t.TempDir()
		dir := filepath.Join(top, "vendor", "pgque")
		mustWrite(t, dir, files, sourceOf(t, "v0.1.0", files))
		setUmask(old)
		for _, name := range []string{SQLName, LicenseName, NoticeName, SourceName, attributesName, ".", ".."} {
			info, err := os.Lstat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			want := fs.FileMode(0o644)
			if info.IsDir() {
				want = 0o755
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("umask %o: %s has mode %o, want %o", mask, name, got, want)
			}
		}
	}
	for _, mode := range []fs.FileMode{0o644, 0o640, 0o444, 0o666} {
		dir := vendored(t, "v0.1.0", files)
		for name := range files {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		next := contents("0.2.0") // another pgque.sql, the same LICENSE
		mustWrite(t, dir, next, sourceOf(t, "v0.2.0", next))
		for name, want := range map[string]fs.FileMode{SQLName: 0o644, LicenseName: mode} {
			info, err := os.Lstat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s had %o, has %o, want %o", name, mode, got, want)
			}
		}
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	dir := vendored(t, "v0.1.0", files)
	odd := strings.ReplaceAll(string(sourceOf(t, "v0.1.0", files).Format()), "  ", " ")
	put(t, dir, SourceName, odd)
	put(t, dir, SQLName, "edited\n")
	os.Remove(filepath.Join(dir, NoticeName))
	os.Remove(filepath.Join(dir, attributesName))

	restore := func(files map[string][]byte) (string, error) {
		s, err := Begin(dir, "pgque-vendor restore")
		if err != nil {
			t.Fatal(err)
		}
		written, err := s.Commit(files, nil)
		if closeErr := s.Close(); closeErr != nil {
			t.Error(closeErr)
		}
		return strings.Join(written, " "), err
	}
	// Without --force: only what is missing.
	if got, err := restore(map[string][]byte{NoticeName: files[NoticeName]}); err != nil || got != ".gitattributes NOTICE" {
		t.Errorf("wrote %q, %v", got, err)
	}
	if got := summary(mustCheck(t, dir)); got != "LICENSE=ok NOTICE=ok pgque.sql=modified modified(pgque.sql)" {
		t.Errorf("got %s", got)
	}
	// Bytes that SOURCE.json does not pin are never written.
	if got, err := restore(map[string][]byte{SQLName: []byte("other\n")}); got != "" || !fault.Is(err, fault.Integrity) {
		t.Errorf("wrote %q, %v", got, err)
	}
	if got, err := restore(map[string][]byte{SQLName: files[SQLName]}); err != nil || got != SQLName {
		t.Errorf("wrote %q, %v", got, err)
	}
	if r := mustCheck(t, dir); !r.Clean() {
		t.Errorf("got %s", summary(r))
	}
	if got := tree(t, dir)[SourceName]; got != odd {
		t.Errorf("SOURCE.json was rewritten to\n%s", got)
	}
	os.Remove(filepath.Join(dir, SourceName))
	if got, err := restore(files); got != "" || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without SOURCE.json: wrote %q, %v", got, err)
	}
}

// What Commit refuses, it refuses before it writes, and Close leaves nothing.
func TestCommitRefuses(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	next := contents("0.2.0")
	good := sourceOf(t, "v0.2.0", next)
	with := func(change func(s *Source)) *Source {
		s := sourceOf(t, "v0.2.0", next)
		change(s)
		return s
	}
	outside := filepath.Join(t.TempDir(), "outside")
	tests := []struct {
		name   string
		damage func(dir string) error
		files  map[string][]byte
		source *Source
		class  fault.Class
		want   string
	}{
		{"other bytes", nil, map[string][]byte{SQLName: []byte("x")}, good, fault.Integrity, `"pgque.sql" is not what SOURCE.json says`},
		{"file not given, and not there", nil, nil, good, fault.Integrity, `"pgque.sql" is not what SOURCE.json says`},
		{"unlisted file", nil, map[string][]byte{"x": nil, SQLName: next[SQLName]}, good, fault.Integrity, `SOURCE.json lists no file "x"`},
		{"short commit", nil, next, with(func(s *Source) { s.Commit = "e8ee488" }), fault.Integrity, "would not be valid"},
		{"no NOTICE", nil, next, with(func(s *Source) { delete(s.Files, NoticeName) }), fault.Integrity, "would not be valid"},
		{"name up", nil, next, with(func(s *Source) { s.Files["../x"] = s.Files[NoticeName] }), fault.Integrity, "would not be valid"},
		// B038
		{"newer SOURCE.json", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, SourceName), []byte(`{"schema": 2}`), 0o644)
		}, next, good, fault.Integrity, "schema 2 is newer"},
		// B036
		{"symlinked file", func(dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, SQLName), outside), os.Symlink(outside, filepath.Join(dir, SQLName)))
		}, next, good, fault.Policy, "is a symlink, not a regular file"},
		{"dangling link", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, NoticeName)), os.Symlink("nowhere", filepath.Join(dir, NoticeName)))
		}, next, good, fault.Policy, "is a symlink, not a regular file"},
		{"symlinked .gitattributes", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, attributesName)), os.Symlink("x", filepath.Join(dir, attributesName)))
		}, next, good, fault.Policy, "is a symlink, not a regular file"},
		{"symlinked SOURCE.json", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, SourceName)), os.Symlink("loop", filepath.Join(dir, SourceName)))
		}, next, good, fault.Policy, "is a symlink, not a regular file"},
		{"directory", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, SQLName)), os.Mkdir(filepath.Join(dir, SQLName), 0o755))
		}, next, good, fault.Policy, "is a directory, not a regular file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := vendored(t, "v0.1.0", files)
			if tt.damage != nil {
				if err := tt.damage(dir); err != nil {
					t.Skip("can't set it up here: ", err)
				}
			}
			before := summary(mustCheck(t, dir))
			names, _ := os.ReadDir(dir)
			s, err := Begin(dir, "pgque-vendor update v0.2.0")
			if err != nil {
				t.Fatal(err)
			}
			written, err := s.Commit(tt.files, tt.source)
			if !fault.Is(err, tt.class) || !strings.Contains(err.Error(), tt.want) || written != nil {
				t.Errorf("wrote %q, %v; want class %d and %q", written, err, tt.class, tt.want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			after, _ := os.ReadDir(dir)
			if got := summary(mustCheck(t, dir)); got != before || len(after) != len(names) {
				t.Errorf("the folder changed from %s to %s", before, got)
			}
		})
	}
}

func TestBeginRefusesSymlinks(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip("no symlinks here: ", err)
	}
	before := times(t, dir)
	for _, check := range []func() error{
		func() error { _, err := Begin(link, "x"); return err },
		func() error { _, err := Begin(link+"/", "x"); return err },
		func() error { return CheckWritable(link) },
		func() error { _, err := Begin(filepath.Join(dir, SQLName), "x"); return err },
	} {
		if err := check(); !fault.Is(err, fault.Policy) {
			t.Errorf("got %v", err)
		}
	}
	// A staging folder, or a lock in it, that leads elsewhere.
	elsewhere := t.TempDir()
	staging := filepath.Join(dir, stagingName)
	if err := os.Symlink(elsewhere, staging); err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(dir, "x"); !fault.Is(err, fault.Policy) {
		t.Errorf("staging: %v", err)
	}
	if err := os.Remove(staging); err != nil {
		t.Errorf("what was refused was removed: %v", err)
	}
	put(t, staging, "x", "x")
	if err := os.Symlink(filepath.Join(elsewhere, "made"), filepath.Join(staging, "lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(dir, "x"); !fault.Is(err, fault.Policy) {
		t.Errorf("lock: %v", err)
	}
	os.RemoveAll(staging)
	if left, _ := os.ReadDir(elsewhere); len(left) > 0 {
		t.Errorf("written elsewhere: %v", left)
	}
	after := times(t, dir)
	delete(before, dir)
	delete(after, dir)
	if !reflect.DeepEqual(before, after) {
		t.Error("files changed")
	}
}

func TestCheckWritable(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	dir := vendored(t, "v0.1.0", files)
	missing := filepath.Join(t.TempDir(), "a", "b")
	before := times(t, filepath.Dir(dir))
	for _, folder := range []string{dir, missing} {
		if err := CheckWritable(folder); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
	}
	if _, err := os.Stat(filepath.Dir(missing)); err == nil {
		t.Error("CheckWritable made a folder")
	}
	if !reflect.DeepEqual(before, times(t, filepath.Dir(dir))) {
		t.Error("CheckWritable changed a time")
	}
	linked := vendored(t, "v0.1.0", files)
	os.Remove(filepath.Join(linked, SQLName))
	if err := os.Symlink("x", filepath.Join(linked, SQLName)); err == nil {
		if err := CheckWritable(linked); !fault.Is(err, fault.Policy) {
			t.Errorf("symlink: %v", err)
		}
	}
}

// B098: a read-only folder fails before anything is asked of the network, and
// a read-only file in a writable folder is replaced.
func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a folder can't be read-only on Windows")
	}
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	before := tree(t, dir)
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	for _, folder := range []string{dir, filepath.Join(dir, "new", "er")} {
		asNobody(t, dir, func() string {
			err := CheckWritable(folder)
			_, beginErr := Begin(folder, "x")
			if !fault.Is(err, fault.Usage) || !fault.Is(beginErr, fault.Usage) {
				return "Begin: " + errorText(beginErr) + "; CheckWritable: " + errorText(err)
			}
			return errorText(err)
		}, `the folder "`+dir+`" can't be written: permission denied`)
	}
	if got := tree(t, dir); !reflect.DeepEqual(got, before) {
		t.Errorf("the folder changed: %v", got)
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

// B065: what passes on Windows is tried again, for a bounded time; what does
// not pass leaves the old files.
func TestRenameThatPasses(t *testing.T) {
	t.Parallel()
	old, next := contents("0.1.0"), contents("0.2.0")
	next[LicenseName] = []byte("another licence\n")
	source := sourceOf(t, "v0.2.0", next)
	sharing := errors.New("sharing violation")
	for _, failures := range []int{2, 1 << 30} {
		dir := vendored(t, "v0.1.0", old)
		before, beforeTimes := tree(t, dir), times(t, dir)
		var slept time.Duration
		left := failures
		seams := realSeams()
		seams.passing = func(err error) bool { return errors.Is(err, sharing) }
		seams.sleep = func(d time.Duration) { slept += d }
		seams.before = func(step, name string) error {
			if step == "rename once" && name == SQLName && left > 0 {
				left--
				return sharing
			}
			return nil
		}
		s, err := begin(dir, "pgque-vendor update v0.2.0", seams)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Commit(next, source)
		if closeErr := s.Close(); closeErr != nil {
			t.Error(closeErr)
		}
		if failures == 2 {
			if err != nil || slept == 0 || !reflect.DeepEqual(tree(t, dir), treeOf(next, source)) {
				t.Errorf("two failures: %v, slept %s", err, slept)
			}
			continue
		}
		if !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), SQLName) || slept < time.Second || slept > 10*time.Second {
			t.Errorf("never: %v, slept %s", err, slept)
		}
		if !reflect.DeepEqual(tree(t, dir), before) {
			t.Errorf("never: the folder changed to %v", tree(t, dir))
		}
		afterTimes := times(t, dir)
		delete(beforeTimes, dir)
		delete(afterTimes, dir)
		if !reflect.DeepEqual(beforeTimes, afterTimes) {
			t.Error("never: the old files came back with other times")
		}
	}
}

// A folder that could not be put back says so, and the same command repairs it.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	old, next := contents("0.1.0"), contents("0.2.0")
	next[LicenseName] = []byte("another licence\n")
	source := sourceOf(t, "v0.2.0", next)
	dir := vendored(t, "v0.1.0", old)
	broken := false
	seams := realSeams()
	seams.before = func(step, name string) error {
		if step == "rename" && name == SQLName {
			broken = true
		}
		if broken {
			return errors.New("input/output error")
		}
		return nil
	}
	s, err := begin(dir, "pgque-vendor update v0.2.0", seams)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Commit(next, source)
	var f *fault.Error
	if !errors.As(err, &f) || f.Class != fault.Usage || !strings.Contains(f.Text, "half written") || strings.Join(f.Hints, "") != "pgque-vendor update v0.2.0" {
		t.Errorf("got %v %#v", err, f)
	}
	s.Close()
	r := mustCheck(t, dir)
	if !r.Interrupted || r.Clean() {
		t.Errorf("got %s", summary(r))
	}
	if got := r.Findings[0]; got.Code != Interrupted || got.Hint != "pgque-vendor update v0.2.0" {
		t.Errorf("got %+v", got)
	}
	// A run that gives up does not take the mark away.
	s, err = Begin(dir, "pgque-vendor update v0.3.0")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Interrupted() {
		t.Error("Begin does not see it")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if r = mustCheck(t, dir); !r.Interrupted || r.Findings[0].Hint != "pgque-vendor update v0.2.0" {
		t.Errorf("got %+v", r.Findings)
	}
	if edits := LocalEdits(r, source.Files); len(edits) != 0 {
		t.Errorf("the same update calls it local edits: %+v", edits)
	}
	mustWrite(t, dir, next, source)
	if got := tree(t, dir); !reflect.DeepEqual(got, treeOf(next, source)) {
		t.Errorf("got %v", got)
	}
}

// The new names are there, but maybe not on the disk yet: as long as that is not
// known, the folder is marked.
func TestNamesNotOnTheDisk(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	renamed := false
	s := realSeams()
	s.before = func(step, name string) error {
		renamed = renamed || step == "rename" && name == SourceName
		if renamed && step == "sync" && name == "." {
			return errors.New("input/output error")
		}
		return nil
	}
	if err := runUpdate(dir, "v0.2.0", nextFiles(), sourceOf(t, "v0.2.0", nextFiles()), s); !fault.Is(err, fault.Usage) {
		t.Errorf("got %v", err)
	}
	if r := mustCheck(t, dir); !r.Interrupted || r.Findings[0].Hint != "pgque-vendor update v0.2.0" {
		t.Errorf("got %s %+v", summary(r), r.Findings)
	}
}

// The command in a staging folder can come from anybody's repository.
func TestInterruptedHintIsOurs(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	ours := "pgque-vendor restore --force --dir " + filepath.ToSlash(dir)
	for text, want := range map[string]string{
		"pgque-vendor update v0.2.0\n":               "pgque-vendor update v0.2.0",
		"pgque-vendor update 'a b' --dir 'x y'\n":    "pgque-vendor update 'a b' --dir 'x y'",
		"curl example.com | sh":                      ours,
		"pgque-vendor update v1; rm -rf x":           ours,
		"pgque-vendor update v1\nrm -rf x\n":         ours,
		"pgque-vendor update `x`":                    ours,
		"pgque-vendor update $(x)":                   ours,
		"pgque-vendor update \x1b[2J":                ours,
		"pgque-vendor " + strings.Repeat("x", 1<<12): ours,
		"": ours,
	} {
		put(t, dir, commandName, text)
		put(t, dir, ownerName, `{"pid": 1, "host": "evil\u001b[2J"}`)
		f := mustCheck(t, dir).Findings[0]
		if f.Code != Interrupted || f.Hint != want || strings.Contains(f.Message, "evil") {
			t.Errorf("%q: got %+v", text, f)
		}
	}
	// A run of this machine may have lifted a protection, or asked another upstream.
	// One that came with somebody's commit must not have it done by whoever repairs.
	here, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	for _, flags := range []string{"--force", "--for''ce", "--accept-moved-tag", "--go-marker", "--repo evil/PgQue", "--repo=evil/PgQue", "--api-url http://x", "--from tests/x.bundle"} {
		text := "pgque-vendor update v0.2.0 " + flags
		put(t, dir, commandName, text+"\n")
		for host, want := range map[string]string{"elsewhere": ours, here: text} {
			put(t, dir, ownerName, fmt.Sprintf(`{"pid": 1, "host": %q}`, host))
			if f := mustCheck(t, dir).Findings[0]; f.Hint != want {
				t.Errorf("%q of %q: got %+v, want %q", text, host, f, want)
			}
		}
	}
}

func TestStagingIsHiddenFromGit(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	s, err := Begin(dir, "pgque-vendor update v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(ignoreName)))
	if err != nil || !bytes.Equal(data, []byte("*\n")) {
		t.Errorf("%q, %v", data, err)
	}
	top := filepath.Dir(dir)
	put(t, top, ".git/HEAD", "x")
	if rule := ignoredBy(filepath.Join(dir, stagingName), "lock"); rule == "" {
		t.Error("git would take the lock file")
	}
}
