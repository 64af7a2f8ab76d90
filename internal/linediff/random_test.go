package linediff

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// words are lines that have been cause for trouble: marks of a patch, CR, form
// feed, U+2028, bytes that are not UTF-8, blanks at the end.
var words = []string{
	"", " ", "begin", "end;", "end;\r", "\r", "\f", "a\u2028b", "\xff\xfe", "caf\xe9", "é", "--- a/x", "+++ b/x",
	"@@ -1 +1 @@", `\ No newline at end of file`, "-", "+", "\t", "trailing \t", "\x1b[31m", "diff --git a/x b/x",
}

// randomText returns some lines of a small alphabet, so that many are equal.
func randomText(random *rand.Rand, maxLines int) []byte {
	var b bytes.Buffer
	alphabet := words[:1+random.IntN(len(words))]
	for range random.IntN(maxLines + 1) {
		b.WriteString(alphabet[random.IntN(len(alphabet))] + "\n")
	}
	if random.IntN(3) == 0 {
		b.WriteString(alphabet[random.IntN(len(alphabet))])
	}
	return b.Bytes()
}

// randomEdit returns the text with a few lines taken out, put in, or moved.
func randomEdit(random *rand.Rand, text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	for range random.IntN(6) {
		from := random.IntN(len(lines) + 1)
		to := min(len(lines), from+random.IntN(8))
		block := bytes.Join(lines[from:to], nil)
		var edited [][]byte
		switch random.IntN(3) {
		case 0:
			edited = append(append(edited, lines[:from]...), lines[to:]...)
		case 1:
			edited = append(append(append(edited, lines[:from]...), randomText(random, 5)), lines[from:]...)
		case 2:
			edited = append(append(append(edited, lines[:from]...), lines[to:]...), block)
		}
		lines = bytes.SplitAfter(bytes.Join(edited, nil), []byte("\n"))
	}
	return bytes.Join(lines, nil)
}

func randomPair(random *rand.Rand, maxLines int) (a, b []byte) {
	a = randomText(random, maxLines)
	if random.IntN(2) == 0 {
		return a, randomText(random, maxLines)
	}
	return a, randomEdit(random, a)
}

// TestRandom checks that a patch gives b, and that no shorter one does.
func TestRandom(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 4000 {
		a, b := randomPair(random, 60)
		context := random.IntN(5)
		patch, s := unified(t, File{Name: "f", Data: a}, File{Name: "f", Data: b}, context)
		if got, err := apply(a, patch); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("a = %q\nb = %q\npatch = %s\nit gives %q (%v)", a, b, patch, got, err)
		}
		if again, _ := unified(t, File{Name: "f", Data: a}, File{Name: "f", Data: b}, context); again != patch {
			t.Fatalf("a = %q\nb = %q\ntwo patches: %s\n%s", a, b, patch, again)
		}
		if want := shortest(a, b); s.Added+s.Removed != want {
			t.Fatalf("a = %q\nb = %q\nchanged lines = %d, want %d", a, b, s.Added+s.Removed, want)
		}
		if equal := bytes.Equal(a, b); equal != s.Identical || equal != (patch == "") {
			t.Fatalf("a = %q\nb = %q\nidentical = %v, patch = %q", a, b, s.Identical, patch)
		}
	}
}

// shortest returns the smallest possible number of changed lines, by the
// textbook's table.
func shortest(a, b []byte) int {
	left, right := strings.SplitAfter(string(a), "\n"), strings.SplitAfter(string(b), "\n")
	row := make([]int, len(right)+1) // the longest common part up to here
	for _, l := range left {
		diagonal := 0
		for j, r := range right {
			above := row[j+1]
			row[j+1] = max(above, row[j])
			if l == r {
				row[j+1] = diagonal + 1
			}
			diagonal = above
		}
	}
	// What stands behind the last LF is no line when it is empty.
	lines := len(left) + len(right)
	common := row[len(right)]
	if left[len(left)-1] == "" {
		lines--
	}
	if right[len(right)-1] == "" {
		lines--
	}
	if left[len(left)-1] == "" && right[len(right)-1] == "" {
		common--
	}
	return lines - 2*common
}

// TestSearchIsCut checks the cuts of a problem too large for one piece.
func TestSearchIsCut(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 5 {
		var a bytes.Buffer
		for range pieceLines {
			a.WriteString(words[2+random.IntN(6)] + "\n") // no line stands once
		}
		b := randomEdit(random, randomEdit(random, a.Bytes()))
		b = append([]byte("new\n"), b...)
		patch, s := unified(t, File{Name: "f", Data: a.Bytes()}, File{Name: "f", Data: b}, DefaultContext)
		if got, err := apply(a.Bytes(), patch); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("the patch does not give b: %v", err)
		}
		if s.Added+s.Removed > 200 || s.Note != "" {
			t.Errorf("stat = %+v, want a few lines", s)
		}
	}
}

func FuzzUnified(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 20 {
		a, b := randomPair(random, 12)
		f.Add(a, b, uint8(random.IntN(5)))
	}
	f.Fuzz(func(t *testing.T, a, b []byte, context uint8) {
		patch, s := unified(t, File{Name: "f", Data: a}, File{Name: "f", Data: b}, int(context))
		if s.Binary || s.Identical {
			return
		}
		if got, err := apply(a, patch); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("a = %q\nb = %q\npatch = %s\nit gives %q (%v)", a, b, patch, got, err)
		}
		if len(a) < 1000 && len(b) < 1000 && s.Added+s.Removed != shortest(a, b) {
			t.Fatalf("a = %q\nb = %q\nchanged lines = %d, want %d", a, b, s.Added+s.Removed, shortest(a, b))
		}
	})
}
