package linediff

import "sort"

// run is a run of n equal lines, a..a+n and b..b+n, around one or more
// anchors. An anchor is a line that each side has exactly once.
type run struct{ a, b, n, anchors int }

// runs lines up the anchors, as many of them as stand in the same order on
// both sides, and takes in the equal lines around them. It is a good guess at
// the whole, found in one pass; certain says which parts of it are more.
func (m *matcher) runs(a, b lines) []run {
	var runs []run
	aEnd, bEnd := 0, 0 // behind the last run
	for _, p := range m.anchors(a, b) {
		if int(p.b) < bEnd {
			runs[len(runs)-1].anchors++ // the last run went through it
			continue
		}
		r := run{int(p.a), int(p.b), 1, 1}
		for r.a > aEnd && r.b > bEnd && a.ids[r.a-1] == b.ids[r.b-1] {
			r.a, r.b, r.n = r.a-1, r.b-1, r.n+1
		}
		for r.a+r.n < a.len() && r.b+r.n < b.len() && a.ids[r.a+r.n] == b.ids[r.b+r.n] {
			r.n++
		}
		runs = append(runs, r)
		aEnd, bEnd = r.a+r.n, r.b+r.n
	}
	return runs
}

// certain keeps the runs that are part of a shortest difference for certain:
// those with more anchors than the runs as a whole leave lines unmatched on
// the side that has fewer. A way around such a run loses all its anchors on
// both sides, which is more than a shortest way loses. So a shortest way meets
// the run somewhere, and from there on, both ways, the run costs nothing.
func certain(runs []run, a, b lines) []run {
	lost := min(a.len(), b.len())
	for _, r := range runs {
		lost -= r.n
	}
	kept := runs[:0]
	for _, r := range runs {
		if r.anchors > lost {
			kept = append(kept, r)
		}
	}
	return kept
}

// anchor is a line that stands once at a and once at b.
type anchor struct{ a, b int32 }

// anchors returns the longest list of anchors that ascends on both sides. It
// is patience sorting: tops[n] is the anchor with the smallest a that ends a
// list of n+1, and before[i] is the one before i in its list.
func (m *matcher) anchors(a, b lines) []anchor {
	most := min(a.len(), b.len())
	all, before := make([]anchor, 0, most), make([]int32, 0, most)
	var tops []int32
	for i, id := range a.ids {
		m.seen[id].a = int32(i)
	}
	for j, id := range b.ids {
		if m.seen[id].inA != 1 || m.seen[id].inB != 1 {
			continue
		}
		i := m.seen[id].a
		n := len(tops)
		if n > 0 && all[tops[n-1]].a > i {
			n = sort.Search(n, func(n int) bool { return all[tops[n]].a > i })
		}
		last := int32(-1)
		if n > 0 {
			last = tops[n-1]
		}
		if n == len(tops) {
			tops = append(tops, 0)
		}
		tops[n] = int32(len(all))
		before = append(before, last)
		all = append(all, anchor{i, int32(j)})
	}
	list := make([]anchor, len(tops))
	for n := len(tops) - 1; n >= 0; n-- {
		list[n] = all[tops[n]]
		if n > 0 {
			tops[n-1] = before[tops[n]]
		}
	}
	return list
}
