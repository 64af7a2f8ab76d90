package linediff

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// lineIDs gives equal lines of a text equal ids, counted from 0. It is a map
// from lines to ids that leaves the lines where they are: a comparison is over
// in a millisecond, of which a map with its keys copied would take a third.
type lineIDs struct {
	text  text
	first []int32 // by id: the first line that has it
	slots []int32 // by hash: the id + 1, or 0 where there is none
	seed  maphash.Seed
}

// newLineIDs makes room for the ids of so many lines, with at least half of
// the slots free.
func newLineIDs(t text, lines int) *lineIDs {
	return &lineIDs{
		text:  t,
		first: make([]int32, 0, lines),
		slots: make([]int32, 2<<bits.Len(uint(lines))),
		seed:  maphash.MakeSeed(),
	}
}

// add returns the id of the text's line i.
func (l *lineIDs) add(i int) int32 {
	slot := l.slot(l.text.line(i))
	if l.slots[slot] == 0 {
		l.first = append(l.first, int32(i))
		l.slots[slot] = int32(len(l.first))
	}
	return l.slots[slot] - 1
}

// find returns the id of a line that may be of another text.
func (l *lineIDs) find(line []byte) (id int32, ok bool) {
	slot := l.slot(line)
	return l.slots[slot] - 1, l.slots[slot] != 0
}

// slot returns where the line's id stands, or would stand.
func (l *lineIDs) slot(line []byte) int {
	mask := len(l.slots) - 1
	slot := int(maphash.Bytes(l.seed, line)) & mask
	for l.slots[slot] != 0 && !bytes.Equal(line, l.text.line(int(l.first[l.slots[slot]-1]))) {
		slot = (slot + 1) & mask
	}
	return slot
}
