// Package vendorfile is the vendored folder on disk: SOURCE.json as a format
// (Parse, Source.Format), the check of the folder against it (Check), the
// staged write of update and restore (Begin, Staging.Commit), and the look at
// the repository around it (Surroundings). It knows no network, no git and no
// source of bytes: it is given bytes, or reads the folder.
//
// The folder holds pgque.sql, LICENSE and NOTICE as upstream has them,
// SOURCE.json which says what they are, and .gitattributes which keeps git
// from changing their line endings. While an update or a restore runs it also
// holds ".pgque-vendor", the staging folder; when one died half way, that
// folder is still there and Check says so.
package vendorfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// The files of the folder.
const (
	SourceName     = "SOURCE.json"
	SQLName        = "pgque.sql"
	LicenseName    = "LICENSE"
	NoticeName     = "NOTICE"
	attributesName = ".gitattributes"
	stagingName    = ".pgque-vendor"
)

// Required are the files that every folder must have, sorted. The program
// demands them, whatever SOURCE.json says: Apache-2.0 asks for LICENSE and
// NOTICE wherever the SQL goes.
func Required() []string { return []string{LicenseName, NoticeName, SQLName} }

// schemaVersion is the version of SOURCE.json's format that this program
// reads and writes.
const schemaVersion = 1

// sourceLimit caps SOURCE.json itself.
const sourceLimit = 1 << 20

// SizeLimit is how many bytes a vendored file may have: 16 MiB for the SQL,
// 1 MiB for any other.
func SizeLimit(name string) int64 {
	if name == SQLName {
		return 16 << 20
	}
	return 1 << 20
}

// Source is what SOURCE.json says: where the vendored files came from, and
// what each of them must be.
type Source struct {
	Repository   string          // GitHub's owner/name
	RepositoryID int64           // GitHub's number of the repository; 0 when not known
	Tag          string          // the tag that was asked for; it can move
	Commit       string          // the commit the tag resolved to, 40 lower-case hexadecimal digits
	TagObject    string          // the tag object of an annotated tag, else ""
	SQLVersion   string          // what the SQL itself says its version is, "" when it doesn't
	Files        map[string]File // by the name in the folder
}

// File is a vendored file as SOURCE.json describes it.
type File struct {
	Path    string `json:"path"`     // from the root of the upstream repository, with "/"
	Size    int64  `json:"size"`     // bytes
	SHA256  string `json:"sha256"`   // 64 lower-case hexadecimal digits
	GitBlob string `json:"git_blob"` // git's object id of the bytes, 40 lower-case hexadecimal digits
}

// ErrNewerSchema is wrapped by Parse's error for a SOURCE.json that a newer
// pgque-vendor wrote. No command goes on after it, not even with --force: this
// program would write the file back without what it does not know.
var ErrNewerSchema = errors.New("written by a newer pgque-vendor")

// Format returns SOURCE.json's bytes. The same Source gives the same bytes:
// the order of the keys is fixed, lines end in LF, nothing is escaped for HTML,
// and no time of writing is in it.
func (s *Source) Format() []byte {
	document := struct {
		Schema       int             `json:"schema"`
		Repository   string          `json:"repository"`
		RepositoryID int64           `json:"repository_id,omitempty"`
		Tag          string          `json:"tag"`
		Commit       string          `json:"commit"`
		TagObject    string          `json:"tag_object,omitempty"`
		SQLVersion   string          `json:"sql_version"`
		Files        map[string]File `json:"files"` // written sorted by name
	}{schemaVersion, s.Repository, s.RepositoryID, s.Tag, s.Commit, s.TagObject, s.SQLVersion, s.Files}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(document); err != nil {
		panic(fmt.Sprintf("encode SOURCE.json: %v", err)) // no type in it can fail
	}
	return b.Bytes()
}
