package linediff

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// unified returns the patch and the stat of a comparison, and checks that
// Count says the same (of large files not, for the time it takes).
func unified(t testing.TB, a, b File, context int) (string, Stat) {
	t.Helper()
	var w bytes.Buffer
	s, err := Unified(&w, a, b, Options{Context: context})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Data)+len(b.Data) < 1<<20 {
		if c := Count(a, b); c != s {
			t.Errorf("Count = %+v, Unified = %+v", c, s)
		}
	}
	return w.String(), s
}

// apply is a patch program of its own: strict, for one file, and so fast that
// it can check what "git apply" and "patch" are too slow for.
func apply(a []byte, patch string) ([]byte, error) {
	if patch == "" {
		return a, nil
	}
	old := strings.SplitAfter(string(a), "\n")
	if old[len(old)-1] == "" {
		old = old[:len(old)-1]
	}
	lines := strings.SplitAfter(patch, "\n")
	lines = lines[:len(lines)-1]
	if !strings.HasPrefix(lines[0], "--- ") || !strings.HasPrefix(lines[1], "+++ ") {
		return nil, fmt.Errorf("no header: %q", lines[:2])
	}
	var out []string
	at := 0 // in old
	for i := 2; i < len(lines); {
		a0, aN, b0, bN, err := hunkHead(lines[i])
		if err != nil {
			return nil, err
		}
		if a0 < at || a0 > len(old) {
			return nil, fmt.Errorf("hunk %q starts at a line that is gone", lines[i])
		}
		out = append(out, old[at:a0]...)
		at = a0
		if b0 != len(out) {
			return nil, fmt.Errorf("hunk %q: the new file has %d lines there", lines[i], len(out))
		}
		for i++; aN > 0 || bN > 0; i++ {
			mark, line := lines[i][0], lines[i][1:]
			if i+1 < len(lines) && lines[i+1][0] == '\\' {
				line = strings.TrimSuffix(line, "\n")
			}
			switch mark {
			case ' ', '-':
				if at >= len(old) || old[at] != line {
					return nil, fmt.Errorf("line %d of a is not %.40q", at+1, line)
				}
				at, aN = at+1, aN-1
			}
			switch mark {
			case ' ', '+':
				out = append(out, line)
				bN--
			}
			if i+1 < len(lines) && lines[i+1][0] == '\\' {
				i++
			}
		}
		if aN < 0 || bN < 0 {
			return nil, fmt.Errorf("a hunk is longer than its head says")
		}
	}
	return []byte(strings.Join(append(out, old[at:]...), "")), nil
}

// hunkHead returns the lines before each range, counted from 0, and its length.
func hunkHead(line string) (a0, aN, b0, bN int, err error) {
	parts := strings.Fields(line)
	if len(parts) != 4 || parts[0] != "@@" || parts[3] != "@@" {
		return 0, 0, 0, 0, fmt.Errorf("not the head of a hunk: %.40q", line)
	}
	span := func(s string) (from, n int) {
		n = 1
		fmt.Sscanf(s, "%d,%d", &from, &n)
		if n > 0 {
			from--
		}
		return from, n
	}
	a0, aN = span(parts[1][1:])
	b0, bN = span(parts[2][1:])
	return a0, aN, b0, bN, nil
}
