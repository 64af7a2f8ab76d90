package bootstrap

import (
	"encoding/json"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// provenance is what an install leaves in the database: a line of the comment
// on schema pgque. A comment is readable by everybody, writable by the owner
// only, is dumped with the schema and dies with it. A table could not do that:
// inside the schema, pgque_admin may write it; outside, it outlives the schema.
type provenance struct {
	Repository  string `json:"repository"`
	Tag         string `json:"tag"`
	Commit      string `json:"commit"`
	Path        string `json:"path"`
	SHA256      string `json:"sha256"`
	Fingerprint string `json:"fingerprint"` // of the functions right after the install
	Tool        string `json:"tool"`
}

const provenancePrefix = "pgque-vendor "

// parseProvenance finds our line in a comment and returns the rest of the
// comment too, which is somebody else's and stays.
func parseProvenance(comment string) (p *provenance, rest string) {
	var others []string
	for line := range strings.Lines(comment) {
		line = strings.TrimSuffix(line, "\n")
		if text, ours := strings.CutPrefix(line, provenancePrefix); ours {
			found := new(provenance)
			if json.Unmarshal([]byte(text), found) == nil {
				p = found
			}
			continue
		}
		others = append(others, line)
	}
	return p, strings.Join(others, "\n")
}

// comment is the whole comment: what was there, then our line.
func (p provenance) comment(rest string) string {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // no type in it can fail
	}
	if rest != "" {
		rest += "\n"
	}
	return rest + provenancePrefix + string(text)
}

// release is a version of PgQue that this program knows by its hashes.
type release struct {
	tag         string
	path        string // of the SQL file
	sha256      string // of the SQL file
	fingerprint string // of the functions it leaves behind
	// open: from before the roles were kept apart. Its writer inherits from
	// reader and its functions are executable by PUBLIC, by its own design.
	open bool
}

// knownReleases recognises installs that were made by hand. A release that is
// not listed is no problem: its provenance says what it is.
func knownReleases() []release {
	return []release{
		{"v0.1.0", "sql/pgque.sql", "ed2b7d6effb0566ea71429a14c9d08b733f7394f2a73eec4072c2122a4eeaa67", "5d9fcd0f06f4730cccbfa8d5ac1e7d507391dcd8fd0618f4c2ed55a7d7c83fc7", true},
		{"v0.2.0-rc.1", "sql/pgque.sql", "9f8edcd49ef612f2f92930708939646e0ec28bd3e70e00478c7fd2d6e38d8b1c", "d5d32ea7305a80b12002651d0c8c654ef664df48ded66588077541a27e20392a", false},
		{"v0.2.0-rc.2", "sql/pgque.sql", "88a98bd10a31dac43134aec50a9d32e499cf536b3c59f1c2e4b099fe2338d1d8", "06c5157e0b594e404cfd4c39d7cd8134ae52177f3dd5f5b1fae94038ab2f8c4b", false},
		{"v0.2.0", "sql/pgque.sql", "e7ffe1c941666e6789e5c91a7d0b28196bb8a883ebaf407b13794271926a5b2f", "9fb228b8854bfebbfd799c482f4578864f5c1d13744bc7892d5da028f01bdc3f", false},
		{"v0.3.0-alpha.1", "devel/sql/pgque.sql", "1dd0ef9cdd924c3e9a11593f4775944c240cd3c780d47b99c9cff05e63072329", "dee747dce0e3fa4b1e14d010c2acce92d8f934023f66d5976ddb0cddbeeb789f", false},
	}
}

func releaseByFile(sha256 string) (release, bool) {
	return findRelease(func(r release) bool { return r.sha256 == sha256 })
}

func releaseByFingerprint(fingerprint string) (release, bool) {
	return findRelease(func(r release) bool { return r.fingerprint == fingerprint })
}

func findRelease(match func(release) bool) (release, bool) {
	known := knownReleases()
	if i := slices.IndexFunc(known, match); i >= 0 {
		return known[i], true
	}
	return release{}, false
}

// orderedAs is the tag by which a file is ordered, and its path there. A file that is
// known by its hash counts as the release it is, whatever tag it came with:
// v0.3.0-alpha.1 still carries the SQL of v0.2.0 in its sql folder.
func orderedAs(tag, path, sha256 string) (asTag, asPath string) {
	if r, ok := releaseByFile(sha256); ok {
		return r.tag, r.path
	}
	return tag, path
}

// comparable reports whether two tags have an order.
func comparable(a, b string) bool { return semver.IsValid(a) && semver.IsValid(b) }
