package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stega/pgque-vendor/internal/pgtest"
	"github.com/stega/pgque-vendor/internal/standin"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// cmdVendored: "vendored [TAG]" fills vendor/pgque with the stand-in, or with
// PgQue itself where there is a clone of it; TAG is v0.1.0 or v0.2.0 (default).
func cmdVendored(ts *testscript.TestScript, _ bool, args []string) {
	tag := "v0.2.0"
	if len(args) > 0 {
		tag = args[0]
	}
	d := ts.Value("database").(*scriptDatabase)
	sql, err := standin.Release(tag)
	if d.real {
		sql = pgtest.Real(d.test, tag).SQL
	}
	ts.Check(err)
	ts.Check(writeVendoredFolder(ts.MkAbs("vendor/pgque"), sql, tag))
	ts.Setenv("PGQUE_VENDOR_ALLOW_STANDIN", "1")
}

func writeVendored(t testing.TB, dir string, sql []byte, tag string) {
	t.Helper()
	if err := writeVendoredFolder(dir, sql, tag); err != nil {
		t.Fatal(err)
	}
}

// writeVendoredFolder makes a folder as update leaves it.
func writeVendoredFolder(dir string, sql []byte, tag string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	source := &vendorfile.Source{Repository: "NikolayS/PgQue", Tag: tag, Commit: strings.Repeat("c0ffee01", 5), Files: map[string]vendorfile.File{}}
	contents := map[string][]byte{".gitattributes": []byte("* -text\n")}
	add := func(name, path string, data []byte) {
		blob := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
		sum := sha256.Sum256(data)
		source.Files[name] = vendorfile.File{Path: path, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:]), GitBlob: hex.EncodeToString(blob[:])}
		contents[name] = data
	}
	add("LICENSE", "LICENSE", []byte("a licence for tests\n"))
	add("NOTICE", "NOTICE", []byte("a notice for tests\n"))
	add("pgque.sql", "sql/pgque.sql", sql)
	contents["SOURCE.json"] = source.Format()
	for name, data := range contents {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
