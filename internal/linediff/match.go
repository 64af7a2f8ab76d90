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
	pieceLines = 16_384
	// workSteps bounds the search for cuts over a whole comparison: a search
	// goes through fewer changed lines the more lines there are.
	workSteps   = 1 << 28
	minDistance = 16
	// maxDepth bounds how often a part is looked at for a cut that needs no
	// search. Two or three times is what real files take.
	maxDepth = 8
)

// lines is some lines of one side: what they are, equal lines having equal
// ids, and where they stand in the file.
type lines struct{ ids, at []int32 }

func makeLines(n int) lines { return lines{make([]int32, 0, n), make([]int32, 0, n)} }

func (l *lines) add(id, at int32) {
	l.ids = append(l.ids, id)
	l.at = append(l.at, at)
}

func (l lines) len() int                 { return len(l.ids) }
func (l lines) slice(from, to int) lines { return lines{l.ids[from:to], l.at[from:to]} }

// matcher lines up two files.
type matcher struct {
	partner []int32 // for each line of a its equal line of b, or -1
	coarse  bool    // the bound on work was hit

	diff        *diffmatchpatch.DiffMatchPatch
	maxDistance int    // how many changed lines a search for a cut goes through
	seen        []seen // by id, for the part in hand
	runes       lineRunes
}

// seen counts a line on both sides.
type seen struct{ inA, inB, a int32 }

func newMatcher(aLines, bLines, distinct int) *matcher {
	m := &matcher{
		partner:     make([]int32, aLines),
		diff:        diffmatchpatch.New(),
		maxDistance: min(max(workSteps/(aLines+bLines+1), minDistance), pieceLines/2),
		seen:        make([]seen, distinct),
		runes:       lineRunes{byID: make([]rune, distinct)},
	}
	for i := range m.partner {
		m.partner[i] = -1
	}
	m.diff.DiffTimeout = 0 // no clock, and no guesses that only save time
	return m
}

func (m *matcher) pair(a, b lines) {
	for i, at := range a.at {
		m.partner[at] = b.at[i]
	}
}

// align lines up two parts. It makes the problem smaller without losing the
// shortest difference, first by the lines that only one side has, then by a
// cut at what is certain, and the parts again in the same way; what resists is
// searched.
func (m *matcher) align(a, b lines, depth int) {
	a, b = m.shared(a, b)
	if a.len() == 0 {
		return
	}
	var cuts []run
	if depth < maxDepth {
		cuts = certain(m.runs(a, b), a, b)
	}
	m.forget(a, b)
	if len(cuts) == 0 {
		m.search(a, b)
		return
	}
	a0, b0 := 0, 0
	for _, r := range cuts {
		m.align(a.slice(a0, r.a), b.slice(b0, r.b), depth+1)
		a0, b0 = r.a+r.n, r.b+r.n
		m.pair(a.slice(r.a, a0), b.slice(r.b, b0))
	}
	m.align(a.slice(a0, a.len()), b.slice(b0, b.len()), depth+1)
}

// shared returns the lines that both parts have, in the memory of the parts. A
// line of one side only is changed however the rest is lined up. The counts in
// m.seen stay until forget.
func (m *matcher) shared(a, b lines) (lines, lines) {
	for _, id := range a.ids {
		m.seen[id].inA++
	}
	for _, id := range b.ids {
		m.seen[id].inB++
	}
	keep := func(l lines) lines {
		kept := l.slice(0, 0)
		for i, id := range l.ids {
			if m.seen[id].inA > 0 && m.seen[id].inB > 0 {
				kept.add(id, l.at[i])
			} else {
				m.seen[id] = seen{}
			}
		}
		return kept
	}
	return keep(a), keep(b)
}

func (m *matcher) forget(a, b lines) {
	for _, id := range a.ids {
		m.seen[id] = seen{}
	}
	for _, id := range b.ids {
		m.seen[id] = seen{}
	}
}

// search lines up two parts piece by piece.
func (m *matcher) search(a, b lines) {
	n := 0
	for n < min(a.len(), b.len()) && a.ids[a.len()-1-n] == b.ids[b.len()-1-n] {
		n++
	}
	m.pair(a.slice(a.len()-n, a.len()), b.slice(b.len()-n, b.len()))
	a, b = a.slice(0, a.len()-n), b.slice(0, b.len()-n)
	for a.len() > 0 && b.len() > 0 {
		n := 0
		for n < min(a.len(), b.len()) && a.ids[n] == b.ids[n] {
			n++
		}
		m.pair(a.slice(0, n), b.slice(0, n))
		a, b = a.slice(n, a.len()), b.slice(n, b.len())
		x, y := m.cut(a.ids, b.ids)
		m.lineUp(a.slice(0, x), b.slice(0, y))
		a, b = a.slice(x, a.len()), b.slice(y, b.len())
	}
}

// cut returns where the first piece ends. A small problem is one piece. In a
// large one it walks all shortest ways at once (Myers' greedy forward search,
// without keeping them) until one of them leaves the size of a piece, and cuts
// where that one entered its last run of equal lines.
func (m *matcher) cut(a, b []int32) (x, y int) {
	if len(a)+len(b) <= pieceLines || len(a) == 0 || len(b) == 0 {
		return len(a), len(b)
	}
	// reach[middle+k] is the furthest x on the diagonal x-y = k.
	middle := m.maxDistance + 1
	reach := make([]int32, 2*middle+1)
	bestX, bestY, best := 0, 0, -1
	for d := 1; d <= m.maxDistance; d++ {
		for k := -d; k <= d; k += 2 {
			at := middle + k
			x := int(reach[at-1]) + 1
			if k == -d || k != d && reach[at-1] < reach[at+1] {
				x = int(reach[at+1])
			}
			y := x - k
			if x > len(a) || y > len(b) {
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
			return bestX, bestY
		}
	}
	m.coarse = true
	return bestX, bestY
}

// lineUp lets go-diff line up a piece.
func (m *matcher) lineUp(a, b lines) {
	if a.len() == 0 || b.len() == 0 {
		return
	}
	x, y := 0, 0
	for _, op := range m.diff.DiffMainRunes(m.runes.of(a.ids), m.runes.of(b.ids), false) {
		n := utf8.RuneCountInString(op.Text)
		switch op.Type {
		case diffmatchpatch.DiffDelete:
			x += n
		case diffmatchpatch.DiffInsert:
			y += n
		case diffmatchpatch.DiffEqual:
			m.pair(a.slice(x, x+n), b.slice(y, y+n))
			x, y = x+n, y+n
		}
	}
	m.runes.forget()
}

// lineRunes gives the lines of a piece runes, in the form go-diff compares.
// They are numbered anew for each piece, so that there are never more of them
// than pieceLines.
type lineRunes struct {
	byID []rune  // 0 for a line that this piece has not had yet
	used []int32 // the ids with a rune
}

func (r *lineRunes) of(ids []int32) []rune {
	runes := make([]rune, len(ids))
	for i, id := range ids {
		if r.byID[id] == 0 {
			r.used = append(r.used, id)
			r.byID[id] = rune(len(r.used))
		}
		runes[i] = r.byID[id]
	}
	return runes
}

func (r *lineRunes) forget() {
	for _, id := range r.used {
		r.byID[id] = 0
	}
	r.used = r.used[:0]
}
