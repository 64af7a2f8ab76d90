package linediff

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hard is a pair of files of a kind that line diffs have died on.
type hard struct {
	name   string
	a, b   []byte
	want   Stat // Note is not compared
	coarse bool // the bound on work is hit, and the numbers are not promised
}

// hardPairs are the pairs of B042, B077 and B078, and worse.
func hardPairs() []hard {
	numbered := func(before string, n int, after string) []string {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = before + strconv.Itoa(i) + after + "\n"
		}
		return lines
	}
	text := func(lines []string) []byte { return []byte(strings.Join(lines, "")) }
	reversed := func(lines []string) []string {
		lines = slices.Clone(lines)
		slices.Reverse(lines)
		return lines
	}
	random := rand.New(rand.NewPCG(1, 2))
	coins := func(n int) []byte {
		b := bytes.Repeat([]byte("0\n"), n)
		for i := range n {
			b[2*i] += byte(random.IntN(2))
		}
		return b
	}

	eight := numbered("insert into t values (", 8_000, ");")
	ends := bytes.Repeat([]byte("end;\n"), 50_000)
	grants := numbered("grant select on t", 100_000, " to u;")
	shuffled := slices.Clone(grants)
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	million := numbered("", 1_200_000, "")
	edited := slices.Clone(million)
	for i := 500; i < len(edited); i += 1000 {
		edited[i] = "changed " + edited[i]
	}
	long := bytes.Repeat([]byte("x"), 8<<20)

	return []hard{
		{"100k-different", text(numbered("", 100_000, " of a")), text(numbered("", 100_000, " of b")), Stat{Added: 100_000, Removed: 100_000}, false},
		{"8k-reversed", text(eight), text(reversed(eight)), Stat{Added: 7_999, Removed: 7_999}, false},
		{"50k-end", ends, ends[:len(ends)-5*100], Stat{Removed: 100}, false},
		{"50k-end-framed", slices.Concat([]byte("y\n"), ends, []byte("x\n")), slices.Concat([]byte("x\n"), ends[:len(ends)/2], []byte("y\nx\nx\n")), Stat{}, true},
		{"100k-shuffled", text(grants), text(shuffled), Stat{}, true},
		{"1.2M-distinct", text(million), text(numbered("", 1_200_000, ".")), Stat{Added: 1_200_000, Removed: 1_200_000}, false},
		{"1.2M-edited", text(million), text(edited), Stat{Added: 1_200, Removed: 1_200}, false},
		{"100k-reversed", text(grants), text(reversed(grants)), Stat{}, true},
		{"50k-coins", coins(50_000), coins(50_000), Stat{}, true},
		{"3M-lines", bytes.Repeat([]byte("\n"), 3_000_000), coins(10), Stat{Binary: true}, false},
		{"lines-of-8M", slices.Concat(long, []byte("\ny")), slices.Concat(long, []byte("\nz\n")), Stat{Added: 1, Removed: 1}, false},
		{"17M", bytes.Repeat(long, 3), long, Stat{Binary: true}, false},
	}
}

// TestHard pins B042, B077 and B078: no panic, no hang, and a right patch
// also where the search was cut short.
func TestHard(t *testing.T) {
	t.Parallel()
	for _, h := range hardPairs() {
		t.Run(h.name, func(t *testing.T) {
			a, b := File{Name: "f", Data: h.a}, File{Name: "f", Data: h.b}
			patch, s := unified(t, a, b, DefaultContext)
			if coarse := strings.Contains(s.Note, "too much"); coarse != h.coarse {
				t.Errorf("coarse = %v, want %v", coarse, h.coarse)
			}
			if s.Note = ""; !h.coarse && s != h.want {
				t.Errorf("stat = %+v, want %+v", s, h.want)
			}
			if s.Binary {
				if want := "Binary files a/f and b/f differ\n"; patch != want {
					t.Errorf("patch = %q, want %q", patch, want)
				}
				return
			}
			if got, err := apply(h.a, patch); err != nil || !bytes.Equal(got, h.b) {
				t.Errorf("the patch does not give b: %v", err)
			}
		})
	}
}
