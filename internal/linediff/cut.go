package linediff

import (
	"unicode/utf8"

	"github.com/sergi/go-diff/diffmatchpatch"
)

const (
	// pieceLines is the most lines, both sides together, that go to go-diff
	// at once. Up to here the difference is the shortest there is. It bounds
	// go-diff's quadratic parts, and it keeps the runes that stand for lines
	// below the surrogates, which go-diff does not survive.
	pieceLines = 20_000
	// workSteps bounds the search for cuts, over a whole comparison.
	workSteps = 1 << 28
)

// pair is a run of n equal lines: a..a+n on the left, b..b+n on the right.
type pair struct{ a, b, n int }

// matcher lines up two sequences of line ids.
type matcher struct {
	a, b   []int32
	pairs  []pair // in order
	coarse bool
}

// run cuts the problem into pieces and lets go-diff line up each of them.
func (m *matcher) run() {
	bottom := 0
	for bottom < min(len(m.a), len(m.b)) && m.a[len(m.a)-1-bottom] == m.b[len(m.b)-1-bottom] {
		bottom++
	}
	aEnd, bEnd := len(m.a)-bottom, len(m.b)-bottom
	maxDistance := min(max(workSteps/(aEnd+bEnd+1), 16), pieceLines/2)
	diff := diffmatchpatch.New()
	diff.DiffTimeout = 0 // no clock, and no guesses that only save time
	runes := lineRunes{}
	for a0, b0 := 0, 0; a0 < aEnd || b0 < bEnd; {
		n := 0
		for a0+n < aEnd && b0+n < bEnd && m.a[a0+n] == m.b[b0+n] {
			n++
		}
		m.pair(a0, b0, n)
		a0, b0 = a0+n, b0+n
		a1, b1 := m.cut(a0, b0, aEnd, bEnd, maxDistance)
		m.lineUp(diff, &runes, a0, a1, b0, b1)
		a0, b0 = a1, b1
	}
	m.pair(aEnd, bEnd, bottom)
}

func (m *matcher) pair(a, b, n int) {
	if n > 0 {
		m.pairs = append(m.pairs, pair{a, b, n})
	}
}

// cut returns where the piece that starts at a0, b0 ends. A small rest is one
// piece. Of a large one it walks all shortest ways at once (Myers' greedy
// forward search, without keeping them) until one of them leaves the size of a
// piece, and cuts where that one entered its last run of equal lines.
func (m *matcher) cut(a0, b0, aEnd, bEnd, maxDistance int) (a1, b1 int) {
	if aEnd-a0+bEnd-b0 <= pieceLines || a0 == aEnd || b0 == bEnd {
		return aEnd, bEnd
	}
	a, b := m.a[a0:aEnd], m.b[b0:bEnd]
	// reach[k+maxDistance+1] is the furthest x on the diagonal x-y = k.
	reach := make([]int32, 2*maxDistance+3)
	bestX, bestY, best := 0, 0, -1
	for d := 1; d <= maxDistance; d++ {
		for k := -d; k <= d; k += 2 {
			at := k + maxDistance + 1
			x := int(reach[at-1]) + 1
			if k == -d || k != d && reach[at-1] < reach[at+1] {
				x = int(reach[at+1])
			}
			y := x - k
			if x > len(a) || y > len(b) || y < 0 {
				reach[at] = int32(x)
				continue
			}
			startX, startY := x, y
			for x < len(a) && y < len(b) && a[x] == b[y] {
				x++
				y++
			}
			reach[at] = int32(x)
			if x+y > best {
				best, bestX, bestY = x+y, startX, startY
			}
		}
		if best >= pieceLines || best == len(a)+len(b) {
			return a0 + bestX, b0 + bestY
		}
	}
	m.coarse = true
	return a0 + bestX, b0 + bestY
}

// lineUp adds the pairs that go-diff finds between a0..a1 and b0..b1.
func (m *matcher) lineUp(diff *diffmatchpatch.DiffMatchPatch, runes *lineRunes, a0, a1, b0, b1 int) {
	if a0 == a1 || b0 == b1 {
		return
	}
	left, right := runes.of(m.a[a0:a1], m.b[b0:b1])
	before := len(m.pairs)
	x, y := a0, b0
	for _, op := range diff.DiffMainRunes(left, right, false) {
		n := utf8.RuneCountInString(op.Text)
		switch op.Type {
		case diffmatchpatch.DiffDelete:
			x += n
		case diffmatchpatch.DiffInsert:
			y += n
		case diffmatchpatch.DiffEqual:
			m.pair(x, y, n)
			x, y = x+n, y+n
		}
	}
	// A patch must be right even if the library were not.
	if x != a1 || y != b1 || !m.equal(m.pairs[before:]) {
		m.pairs = m.pairs[:before]
		m.coarse = true
	}
}

func (m *matcher) equal(pairs []pair) bool {
	for _, p := range pairs {
		for i := range p.n {
			if m.a[p.a+i] != m.b[p.b+i] {
				return false
			}
		}
	}
	return true
}

// lineRunes gives the lines of one piece runes, in the form go-diff compares.
// They are numbered anew for each piece, so that there are never more of them
// than pieceLines.
type lineRunes struct {
	byID map[int32]rune
}

func (r *lineRunes) of(a, b []int32) (left, right []rune) {
	r.byID = make(map[int32]rune)
	return r.side(a), r.side(b)
}

func (r *lineRunes) side(ids []int32) []rune {
	runes := make([]rune, len(ids))
	for i, id := range ids {
		c, ok := r.byID[id]
		if !ok {
			c = rune(len(r.byID))
			r.byID[id] = c
		}
		runes[i] = c
	}
	return runes
}
