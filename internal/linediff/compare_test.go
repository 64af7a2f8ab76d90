package linediff

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestSlide(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		a, b   string
		before []edit
		after  []edit
	}{
		{"an insertion", "x\ny\n", "x\ny\nx\ny\n", []edit{{0, 0, 0, 2}}, []edit{{2, 2, 2, 4}}},
		{"a removal", "x\ny\nx\ny\nz\n", "x\ny\nz\n", []edit{{0, 2, 0, 0}}, []edit{{2, 4, 2, 2}}},
		{"a change stays", "x\nx\n", "y\nx\n", []edit{{0, 1, 0, 1}}, []edit{{0, 1, 0, 1}}},
		{"into the next one", "x\nx\ny\n", "x\nx\nx\nz\n", []edit{{0, 0, 0, 1}, {2, 3, 3, 4}}, []edit{{2, 3, 2, 4}}},
		{"both, to one", "x\nx\nx\n", "x\nx\nx\nx\nx\n", []edit{{0, 0, 0, 1}, {1, 1, 2, 3}}, []edit{{3, 3, 3, 5}}},
		{"not over a different line", "x\ny\n", "x\nx\ny\n", []edit{{0, 0, 0, 1}}, []edit{{1, 1, 1, 2}}},
	} {
		d := comparison{a: newText([]byte(test.a)), b: newText([]byte(test.b)), edits: test.before}
		if d.slide(); !slices.Equal(d.edits, test.after) {
			t.Errorf("%s: %v, want %v", test.name, d.edits, test.after)
		}
	}
}

// TestMatcherForgets checks that a part leaves nothing behind for the next:
// stale counts would make the search longer, stale runes the piece too rich.
func TestMatcherForgets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(13, 14))
	for range 200 {
		data, other := randomPair(random, 60)
		a, b := newText(data), newText(other)
		left, right, distinct := number(a, b, 0, a.lines(), b.lines())
		m := newMatcher(a.lines(), b.lines(), distinct)
		m.align(left, right, 0)
		if i := slices.IndexFunc(m.seen, func(s seen) bool { return s.inA != 0 || s.inB != 0 }); i >= 0 {
			t.Fatalf("a = %q\nb = %q\nthe count of line %d is left: %+v", data, other, i, m.seen[i])
		}
		if len(m.runes.used) != 0 || slices.ContainsFunc(m.runes.byID, func(r rune) bool { return r != 0 }) {
			t.Fatalf("a = %q\nb = %q\nrunes are left: %v", data, other, m.runes)
		}
	}
}
