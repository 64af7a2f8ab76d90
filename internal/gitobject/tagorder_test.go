package gitobject_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stega/pgque-vendor/internal/gitobject"
)

// B046: upstream's own tags and others, in the order that list promises.
func TestSortTags(t *testing.T) {
	t.Parallel()
	want := []string{
		"v0.10.0", "0.9.1", "v0.9.0", "v0.3.0-alpha.1", "v0.2.0", "v0.2.0+build", "v0.2.0-rc.10", "v0.2.0-rc.2", "v0.2.0-rc.1", "v0.1.0",
		"alpha1", "alpha2", "alpha3", "nightly", "v1", "v1.2.3-", "v1.2.3-a..b",
	}
	var tags []gitobject.Tag
	for _, name := range want {
		tags = append(tags, gitobject.Tag{Name: name})
	}
	for range 50 {
		rand.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
		newest, ok := gitobject.NewestStable(tags)
		if !ok || newest.Name != "v0.10.0" {
			t.Fatalf("NewestStable = %q, %v; want v0.10.0", newest.Name, ok)
		}
		gitobject.SortTags(tags)
		var got []string
		for _, tag := range tags {
			got = append(got, tag.Name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("SortTags = %q\nwant %q", got, want)
		}
	}
	for _, names := range [][]string{nil, {"alpha1", "nightly"}, {"v0.2.0-rc.1"}} {
		var tags []gitobject.Tag
		for _, name := range names {
			tags = append(tags, gitobject.Tag{Name: name})
		}
		if tag, ok := gitobject.NewestStable(tags); ok {
			t.Errorf("NewestStable(%q) = %q, want none", names, tag.Name)
		}
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]gitobject.Kind{
		"v0.2.0": gitobject.Stable, "0.9.1": gitobject.Stable, "v0.2.0+build": gitobject.Stable, "v0.0.0": gitobject.Stable,
		"v0.2.0-rc.1": gitobject.Prerelease, "v0.3.0-alpha.1": gitobject.Prerelease, "0.3.0-devel": gitobject.Prerelease, "v1.0.0-0": gitobject.Prerelease,
		"alpha1": gitobject.Other, "v1": gitobject.Other, "v1.2": gitobject.Other, "nightly": gitobject.Other, "vv1.2.3": gitobject.Other,
		"V1.2.3": gitobject.Other, "v01.2.3": gitobject.Other, "v1.2.3-": gitobject.Other, "v1.2.3+": gitobject.Other, "v1.2.3.4": gitobject.Other,
		"clients/go/v0.2.0": gitobject.Other, "v1.2.3-rc..1": gitobject.Other, "v1.2.3-01": gitobject.Other, "20260817": gitobject.Other, "": gitobject.Other,
		"v99999999999999999999.0.0": gitobject.Stable, // the specification sets no limit
	} {
		if got := gitobject.KindOf(name); got != want {
			t.Errorf("KindOf(%q) = %s, want %s", name, got, want)
		}
	}
}

func TestNewer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"v0.2.0", "v0.1.0", true}, {"v0.10.0", "v0.9.0", true}, {"v0.2.0", "v0.2.0-rc.2", true}, {"v0.2.0-rc.10", "v0.2.0-rc.9", true},
		{"v0.2.0", "v0.2.0", false}, {"v0.2.0+b", "v0.2.0", false}, {"v0.1.0", "v0.2.0", false}, {"0.2.1", "v0.2.0", true},
		{"v0.2.0", "alpha3", false}, {"alpha3", "v0.1.0", false}, {"", "", false},
	} {
		if got := gitobject.Newer(tt.a, tt.b); got != tt.want {
			t.Errorf("Newer(%q, %q) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}
