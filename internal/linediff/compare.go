package linediff

import "bytes"

// comparison is two texts and the lines that differ between them.
type comparison struct {
	a, b   text
	edits  []edit // in order; between two of them at least one line is equal
	coarse bool   // the bound on work was hit: more lines than need be
}

// edit says that the lines a0..a1 of a became the lines b0..b1 of b, counted
// from 0, the end not included. One of the two ranges may be empty.
type edit struct{ a0, a1, b0, b1 int }

// text is a file cut into lines. A line has its LF with it; only the last may
// be without one, which makes it differ from the same line with one.
type text struct {
	data []byte
	ends []int32 // ends[i] is the offset behind line i
}

func newText(data []byte) text {
	ends := make([]int32, 0, bytes.Count(data, []byte{'\n'})+1)
	for at := 0; at < len(data); {
		n := bytes.IndexByte(data[at:], '\n')
		if n < 0 {
			at = len(data)
		} else {
			at += n + 1
		}
		ends = append(ends, int32(at))
	}
	return text{data, ends}
}

func (t *text) lines() int { return len(t.ends) }

func (t *text) line(i int) []byte {
	if i == 0 {
		return t.data[:t.ends[0]]
	}
	return t.data[t.ends[i-1]:t.ends[i]]
}

// compare finds the changed lines. The equal lines at both ends need no
// search; a matcher lines up the rest.
func compare(a, b []byte) *comparison {
	d := &comparison{a: newText(a), b: newText(b)}
	top, bottom := d.equalEnds()
	aEnd, bEnd := d.a.lines()-bottom, d.b.lines()-bottom
	left, right, distinct := number(d.a, d.b, top, aEnd, bEnd)
	m := newMatcher(aEnd, bEnd, distinct)
	m.align(left, right, 0)
	d.coarse = m.coarse
	d.collect(m.partner, top, aEnd, bEnd)
	d.slide()
	return d
}

// equalEnds returns how many lines are equal at the top and, of the others, at
// the bottom.
func (d *comparison) equalEnds() (top, bottom int) {
	n := min(d.a.lines(), d.b.lines())
	for top < n && bytes.Equal(d.a.line(top), d.b.line(top)) {
		top++
	}
	for bottom < n-top && bytes.Equal(d.a.line(d.a.lines()-1-bottom), d.b.line(d.b.lines()-1-bottom)) {
		bottom++
	}
	return top, bottom
}

// number gives equal lines from top on equal ids, below distinct. Lines of b
// that a does not have are left out.
func number(a, b text, top, aEnd, bEnd int) (left, right lines, distinct int) {
	known := newLineIDs(a, aEnd-top)
	left = makeLines(aEnd - top)
	for i := top; i < aEnd; i++ {
		left.add(known.add(i), int32(i))
	}
	right = makeLines(bEnd - top)
	for j := top; j < bEnd; j++ {
		if id, ok := known.find(b.line(j)); ok {
			right.add(id, int32(j))
		}
	}
	return left, right, len(known.first)
}

// collect turns the pairs of equal lines into the edits between them.
func (d *comparison) collect(partner []int32, top, aEnd, bEnd int) {
	a0, b0 := top, top
	upTo := func(a1, b1 int) {
		if a0 < a1 || b0 < b1 {
			d.edits = append(d.edits, edit{a0, a1, b0, b1})
		}
		a0, b0 = a1+1, b1+1
	}
	for a1 := top; a1 < aEnd; a1++ {
		if b1 := int(partner[a1]); b1 >= 0 {
			upTo(a1, b1)
		}
	}
	upTo(aEnd, bEnd)
}

// slide moves every pure insertion and pure removal as far down as it goes
// without a change of meaning, as git does: of the equal places for a new
// block the lowest one reads as "after the old one". A block that meets the
// next one becomes one with it.
func (d *comparison) slide() {
	out := len(d.edits) // d.edits[out:] is done
	for i := len(d.edits) - 1; i >= 0; i-- {
		e := d.edits[i]
		for {
			if out < len(d.edits) && e.a1 == d.edits[out].a0 && e.b1 == d.edits[out].b0 {
				e.a1, e.b1 = d.edits[out].a1, d.edits[out].b1
				out++
				continue
			}
			if !d.slidesDown(e) {
				break
			}
			e = edit{e.a0 + 1, e.a1 + 1, e.b0 + 1, e.b1 + 1}
		}
		out--
		d.edits[out] = e
	}
	d.edits = d.edits[out:]
}

// slidesDown reports whether the edit one line further down means the same.
func (d *comparison) slidesDown(e edit) bool {
	switch {
	case e.a0 == e.a1:
		return e.b1 < d.b.lines() && bytes.Equal(d.b.line(e.b0), d.b.line(e.b1))
	case e.b0 == e.b1:
		return e.a1 < d.a.lines() && bytes.Equal(d.a.line(e.a0), d.a.line(e.a1))
	}
	return false
}
