package gitobject

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// Kind says what a tag's name claims to be.
type Kind string

// The kinds, as list's JSON spells them.
const (
	Stable     Kind = "stable"     // a whole version: v0.2.0, 0.9.1, v0.2.0+build
	Prerelease Kind = "prerelease" // a version before one: v0.2.0-rc.1
	Other      Kind = "other"      // no whole semantic version: alpha1, v1, nightly
)

// KindOf returns the kind of a tag by its name: a semantic version of three
// numbers, with or without a "v" in front, or anything else.
func KindOf(name string) Kind {
	v := parseVersion(name)
	switch {
	case v == "":
		return Other
	case semver.Prerelease(v) != "":
		return Prerelease
	}
	return Stable
}

// SortTags puts tags into list's order: versions first, the newest at the top,
// by the precedence of semantic versioning (v0.10.0, v0.9.0, v0.9.0-rc.2);
// versions of equal precedence, which differ in build metadata or the "v", by
// name; all other names last, by name.
func SortTags(tags []Tag) {
	slices.SortFunc(tags, func(a, b Tag) int {
		return cmp.Or(semver.Compare(parseVersion(b.Name), parseVersion(a.Name)), strings.Compare(a.Name, b.Name))
	})
}

// NewestStable returns the stable tag that SortTags puts first, and whether
// there is one.
func NewestStable(tags []Tag) (Tag, bool) {
	tags = slices.Clone(tags)
	SortTags(tags)
	for _, t := range tags {
		if KindOf(t.Name) == Stable {
			return t, true
		}
	}
	return Tag{}, false
}

// Newer reports whether tag a is a later version than tag b. It is false when
// either is no version: nothing is known about their order then.
func Newer(a, b string) bool {
	va, vb := parseVersion(a), parseVersion(b)
	return va != "" && vb != "" && semver.Compare(va, vb) > 0
}

// parseVersion returns a version as package semver has them, or "" for a name
// that is no whole semantic version; semver puts that below every version.
func parseVersion(name string) string {
	v := "v" + strings.TrimPrefix(name, "v")
	if !semver.IsValid(v) || semver.Canonical(v) != strings.TrimSuffix(v, semver.Build(v)) {
		return "" // the second: "v1" and "v1.2" are short for others
	}
	return v
}
