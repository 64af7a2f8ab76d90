package gitrepo_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"testing"

	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/gitrepo"
)

// upstreamSQL is what PgQue's tags hold, as read from a clone with git and
// sha256sum.
var upstreamSQL = []struct {
	tag       string
	commit    gitobject.ID
	annotated bool
	path      string
	size      int
	blob      gitobject.ID
	sha256    string
}{
	{"alpha1", "614d862644bd6c4fdcdf05c3b174b4f891cce656", false, "sql/pgque.sql", 160047, "d7af38bb303cbde3414d9995cf41d17a238d9934", "e289cecf2e0a3a5fb28034af8d6e017288e45f01920c80712298643a87806734"},
	{"alpha2", "25df9198010692336c3c4044105a1cef4ab6e5f3", false, "sql/pgque.sql", 160047, "d7af38bb303cbde3414d9995cf41d17a238d9934", "e289cecf2e0a3a5fb28034af8d6e017288e45f01920c80712298643a87806734"},
	{"alpha3", "1b8ce047afd28bd60e75e8540a08d0bcd5d6f2fc", true, "sql/pgque.sql", 160075, "061b9bb5cd0db5a9fd4a147481a33bb264f67566", "1208bb319a7271f2f608b5ae1f8071801c5169cd3e1adcd489d316a6f1391f01"},
	{"v0.1.0", "a159a743e9f63f758273160e6144a556d4fca0d7", false, "sql/pgque.sql", 173428, "a576ec64f71d49de93d921af39cc4e5b7e7c67af", "ed2b7d6effb0566ea71429a14c9d08b733f7394f2a73eec4072c2122a4eeaa67"},
	{"v0.2.0", "e8ee488d2c1d87ab09eed2581ec4bbc1e68315f6", false, "sql/pgque.sql", 259935, "e3ac01a7647cec977aa0bcb3f9660d3c7017bc90", "e7ffe1c941666e6789e5c91a7d0b28196bb8a883ebaf407b13794271926a5b2f"},
	{"v0.2.0-rc.1", "4cb5c0617d62d65fef7ce0d44bfdeafabf434f5f", true, "sql/pgque.sql", 255352, "4c8f224c0631844aa3fe817fbc9dc6dff107165d", "9f8edcd49ef612f2f92930708939646e0ec28bd3e70e00478c7fd2d6e38d8b1c"},
	{"v0.2.0-rc.2", "a92c56e296d16e685297f239497785f7c48a7489", true, "sql/pgque.sql", 259945, "bf70020b6b0ad0afa71330f9bfceac0534dc9b85", "88a98bd10a31dac43134aec50a9d32e499cf536b3c59f1c2e4b099fe2338d1d8"},
	{"v0.3.0-alpha.1", "166e9968e4f913e596b89245f62b17c392a873bb", true, "sql/pgque.sql", 259935, "e3ac01a7647cec977aa0bcb3f9660d3c7017bc90", "e7ffe1c941666e6789e5c91a7d0b28196bb8a883ebaf407b13794271926a5b2f"},
	{"v0.3.0-alpha.1", "166e9968e4f913e596b89245f62b17c392a873bb", true, "devel/sql/pgque.sql", 300090, "765690cdb6024b8375b3a44efe260e1a39d482a6", "1dd0ef9cdd924c3e9a11593f4775944c240cd3c780d47b99c9cff05e63072329"},
}

// LICENSE and NOTICE are the same at all tags.
var upstreamNotices = map[string]gitobject.ID{
	"LICENSE": "62a462adc3469b21493bd78f79cb9ba3f06a4431",
	"NOTICE":  "dc87da321e0db43647189ec42eaefe5443440cfe",
}

func upstream(t testing.TB) string {
	dir := os.Getenv("PGQUE_UPSTREAM_GIT")
	if dir == "" {
		t.Skip("PGQUE_UPSTREAM_GIT is not set")
	}
	return dir
}

func TestUpstream(t *testing.T) {
	t.Parallel()
	r := open(t, upstream(t))
	tags, err := r.Tags(t.Context())
	if err != nil || len(tags) != 8 {
		t.Fatalf("Tags = %d, %v; want 8", len(tags), err)
	}
	for _, want := range upstreamSQL {
		tag, err := r.ResolveTag(t.Context(), want.tag)
		if err != nil || tag.Commit != want.commit || tag.Annotated() != want.annotated {
			t.Errorf("ResolveTag(%q) = %+v, %v; want %s", want.tag, tag, err, want.commit)
			continue
		}
		entries, err := r.Entries(t.Context(), tag.Commit, []string{want.path, "LICENSE", "NOTICE"})
		if err != nil || len(entries) != 3 || entries[0].ID != want.blob || entries[1].ID != upstreamNotices["LICENSE"] || entries[2].ID != upstreamNotices["NOTICE"] {
			t.Errorf("%s: Entries = %v, %v", want.tag, entries, err)
			continue
		}
		data, err := r.Blob(t.Context(), want.blob, 16<<20)
		sum := sha256.Sum256(data)
		if err != nil || len(data) != want.size || hex.EncodeToString(sum[:]) != want.sha256 {
			t.Errorf("%s: Blob = %d bytes, %v", want.tag, len(data), err)
		}
	}
}

// The whole of what "diff v0.2.0 --from CLONE" asks for: a tag, two commits'
// entries, two blobs. Git itself is started twice.
func BenchmarkTwoTags(b *testing.B) {
	dir := upstream(b)
	paths := []string{"sql/pgque.sql", "LICENSE", "NOTICE"}
	for b.Loop() {
		r, err := gitrepo.Open(b.Context(), gitrepo.Options{Path: dir})
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"v0.1.0", "v0.2.0"} {
			tag, err := r.ResolveTag(b.Context(), name)
			if err != nil {
				b.Fatal(err)
			}
			entries, err := r.Entries(b.Context(), tag.Commit, paths)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := r.Blob(b.Context(), entries[0].ID, 16<<20); err != nil {
				b.Fatal(err)
			}
		}
		r.Close()
	}
}
