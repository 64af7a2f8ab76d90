package vendorfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/fault"
)

// vendored makes a whole folder the way an update does.
func vendored(t testing.TB, tag string, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "third_party", "pgque")
	mustWrite(t, dir, files, sourceOf(t, tag, files))
	return dir
}

func mustWrite(t testing.TB, dir string, files map[string][]byte, source *Source) []string {
	t.Helper()
	s, err := Begin(dir, "pgque-vendor update "+source.Tag)
	if err != nil {
		t.Fatal(err)
	}
	written, err := s.Commit(files, source)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return written
}

func mustCheck(t testing.TB, dir string) *Report {
	t.Helper()
	r, err := Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// summary is a report on one line: the states, then the findings.
func summary(r *Report) string {
	var parts []string
	for _, f := range r.Files {
		parts = append(parts, f.Name+"="+string(f.State))
	}
	for _, f := range r.Findings {
		parts = append(parts, f.Code+"("+f.File+")")
	}
	return strings.Join(parts, " ")
}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCheckClean(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	dir := vendored(t, "v0.1.0", files)
	r := mustCheck(t, dir)
	if !r.Clean() || summary(r) != "LICENSE=ok NOTICE=ok pgque.sql=ok" {
		t.Fatalf("got %s, %+v", summary(r), r.Findings)
	}
	var total int64
	for _, f := range r.Files {
		want := File{Size: int64(len(files[f.Name])), SHA256: hashOf(files[f.Name])}
		if f.Size != want.Size || f.SHA256 != want.SHA256 || f.ExpectedSize != want.Size || f.ExpectedSHA256 != want.SHA256 {
			t.Errorf("%+v, want %+v", f, want)
		}
		total += f.Size
	}
	if r.Bytes != total || r.Dir != dir || len(r.Notes) != 0 || r.Source.Tag != "v0.1.0" {
		t.Errorf("report %+v", r)
	}
}

// Zero files checked is never a success.
func TestEmptyReportIsNotClean(t *testing.T) {
	t.Parallel()
	if (&Report{}).Clean() {
		t.Error("a report without files is clean")
	}
}

func TestCheckStates(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	sql := string(files[SQLName])
	symlink := func(target string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, SQLName))
			if err := os.Symlink(target, filepath.Join(dir, SQLName)); err != nil {
				t.Skip("no symlinks here: ", err)
			}
		}
	}
	write := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { put(t, dir, SQLName, text) }
	}
	tests := []struct {
		name    string
		damage  func(t *testing.T, dir string)
		state   State
		message string // a part of it
		hint    string // DIR stands for the folder
	}{
		{"missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, SQLName)) }, Missing, "it is not there", "pgque-vendor restore --dir DIR"},
		{"one byte changed", write(strings.Replace(sql, "schema", "schemb", 1)), Modified, "it was changed: ", "pgque-vendor restore --force --dir DIR"},
		{"a line taken out", write(strings.Replace(sql, "create schema if not exists standin;  \n", "", 1)), Modified, "(-39)", "pgque-vendor restore --force --dir DIR"},
		// B071
		{"final newline gone", write(strings.TrimSuffix(sql, "\n")), Modified, "whitespace only: the newline at its end is gone", "pgque-vendor restore --force --dir DIR"},
		{"final newline twice", write(sql + "\n"), Modified, "whitespace only: there is more of it at its end", "pgque-vendor restore --force --dir DIR"},
		{"blanks at the end", write(sql + "  \n\t\r\n"), Modified, "whitespace only", "pgque-vendor restore --force --dir DIR"},
		{"trailing blanks stripped", write(strings.ReplaceAll(sql, "  \n", "\n")), Modified, "it was changed", "pgque-vendor restore --force --dir DIR"},
		// B023
		{"CRLF", write(strings.ReplaceAll(sql, "\n", "\r\n")), LineEndings, "differs only in line endings (3 CRLF)", "pgque-vendor restore --force --dir DIR"},
		{"CRLF on one line", write(strings.Replace(sql, "\n", "\r\n", 1)), LineEndings, "(1 CRLF)", "pgque-vendor restore --force --dir DIR"},
		{"CRLF and an edit", write(strings.ReplaceAll(strings.Replace(sql, "schema", "schemb", 1), "\n", "\r\n")), Modified, "it was changed", "pgque-vendor restore --force --dir DIR"},
		// B062, B063
		{"BOM", write("\xef\xbb\xbf" + sql), BOM, "starts with a UTF-8 byte order mark (BOM); but for that and line endings it is right", "pgque-vendor restore --force --dir DIR"},
		{"BOM and CRLF", write("\xef\xbb\xbf" + strings.ReplaceAll(sql, "\n", "\r\n")), BOM, "it is right", "pgque-vendor restore --force --dir DIR"},
		{"BOM and an edit", write("\xef\xbb\xbf" + sql + "x"), BOM, "byte order mark (BOM)", "pgque-vendor restore --force --dir DIR"},
		{"UTF-16LE", write(utf16(sql, false)), UTF16, "looks like UTF-16", "pgque-vendor restore --force --dir DIR"},
		{"UTF-16BE", write(utf16(sql, true)), UTF16, "looks like UTF-16", "pgque-vendor restore --force --dir DIR"},
		{"UTF-16LE without BOM", write(utf16(sql, false)[2:]), UTF16, "looks like UTF-16", "pgque-vendor restore --force --dir DIR"},
		{"cut", write(sql[:30]), Truncated, fmt.Sprintf("it is cut off: 30 of %d bytes", len(sql)), "pgque-vendor restore --force --dir DIR"},
		{"empty", write(""), Empty, "it is empty", "pgque-vendor restore --force --dir DIR"},
		{"over the limit", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, SQLName), SizeLimit(SQLName)+1); err != nil {
				t.Fatal(err)
			}
		}, Modified, "over the limit", "pgque-vendor restore --force --dir DIR"},
		{"a directory", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, SQLName))
			put(t, dir, SQLName+"/x", "x")
		}, NotRegular, "it is a directory", "rm -r DIR/pgque.sql; pgque-vendor restore --dir DIR"},
		// B036
		{"symlink to the right bytes", func(t *testing.T, dir string) {
			put(t, filepath.Dir(dir), "right.sql", sql)
			symlink("../right.sql")(t, dir)
		}, NotRegular, "it is a symlink", "rm DIR/pgque.sql; pgque-vendor restore --dir DIR"},
		{"dangling symlink", symlink("nowhere"), NotRegular, "it is a symlink", "rm DIR/pgque.sql; pgque-vendor restore --dir DIR"},
		{"symlink loop", symlink(SQLName), NotRegular, "it is a symlink", "rm DIR/pgque.sql; pgque-vendor restore --dir DIR"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := vendored(t, "v0.1.0", files)
			tt.damage(t, dir)
			r := mustCheck(t, dir)
			if len(r.Findings) != 1 || r.Clean() {
				t.Fatalf("findings %+v", r.Findings)
			}
			f := r.Findings[0]
			if f.Code != string(tt.state) || f.File != SQLName || !strings.Contains(f.Message, tt.message) {
				t.Errorf("got %+v, want %s with %q", f, tt.state, tt.message)
			}
			if want := strings.ReplaceAll(tt.hint, "DIR", filepath.ToSlash(dir)); f.Hint != want {
				t.Errorf("hint %q, want %q", f.Hint, want)
			}
			if got := r.Files[2]; got.Name != SQLName || got.State != tt.state {
				t.Errorf("file %+v", got)
			}
			if r.Files[0].State != OK || r.Files[1].State != OK {
				t.Errorf("other files: %s", summary(r))
			}
		})
	}
}

func TestCheckTruncatedAtABlock(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	files[SQLName] = []byte(strings.Repeat(strings.Repeat("x", 1023)+"\n", 10))
	dir := vendored(t, "v0.1.0", files)
	put(t, dir, SQLName, string(files[SQLName][:8192]))
	if got := summary(mustCheck(t, dir)); !strings.Contains(got, "pgque.sql=truncated") {
		t.Errorf("cut at 8192: %s", got)
	}
	put(t, dir, SQLName, string(files[SQLName][:7168]))
	if got := summary(mustCheck(t, dir)); !strings.Contains(got, "pgque.sql=modified") {
		t.Errorf("whole lines are left: %s", got)
	}
}

func TestCheckNamedPipe(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	os.Remove(filepath.Join(dir, SQLName))
	makePipe(t, filepath.Join(dir, SQLName)) // to open it would wait for ever
	if got := summary(mustCheck(t, dir)); got != "LICENSE=ok NOTICE=ok pgque.sql=not-regular not-regular(pgque.sql)" {
		t.Errorf("got %s", got)
	}
}

// What nobody vendored is found, whatever it is, and all of it.
func TestCheckExtras(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	put(t, dir, "notes.txt", "x")
	put(t, dir, "sub/x", "x")
	put(t, dir, "pgque.sql.orig", "x")
	put(t, dir, ".DS_Store", "x")
	if err := os.Symlink("LICENSE", filepath.Join(dir, "link")); err != nil {
		t.Skip("no symlinks here: ", err)
	}
	want := "LICENSE=ok NOTICE=ok pgque.sql=ok extra(.DS_Store) extra(link) extra(notes.txt) extra(pgque.sql.orig) extra(sub)"
	r := mustCheck(t, dir)
	if got := summary(r); got != want || r.Clean() {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, f := range r.Findings {
		want := "rm " + filepath.ToSlash(filepath.Join(dir, f.File))
		if f.File == "sub" {
			want = "rm -r " + filepath.ToSlash(filepath.Join(dir, f.File))
		}
		if f.Hint != want {
			t.Errorf("hint %q, want %q", f.Hint, want)
		}
	}
}

func TestCheckCaseVariant(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	if err := os.Rename(filepath.Join(dir, SQLName), filepath.Join(dir, "PGQUE.SQL")); err != nil {
		t.Fatal(err)
	}
	r := mustCheck(t, dir)
	if got := summary(r); got != "LICENSE=ok NOTICE=ok pgque.sql=missing extra(PGQUE.SQL) missing(pgque.sql)" {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(r.Findings[0].Message, `differs from "pgque.sql" only in case`) {
		t.Errorf("got %+v", r.Findings[0])
	}
}

func TestCheckSource(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
		hint   string
		match  error
	}{
		{"missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, SourceName)) }, "no-source(SOURCE.json)", "git checkout -- DIR/SOURCE.json", fs.ErrNotExist},
		{"bad", func(t *testing.T, dir string) { put(t, dir, SourceName, `{"schema": 1, "x": 1}`) }, "bad-source(SOURCE.json)", "git checkout -- DIR/SOURCE.json", nil},
		{"bad, no git", func(t *testing.T, dir string) {
			put(t, dir, SourceName, "{")
			if err := os.RemoveAll(filepath.Join(dir, "..", ".git")); err != nil {
				t.Fatal(err)
			}
		}, "bad-source(SOURCE.json)", "pgque-vendor update --latest --force --dir DIR", nil},
		{"newer", func(t *testing.T, dir string) { put(t, dir, SourceName, `{"schema": 9}`) }, "bad-source(SOURCE.json)", "upgrade pgque-vendor to a version that reads schema 9", ErrNewerSchema},
		{"conflict", func(t *testing.T, dir string) {
			data, _ := os.ReadFile(filepath.Join(dir, SourceName))
			put(t, dir, SourceName, "<<<<<<< a\n"+string(data)+"=======\n>>>>>>> b\n")
		}, "bad-source(SOURCE.json)", "pgque-vendor update v0.1.0 --force --dir DIR", nil},
		{"symlink", func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, SourceName), filepath.Join(dir, "..", SourceName)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../"+SourceName, filepath.Join(dir, SourceName)); err != nil {
				t.Skip("no symlinks here: ", err)
			}
		}, "not-regular(SOURCE.json)", "rm DIR/SOURCE.json; git checkout -- DIR/SOURCE.json", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := vendored(t, "v0.1.0", contents("0.1.0"))
			put(t, filepath.Dir(dir), ".git/HEAD", "x")
			tt.damage(t, dir)
			r := mustCheck(t, dir)
			if got := summary(r); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if want := strings.ReplaceAll(tt.hint, "DIR", filepath.ToSlash(dir)); r.Findings[0].Hint != want {
				t.Errorf("hint %q, want %q", r.Findings[0].Hint, want)
			}
			if r.Source != nil || r.SourceErr == nil || r.Clean() {
				t.Errorf("source %v, error %v, clean %v", r.Source, r.SourceErr, r.Clean())
			}
			if tt.match != nil && !errors.Is(r.SourceErr, tt.match) {
				t.Errorf("the error %v does not match %v", r.SourceErr, tt.match)
			}
		})
	}
}

func TestCheckFolderMissing(t *testing.T) {
	t.Parallel()
	tests := []struct{ file, text, message, hint string }{
		{"go.mod", "module x\n", `likely "go mod vendor" deleted it`, "git checkout -- "},
		{"Cargo.toml", "", `likely "cargo vendor" deleted it`, "git checkout -- "},
		{".gitignore", "vendor/\n", `likely a .gitignore kept it out of git (.gitignore:1: "vendor/")`, "git checkout -- "},
		{"README", "", "the folder is not there", "pgque-vendor update --latest --dir "},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			top := t.TempDir()
			put(t, top, ".git/HEAD", "x")
			put(t, top, tt.file, tt.text)
			dir := filepath.Join(top, "vendor", "pgque")
			r := mustCheck(t, dir)
			if got := summary(r); got != "no-source()" || r.Clean() || !errors.Is(r.SourceErr, fs.ErrNotExist) {
				t.Fatalf("got %s, %v", got, r.SourceErr)
			}
			if f := r.Findings[0]; !strings.HasSuffix(f.Message, tt.message) || f.Hint != tt.hint+filepath.ToSlash(dir) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// The folder itself as a symlink, or as a file.
func TestCheckFolderIsNone(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip("no symlinks here: ", err)
	}
	for _, folder := range []string{link, link + "/", filepath.Join(dir, SQLName)} {
		r, err := Check(folder)
		if err != nil {
			t.Errorf("%s: %v", folder, err)
		} else if summary(r) != "not-regular()" || r.Clean() {
			t.Errorf("%s: %s", folder, summary(r))
		}
	}
}

func TestCheckUnreadable(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	if err := os.Chmod(filepath.Join(dir, SQLName), 0); err != nil {
		t.Fatal(err)
	}
	asNobody(t, dir, func() string {
		r, err := Check(dir)
		if err != nil {
			return err.Error()
		}
		return summary(r)
	}, "LICENSE=ok NOTICE=ok pgque.sql=unreadable unreadable(pgque.sql)")
}

// B098: no write access is needed, and nothing is written.
func TestCheckReadOnly(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	before := times(t, dir)
	for _, name := range []string{SQLName, LicenseName, NoticeName, SourceName, "."} {
		mode := fs.FileMode(0o444)
		if name == "." {
			mode = 0o555
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(dir, 0o755)
	asNobody(t, dir, func() string {
		r, err := Check(dir)
		if err != nil {
			return err.Error()
		}
		return summary(r)
	}, "LICENSE=ok NOTICE=ok pgque.sql=ok")
	if after := times(t, dir); !reflect.DeepEqual(before, after) {
		t.Errorf("times changed from %v to %v", before, after)
	}
}

// B036: a symlink is named, also where only its text would count.
func TestCheckAttributesSymlink(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	path := filepath.Join(dir, attributesName)
	if err := os.Rename(path, filepath.Join(dir, "..", attributesName)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../"+attributesName, path); err != nil {
		t.Skip("no symlinks here: ", err)
	}
	r := mustCheck(t, dir)
	if got := summary(r); got != "LICENSE=ok NOTICE=ok pgque.sql=ok not-regular(.gitattributes)" || r.Clean() {
		t.Errorf("got %s", got)
	}
}

func TestCheckNotes(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	dir := filepath.Join(t.TempDir(), "pgque")
	source := sourceOf(t, "v0.1.0", files)
	source.SQLVersion = "1.0.0-dev" // as the SQL of upstream's v0.1.0 says
	mustWrite(t, dir, files, source)
	r := mustCheck(t, dir)
	if !r.Clean() || len(r.Notes) != 1 || r.Notes[0] != "the SQL of v0.1.0 reports version 1.0.0-dev; that is how upstream made it" {
		t.Errorf("notes %q", r.Notes)
	}
	put(t, dir, attributesName, "*.sql text\n")
	if r = mustCheck(t, dir); !r.Clean() || len(r.Notes) != 2 || !strings.Contains(r.Notes[1], `has no line "* -text"`) {
		t.Errorf("notes %q", r.Notes)
	}
	os.Remove(filepath.Join(dir, attributesName))
	if r = mustCheck(t, dir); !r.Clean() || len(r.Notes) != 2 || !strings.Contains(r.Notes[1], "is missing") {
		t.Errorf("notes %q", r.Notes)
	}
	for tag, noted := range map[string]bool{"alpha1": false, "v0.1.0": true, "vnext": false, "v1.0.0-dev": false} {
		source.Tag = tag
		mustWrite(t, dir, files, source)
		if r = mustCheck(t, dir); (len(r.Notes) > 0) != noted {
			t.Errorf("%s: notes %q", tag, r.Notes)
		}
	}
}

func TestReadVerified(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	dir := vendored(t, "v0.1.0", files)
	source, data, err := ReadVerified(dir, SQLName)
	if err != nil || string(data) != string(files[SQLName]) || source.Tag != "v0.1.0" {
		t.Fatalf("got %v, %q, %v", source, data, err)
	}
	// Kubernetes and Docker mount files through symlinks.
	mounted := t.TempDir()
	for _, name := range []string{SQLName, SourceName} {
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(mounted, name)); err != nil {
			t.Skip("no symlinks here: ", err)
		}
	}
	if _, _, err := ReadVerified(mounted, SQLName); err != nil {
		t.Errorf("through symlinks: %v", err)
	}
	for name, damage := range map[string]struct{ file, text, want string }{
		"BOM":       {SQLName, "\xef\xbb\xbf" + string(files[SQLName]), "byte order mark"},
		"CRLF":      {SQLName, strings.ReplaceAll(string(files[SQLName]), "\n", "\r\n"), "line endings"},
		"empty":     {SQLName, "", "it is empty"},
		"edited":    {SQLName, "select 1;\n", "it was changed"},
		"no source": {SourceName, "", "SOURCE.json:1:1: the file is empty"},
	} {
		dir := vendored(t, "v0.1.0", files)
		put(t, dir, damage.file, damage.text)
		_, data, err := ReadVerified(dir, SQLName)
		if data != nil || !fault.Is(err, fault.Integrity) || !strings.Contains(err.Error(), damage.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	os.Remove(filepath.Join(dir, SQLName))
	if _, _, err := ReadVerified(dir, SQLName); !fault.Is(err, fault.Integrity) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	dir := vendored(t, "v0.1.0", files)
	if data, err := ReadFile(dir, NoticeName); err != nil || string(data) != string(files[NoticeName]) {
		t.Errorf("got %q, %v", data, err)
	}
	if _, err := ReadFile(dir, "nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if _, err := ReadFile(filepath.Join(dir, "nothing"), SQLName); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("folder missing: %v", err)
	}
	if err := os.Truncate(filepath.Join(dir, NoticeName), SizeLimit(NoticeName)+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(dir, NoticeName); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("too large: %v", err)
	}
	outside := filepath.Join(filepath.Dir(dir), "outside")
	put(t, filepath.Dir(dir), "outside", "secret")
	for _, name := range []string{"../outside", outside} {
		if data, err := ReadFile(dir, name); err == nil {
			t.Errorf("%q was read: %q", name, data)
		}
	}
	os.Remove(filepath.Join(dir, SQLName))
	if err := os.Symlink("../outside", filepath.Join(dir, SQLName)); err != nil {
		t.Skip("no symlinks here: ", err)
	}
	if data, err := ReadFile(dir, SQLName); !fault.Is(err, fault.Policy) {
		t.Errorf("a symlink: %q, %v", data, err)
	}
}

func TestLocalEdits(t *testing.T) {
	t.Parallel()
	old, next := contents("0.1.0"), contents("0.2.0")
	target := sourceOf(t, "v0.2.0", next).Files
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   string
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"missing", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, SQLName)) }, ""},
		{"equals the target", func(t *testing.T, dir string) { put(t, dir, SQLName, string(next[SQLName])) }, ""},
		{"edited", func(t *testing.T, dir string) { put(t, dir, SQLName, "x\n") }, "modified(pgque.sql)"},
		{"CRLF", func(t *testing.T, dir string) {
			put(t, dir, SQLName, strings.ReplaceAll(string(old[SQLName]), "\n", "\r\n"))
		}, "line-endings(pgque.sql)"},
		{"unknown file", func(t *testing.T, dir string) { put(t, dir, "notes", "x") }, "extra(notes)"},
		{"interrupted", func(t *testing.T, dir string) {
			put(t, dir, stagingName+"/command", "x")
			put(t, dir, SQLName, string(next[SQLName]))
		}, ""},
		{"no source, the target's files", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, SourceName))
			put(t, dir, SQLName, string(next[SQLName]))
		}, ""},
		{"no source, other files", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, SourceName)) }, "extra(pgque.sql)"},
		{"no folder", func(t *testing.T, dir string) { os.RemoveAll(dir) }, ""},
		{"bad source", func(t *testing.T, dir string) { put(t, dir, SourceName, "{}") }, "extra(pgque.sql) bad-source(SOURCE.json)"},
		{"all at once", func(t *testing.T, dir string) {
			put(t, dir, "notes", "x")
			put(t, dir, SQLName, "x\n")
			put(t, dir, LicenseName, "x\n")
		}, "modified(LICENSE) modified(pgque.sql) extra(notes)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := vendored(t, "v0.1.0", old)
			tt.damage(t, dir)
			edits := LocalEdits(mustCheck(t, dir), target)
			if got := summary(&Report{Findings: edits}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	files := contents("0.1.0")
	files[SQLName] = []byte(strings.Repeat("select 'a line of about as many bytes as SQL has';\n", 5000))
	dir := vendored(b, "v0.1.0", files)
	b.SetBytes(int64(len(files[SQLName])))
	for b.Loop() {
		if r, err := Check(dir); err != nil || !r.Clean() {
			b.Fatal(err)
		}
	}
}

// times are the times of change of a folder and all that is in it.
func times(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil {
			all[path] = info.ModTime().UnixNano()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// asNobody runs check as a user who is not root and owns nothing, since root
// may read and write everything, and compares what it returns. Everything
// above dir is made accessible first.
func asNobody(t *testing.T, dir string, check func() string, want string) {
	t.Helper()
	for above := filepath.Dir(dir); above != filepath.Clean(os.TempDir()) && above != filepath.Dir(above); above = filepath.Dir(above) {
		if err := os.Chmod(above, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := runAsNobody(t, check); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
