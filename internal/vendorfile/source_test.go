package vendorfile

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/gitobject"
)

// contents are files of our own in the place of upstream's.
func contents(version string) map[string][]byte {
	return map[string][]byte{
		LicenseName: []byte("Licence of the stand-in.\nFree to use.\n"),
		NoticeName:  []byte("Notice of the stand-in, made for tests.\n"),
		SQLName:     []byte("-- stand-in " + version + "\ncreate schema if not exists standin;  \nselect '" + version + "';\n"),
	}
}

// sourceOf describes files as an update would.
func sourceOf(t testing.TB, tag string, files map[string][]byte) *Source {
	t.Helper()
	s := &Source{
		Repository: "NikolayS/PgQue",
		Tag:        tag,
		Commit:     strings.Repeat("0123456789", 4),
		SQLVersion: strings.TrimPrefix(tag, "v"),
		Files:      map[string]File{},
	}
	for name, data := range files {
		blob, err := gitobject.BlobID(data)
		if err != nil {
			t.Fatal(err)
		}
		path := name
		if name == SQLName {
			path = "sql/" + name
		}
		s.Files[name] = File{Path: path, Size: int64(len(data)), SHA256: hashOf(data), GitBlob: string(blob)}
	}
	return s
}

// repositorySource is the SOURCE.json of this repository.
func repositorySource(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.FromSlash("../../vendor/pgque/SOURCE.json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFormatIsTheFileOfThisRepository(t *testing.T) {
	t.Parallel()
	data := repositorySource(t)
	s, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Format(); !bytes.Equal(got, data) {
		t.Errorf("Format(Parse(file)) is not the file:\n%s", got)
	}
}

// B069: the same input gives the same bytes, without HTML escapes, with LF.
func TestFormat(t *testing.T) {
	t.Parallel()
	s := sourceOf(t, "v1<&>", contents("1"))
	s.RepositoryID, s.TagObject = 42, strings.Repeat("a", 40)
	got := string(s.Format())
	for range 20 {
		if again := string(s.Format()); again != got {
			t.Fatalf("two formats differ:\n%s\n%s", got, again)
		}
	}
	if !strings.Contains(got, `"tag": "v1<&>"`) || strings.Contains(got, "\r") || !strings.HasSuffix(got, "}\n") {
		t.Errorf("got\n%s", got)
	}
	last := -1
	for _, key := range append(topKeys, `LICENSE`, `NOTICE`, `pgque.sql`) {
		if key == "LICENSE" {
			last = strings.Index(got, `"files"`)
		}
		at := last + 1 + strings.Index(got[last+1:], `"`+key+`":`)
		if at <= last {
			t.Errorf("key %q is not in its place in\n%s", key, got)
		}
		last = at
	}
	back, err := Parse([]byte(got))
	if err != nil {
		t.Fatal(err)
	}
	if string(back.Format()) != got {
		t.Error("a round trip changed the bytes")
	}
}

func TestEveryFormatFitsTheSchema(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile(filepath.FromSlash("../../docs/source.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	valid := func(data []byte) error {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			return err
		}
		return schema.Validate(document)
	}
	full := sourceOf(t, "clients/go/v0.2.0+b1", contents("1"))
	full.RepositoryID, full.TagObject, full.SQLVersion = 1, strings.Repeat("f", 40), ""
	devel := sourceOf(t, "ü", contents("1"))
	f := devel.Files[SQLName]
	f.Path, f.Size = "devel/sql/pgque.sql", SizeLimit(SQLName)
	devel.Files[SQLName] = f
	for name, data := range map[string][]byte{
		"this repository": repositorySource(t),
		"plain":           sourceOf(t, "v0.1.0", contents("1")).Format(),
		"every key":       full.Format(),
		"other path":      devel.Format(),
	} {
		if err := valid(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Parse(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The schema must be able to say no.
	good := string(repositorySource(t))
	for _, change := range [][2]string{
		{`"schema": 1`, `"schema": 2`},
		{`"tag": "v0.2.0"`, `"tag": 2`},
		{`"tag": "v0.2.0"`, `"Tag": "v0.2.0"`},
		{`"e8ee488d`, `"e8ee488`},
		{`"size": 1018`, `"size": 0`},
		{`"size": 1018`, `"size": 1048577`},
		{`"path": "NOTICE"`, `"path": "../NOTICE"`},
		{`"path": "NOTICE"`, `"path": "a\\NOTICE"`},
		{`"NOTICE": {`, `"NOTES": {`},
		{`"NOTICE": {`, strings.Replace(good[strings.Index(good, `"LICENSE": {`):strings.Index(good, `"NOTICE": {`)], "LICENSE", "EXTRA.md", 1) + `"NOTICE": {`},
		{`"NikolayS/PgQue"`, `"PgQue"`},
	} {
		bad := strings.Replace(good, change[0], change[1], 1)
		if bad == good {
			t.Fatalf("%q is not in the file", change[0])
		}
		if valid([]byte(bad)) == nil {
			t.Errorf("the schema accepts %s", change[1])
		}
	}
}

// B069: a file that means the same is accepted, however it is laid out.
func TestParseAcceptsTheSameInAnotherShape(t *testing.T) {
	t.Parallel()
	good := string(repositorySource(t))
	want, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	oneLine := strings.Join(strings.Fields(good), " ")
	tests := map[string]string{
		"CRLF":             strings.ReplaceAll(good, "\n", "\r\n"),
		"one line":         oneLine,
		"tabs":             strings.ReplaceAll(good, "  ", "\t"),
		"no final newline": strings.TrimSpace(good),
		"blank lines":      "\n\n" + good + "\n\n",
		"upper-case hash":  strings.Replace(good, "e0efc42516b5a6e6c0da43083a7960e26d59798712ea9db300796040bcc0cc69", "E0EFC42516B5A6E6C0DA43083A7960E26D59798712EA9DB300796040BCC0CC69", 1),
		"upper commit":     strings.Replace(good, "e8ee488d2c1d87ab09eed2581ec4bbc1e68315f6", "E8EE488D2C1D87AB09EED2581EC4BBC1E68315F6", 1),
		"escaped":          strings.Replace(good, `"v0.2.0"`, `"\u0076\u0030.2.0"`, 1),
		"escaped key":      strings.Replace(good, `"tag"`, `"t\u0061g"`, 1),
		"other order":      strings.Replace(strings.Replace(good, `"tag": "v0.2.0",`, "", 1), `"schema": 1,`, `"tag": "v0.2.0", "schema": 1,`, 1),
	}
	for name, text := range tests {
		got, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if string(got.Format()) != string(want.Format()) {
			t.Errorf("%s: got\n%s", name, got.Format())
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := string(repositorySource(t))
	const license = "e0efc42516b5a6e6c0da43083a7960e26d59798712ea9db300796040bcc0cc69"
	const commit = "e8ee488d2c1d87ab09eed2581ec4bbc1e68315f6"
	tests := []struct {
		name     string
		old, new string // one replacement in the good file; "" and a text: the whole file
		want     string // the whole text after "SOURCE.json:"
	}{
		// B038: the schema
		{"newer", `"schema": 1`, `"schema": 999`, `2:13: schema 999 is newer than this pgque-vendor, which reads schema 1: written by a newer pgque-vendor`},
		{"newer with keys of its own", `"schema": 1`, `"signed": [1, {"by": "x"}], "schema": 2`, `2:41: schema 2 is newer than this pgque-vendor, which reads schema 1: written by a newer pgque-vendor`},
		{"no schema", `"schema": 1,`, ``, `1:1: key "schema" is missing; this pgque-vendor reads schema 1`},
		{"schema a string", `"schema": 1`, `"schema": "1"`, `2:13: "schema" must be a number, it is the string "1"`},
		{"schema a fraction", `"schema": 1`, `"schema": 1.5`, `2:13: "schema" must be a whole number from 1 on, it is 1.5`},
		{"schema 1.0", `"schema": 1`, `"schema": 1.0`, `2:13: "schema" must be a whole number from 1 on, it is 1.0`},
		{"schema 1e0", `"schema": 1`, `"schema": 1e0`, `2:13: "schema" must be a whole number from 1 on, it is 1e0`},
		{"schema negative", `"schema": 1`, `"schema": -1`, `2:13: "schema" must be a whole number from 1 on, it is -1`},
		{"schema 0", `"schema": 1`, `"schema": 0`, `2:13: "schema" must be a whole number from 1 on, it is 0`},
		{"schema null", `"schema": 1`, `"schema": null`, `2:13: "schema" must be a number, it is null`},
		{"newer than any number", `"schema": 1`, `"schema": 99999999999999999999`, `2:13: schema 99999999999999999999 is newer than this pgque-vendor, which reads schema 1: written by a newer pgque-vendor`},
		{"schema in another case", `"schema": 1`, `"Schema": 1`, `1:1: key "schema" is missing; this pgque-vendor reads schema 1`},

		// keys
		{"unknown key", `"tag"`, `"notes": "&", "tag"`, `4:3: unknown key "notes"`},
		{"case variant", `"commit"`, `"Commit"`, `5:3: unknown key "Commit"; it is written "commit"`},
		{"case variant beside", `"commit"`, `"COMMIT": "", "commit"`, `5:3: unknown key "COMMIT"; it is written "commit"`},
		{"duplicate", `"commit"`, `"tag": "v9.9.9", "commit"`, `5:3: duplicate key "tag"`},
		{"duplicate through an escape", `"commit"`, `"t\u0061g": "v9.9.9", "commit"`, `5:3: duplicate key "tag"`},
		{"duplicate schema", `"commit"`, `"schema": 1, "commit"`, `5:3: duplicate key "schema"`},
		{"missing", `"tag": "v0.2.0",`, ``, `1:1: key "tag" is missing`},
		{"missing sql_version", `"sql_version": "0.2.0",`, ``, `1:1: key "sql_version" is missing`},

		// types
		{"tag a number", `"tag": "v0.2.0"`, `"tag": 20`, `4:10: "tag" must be a string, it is the number 20`},
		{"tag an object", `"tag": "v0.2.0"`, `"tag": {}`, `4:10: "tag" must be a string, it is an object`},
		{"tag an array", `"tag": "v0.2.0"`, `"tag": ["v0.2.0"]`, `4:10: "tag" must be a string, it is an array`},
		{"tag null", `"tag": "v0.2.0"`, `"tag": null`, `4:10: "tag" must be a string, it is null`},
		{"tag true", `"tag": "v0.2.0"`, `"tag": true`, `4:10: "tag" must be a string, it is true`},
		{"repository_id a string", `"tag"`, `"repository_id": "7", "tag"`, `4:20: "repository_id" must be a number, it is the string "7"`},
		{"not an object", ``, `[1]`, `1:1: SOURCE.json must be an object, it is an array`},
		{"a string", ``, `"x"`, `1:1: SOURCE.json must be an object, it is the string "x"`},
		{"files an array", ``, `{"schema":1,"files":[]}`, `1:21: "files" must be an object, it is an array`},
		{"file a string", ``, `{"schema":1,"files":{"LICENSE":"x"}}`, `1:32: file "LICENSE" must be an object, it is the string "x"`},

		// values
		{"short commit", commit, `e8ee488`, `5:13: "commit" is abbreviated: it has 7 digits, it must have all 40`},
		{"empty commit", commit, ``, `5:13: "commit" is empty`},
		{"long commit", commit, commit + `00`, `5:13: "commit" has 42 digits, it must have 40`},
		{"commit no hex", commit, `v0.2.0`, `5:13: "commit" must be hexadecimal, it is "v0.2.0"`},
		{"repository", `NikolayS/PgQue`, `PgQue`, `3:17: "repository": "PgQue" is no repository: it takes owner/name, as in NikolayS/PgQue`},
		{"repository a URL", `NikolayS/PgQue`, `https://github.com/NikolayS/PgQue`, `3:17: "repository": "https://github.com/NikolayS/PgQue" is no repository: it takes owner/name, as in NikolayS/PgQue`},
		{"repository up", `NikolayS/PgQue`, `NikolayS/..`, `3:17: "repository": "NikolayS/.." is no repository: it takes owner/name, as in NikolayS/PgQue`},
		{"tag", `"tag": "v0.2.0"`, `"tag": "-rf"`, `4:10: "tag": "-rf" can't be a tag's name: it starts with "-"`},
		{"sql_version", `"sql_version": "0.2.0"`, `"sql_version": "\u001b[2J"`, `6:18: "sql_version": "\x1b[2J" holds a character that can't be printed`},

		// B070: hashes
		{"no hash", `"sha256": "` + license + `",`, ``, `8:16: file "LICENSE" has no "sha256"`},
		{"empty hash", license, ``, `11:17: "sha256" is empty`},
		{"63 digits", license, license[:63], `11:17: "sha256" has 63 digits, it must have 64`},
		{"SHA-1", license, license[:40], `11:17: "sha256" has 40 digits, as a SHA-1 has; it must have 64`},
		{"prefix", license, `sha256:` + license, `11:17: "sha256" must be the 64 digits alone, without "sha256:"`},
		{"no hex", license, strings.Repeat("g", 64), `11:17: "sha256" must be hexadecimal, it is "` + strings.Repeat("g", 64) + `"`},
		{"no blob", "\"git_blob\": \"62a462adc3469b21493bd78f79cb9ba3f06a4431\"", `"size": 1`, `12:7: duplicate key "size"`},
		{"backslash", `sql/pgque.sql`, `sql\\pgque.sql`, `21:15: "path": "sql\\pgque.sql" can't be a path: it holds "\"; paths are written with "/"`},
		{"size a string", `"size": 1018`, `"size": "1018"`, `16:15: "size" must be a number, it is the string "1018"`},
		{"size 0", `"size": 1018`, `"size": 0`, `16:15: "size" must be a whole number from 1 on, it is 0`},
		{"size over the limit", `"size": 1018`, `"size": 1048577`, `16:15: file "NOTICE": size 1048577 is over the limit of 1048576 bytes`},
		{"unknown in a file", `"size": 1018`, `"mode": 1`, `16:7: unknown key "mode" in file "NOTICE"`},
		{"case variant in a file", `"size": 1018`, `"Size": 1018`, `16:7: unknown key "Size" in file "NOTICE"; it is written "size"`},
		{"no files", ``, `{"schema":1,"repository":"a/b","tag":"v1","commit":"` + commit + `","sql_version":"","files":{}}`, `1:120: "files" is empty`},
		{"a required file", ``, `{"schema":1,"repository":"a/b","tag":"v1","commit":"` + commit + `","sql_version":"","files":{"LICENSE":{"path":"LICENSE","size":1,"sha256":"` + license + `","git_blob":"` + commit + `"}}}`,
			`1:120: "files" has no "NOTICE"; LICENSE, NOTICE and pgque.sql are all required`},
		{"a file that nobody vendors", `"NOTICE": {`, `"EXTRA.md": {`, `14:5: unknown key "EXTRA.md" in "files"`},
		{"names in two cases", `"NOTICE": {`, `"license": {`, `14:5: unknown key "license" in "files"; it is written "LICENSE"`},
		{"paths in two cases", `"path": "NOTICE"`, `"path": "license"`, `7:12: the paths "LICENSE" and "license" differ only in case`},
		{"one path twice", `"path": "NOTICE"`, `"path": "LICENSE"`, `7:12: two files have the same path "LICENSE"`},
		{"a name of our own", `"NOTICE": {`, `"source.JSON": {`, `14:5: unknown key "source.JSON" in "files"`},
		{"the staging folder", `"NOTICE": {`, `".pgque-vendor": {`, `14:5: unknown key ".pgque-vendor" in "files"`},
		{"a name up", `"NOTICE": {`, `"../NOTICE": {`, `14:5: unknown key "../NOTICE" in "files"`},
		{"a name in a folder", `"NOTICE": {`, `"x/NOTICE": {`, `14:5: unknown key "x/NOTICE" in "files"`},

		// B039: conflict markers
		{"conflict", `  "tag": "v0.2.0",`, "<<<<<<< HEAD\n  \"tag\": \"v0.2.0\",\n=======\n  \"tag\": \"v0.3.0\",\n>>>>>>> other", `4:1: merge conflict in SOURCE.json (<<<<<<<); pick a side, or vendor again`},
		{"conflict, CRLF", `  "tag": "v0.2.0",`, "<<<<<<< HEAD\r\n  \"tag\": \"v0.2.0\",\r\n=======\r\n  \"tag\": \"v0.3.0\",\r\n>>>>>>> other\r", `4:1: merge conflict in SOURCE.json (<<<<<<<); pick a side, or vendor again`},
		{"diff3, first marker taken out", `  "tag": "v0.2.0",`, "  \"tag\": \"v0.2.0\",\n||||||| base\n=======\n  \"tag\": \"v0.3.0\",\n>>>>>>> other", `5:1: merge conflict in SOURCE.json (|||||||); pick a side, or vendor again`},
		{"half resolved", `  "tag": "v0.2.0",`, "  \"tag\": \"v0.2.0\",\n=======\n", `5:1: merge conflict in SOURCE.json (=======); pick a side, or vendor again`},

		// B062, B063: encodings
		{"BOM", ``, "\xef\xbb\xbf" + good, `1:1: the file starts with a UTF-8 byte order mark (BOM); save it without one`},
		{"UTF-16LE", ``, utf16(good, false), `1:1: the file looks like UTF-16; save it as UTF-8 without BOM`},
		{"UTF-16BE", ``, utf16(good, true), `1:1: the file looks like UTF-16; save it as UTF-8 without BOM`},
		{"UTF-16LE, no BOM", ``, utf16(good, false)[2:], `1:1: the file looks like UTF-16; save it as UTF-8 without BOM`},
		{"Latin-1", `"tag": "v0.2.0"`, "\"tag\": \"\xfc\"", `4:11: the file is not valid UTF-8`},

		// no JSON
		{"empty", ``, "", `1:1: the file is empty`},
		{"blank", ``, " \n", `1:1: the file is empty`},
		{"cut", ``, good[:300], `11:73: the file ends too early: it is no whole JSON document`},
		{"two documents", ``, good + "{}", `28:1: more text after the end of the document`},
		{"trailing comma", `"sql_version": "0.2.0",`, `"sql_version": "0.2.0",,`, `6:26: no valid JSON: invalid character ',' looking for beginning of object key string`},
		{"comment", `"tag"`, `// why` + "\n" + `"tag"`, `4:3: no valid JSON: invalid character '/' looking for beginning of object key string`},
		{"single quotes", `"v0.2.0"`, `'v0.2.0'`, `4:10: no valid JSON: invalid character '\'' looking for beginning of value`},
		{"column counts characters", `"tag": "v0.2.0"`, `"tag": "äöü", "x": 1`, `4:17: unknown key "x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := tt.new
			if tt.old != "" {
				if text = strings.Replace(good, tt.old, tt.new, 1); text == good {
					t.Fatalf("%q is not in the file", tt.old)
				}
			}
			_, err := Parse([]byte(text))
			if err == nil {
				t.Fatal("it was accepted")
			}
			if got := err.Error(); got != "SOURCE.json:"+tt.want {
				t.Errorf("got  %s\nwant SOURCE.json:%s", got, tt.want)
			}
			if !fault.Is(err, fault.Integrity) {
				t.Errorf("class %v, want integrity", fault.ClassOf(err))
			}
			if newer := strings.HasPrefix(tt.name, "newer"); errors.Is(err, ErrNewerSchema) != newer {
				t.Errorf("errors.Is(err, ErrNewerSchema) = %v", !newer)
			}
		})
	}
}

// B039: a value may hold what looks like a marker, and the hints of a real
// conflict name the tags of both sides.
func TestConflictMarkers(t *testing.T) {
	t.Parallel()
	good := string(repositorySource(t))
	text := strings.Replace(good, `"sql_version": "0.2.0"`, `"sql_version": "======= >>>>>>> <<<<<<<"`, 1)
	if _, err := Parse([]byte(text)); err != nil {
		t.Errorf("a value: %v", err)
	}
	text = strings.Replace(good, `"tag": "v0.2.0",`, "\n<<<<<<< a\n\"tag\": \"v0.2.0\",\n=======\n\"tag\": \"v1;x\",\n>>>>>>> b\n", 1)
	_, err := Parse([]byte(text))
	var f *fault.Error
	if !errors.As(err, &f) || strings.Join(f.Hints, "|") != "pgque-vendor update v0.2.0 --force|pgque-vendor update 'v1;x' --force" {
		t.Errorf("hints of %v: %q", err, f.Hints)
	}
}

func TestNewerSchemaSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`{"schema": 7}`))
	var f *fault.Error
	if !errors.As(err, &f) || len(f.Hints) != 1 || f.Hints[0] != "upgrade pgque-vendor to a version that reads schema 7" {
		t.Errorf("got %#v", err)
	}
}

// utf16 re-encodes ASCII with a byte order mark.
func utf16(s string, bigEndian bool) string {
	var b strings.Builder
	for _, c := range append([]rune{0xfeff}, []rune(s)...) {
		pair := []byte{byte(c), byte(c >> 8)}
		if bigEndian {
			pair[0], pair[1] = pair[1], pair[0]
		}
		b.Write(pair)
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	good := string(repositorySource(f))
	f.Add([]byte(good))
	f.Add([]byte(strings.ReplaceAll(good, "\n", "\r\n")))
	f.Add([]byte(good[:200]))
	f.Add([]byte("<<<<<<< HEAD\n" + good))
	f.Add([]byte(utf16(good, false)))
	f.Add([]byte(`{"schema": 2}`))
	f.Add([]byte(`{"schema": 1, "files": {"a": {"b": [[[]]]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if !fault.Is(err, fault.Integrity) || !strings.HasPrefix(err.Error(), "SOURCE.json:") {
				t.Fatalf("class or position is missing: %v", err)
			}
			return
		}
		first := s.Format()
		again, err := Parse(first)
		if err != nil {
			t.Fatalf("what Format wrote is refused: %v\n%s", err, first)
		}
		if second := again.Format(); !bytes.Equal(first, second) {
			t.Fatalf("not stable:\n%s\n%s", first, second)
		}
	})
}
