package gitobject

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
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
	case v == nil:
		return Other
	case v.Prerelease() != "":
		return Prerelease
	}
	return Stable
}

// SortTags puts tags into list's order: versions first, the newest at the top,
// by the precedence of semantic versioning (v0.10.0, v0.9.0, v0.9.0-rc.2);
// versions of equal precedence, which differ in build metadata or the "v", by
// name; all other names last, by name.
func SortTags(tags []Tag) {
	type keyed struct {
		tag     Tag
		version *semver.Version
	}
	list := make([]keyed, len(tags))
	for i, t := range tags {
		list[i] = keyed{t, parseVersion(t.Name)}
	}
	slices.SortFunc(list, func(a, b keyed) int {
		return cmp.Or(compareVersions(b.version, a.version), strings.Compare(a.tag.Name, b.tag.Name))
	})
	for i := range list {
		tags[i] = list[i].tag
	}
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
	return va != nil && vb != nil && va.GreaterThan(vb)
}

// compareVersions puts what is no version (nil) below every version.
func compareVersions(a, b *semver.Version) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return a.Compare(b)
}

// parseVersion returns nil for a name that is no whole semantic version.
func parseVersion(name string) *semver.Version {
	v, err := semver.StrictNewVersion(strings.TrimPrefix(name, "v"))
	if err != nil {
		return nil
	}
	return v
}
