package linediff

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// git's colours, as escape sequences.
const (
	bold  = "\x1b[1m"
	cyan  = "\x1b[36m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = ""
	reset = "\x1b[m"
)

// writePatch writes what compareFiles found.
func writePatch(w io.Writer, a, b File, d *comparison, s Stat, o Options) error {
	if s.Identical {
		return nil
	}
	p := printer{bufio.NewWriter(w), o}
	switch {
	case s.Binary:
		p.line(plain, "Binary files "+side("a/", a)+" and "+side("b/", b)+" differ")
	case d == nil && a.Missing:
		p.line(plain, "New empty file "+side("b/", b))
	case d == nil:
		p.line(plain, "Removed empty file "+side("a/", a))
	default:
		p.line(bold, "--- "+header("a/", a))
		p.line(bold, "+++ "+header("b/", b))
		for edits := d.edits; len(edits) > 0; {
			n := hunkLength(edits, o.Context)
			p.hunk(d, edits[:n])
			edits = edits[n:]
		}
	}
	return p.w.Flush()
}

// hunkLength returns how many of the edits share a hunk: those between which
// there are no more unchanged lines than the context of both.
func hunkLength(edits []edit, context int) int {
	n := 1
	for n < len(edits) && (edits[n].a0-edits[n-1].a1+1)/2 <= context { // twice the context might be no number any more
		n++
	}
	return n
}

// printer writes the lines of a patch. Write errors wait in w until Flush.
type printer struct {
	w *bufio.Writer
	o Options
}

func (p *printer) hunk(d *comparison, edits []edit) {
	first, last := edits[0], edits[len(edits)-1]
	before := min(first.a0, p.o.Context)
	after := min(d.a.lines()-last.a1, p.o.Context)
	a0, a1 := first.a0-before, last.a1+after
	b0, b1 := first.b0-before, last.b1+after
	p.line(cyan, "@@ -"+span(a0, a1)+" +"+span(b0, b1)+" @@")
	at := a0
	for _, e := range edits {
		p.lines(plain, ' ', &d.a, at, e.a0)
		p.lines(red, '-', &d.a, e.a0, e.a1)
		p.lines(green, '+', &d.b, e.b0, e.b1)
		at = e.a1
	}
	p.lines(plain, ' ', &d.a, at, a1)
}

// span writes a range of lines as the head of a hunk has it: counted from 1,
// the number left out when it is 1, and an empty one named by the line before.
func span(from, to int) string {
	switch to - from {
	case 0:
		return strconv.Itoa(from) + ",0"
	case 1:
		return strconv.Itoa(from + 1)
	}
	return strconv.Itoa(from+1) + "," + strconv.Itoa(to-from)
}

func (p *printer) lines(color string, mark byte, t *text, from, to int) {
	for i := from; i < to; i++ {
		line := t.line(i)
		body, ended := bytes.CutSuffix(line, []byte{'\n'})
		if p.o.Color || p.o.Sanitize {
			p.line(color, string(mark)+string(body))
		} else {
			p.w.WriteByte(mark)
			p.w.Write(body)
			p.w.WriteByte('\n')
		}
		if !ended {
			p.line(plain, `\ No newline at end of file`)
		}
	}
}

func (p *printer) line(color, s string) {
	if p.o.Sanitize {
		s = sanitize(s)
	}
	if p.o.Color && color != plain {
		s = color + s + reset
	}
	p.w.WriteString(s)
	p.w.WriteByte('\n')
}

// side returns a file's name as patch programs read it, or /dev/null.
func side(prefix string, f File) string {
	if f.Missing {
		return "/dev/null"
	}
	return quoteName(prefix + f.Name)
}

// header returns what stands after "--- " or "+++ ". A name with a space gets
// a tab behind it, as git does: it ends the name for programs that otherwise
// look for a time there.
func header(prefix string, f File) string {
	s := side(prefix, f)
	if !f.Missing && strings.Contains(f.Name, " ") {
		s += "\t"
	}
	return s
}

// quoteName quotes a name as git does: as it is, unless it has a byte that is
// a control character, a quote, a backslash or not ASCII.
func quoteName(name string) string {
	var q strings.Builder
	plain := true
	for i := range len(name) {
		c := name[i]
		if at := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); at >= 0 {
			q.WriteByte('\\')
			q.WriteByte(`abtnvfr"\`[at])
			plain = false
		} else if c < ' ' || c >= 0x7f {
			fmt.Fprintf(&q, `\%03o`, c)
			plain = false
		} else {
			q.WriteByte(c)
		}
	}
	if plain {
		return name
	}
	return `"` + q.String() + `"`
}

// sanitize shows what would steer a terminal. A tab stays.
func sanitize(s string) string {
	clean := true
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c >= 0x7f {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case r != '\t' && unicode.IsControl(r):
			fmt.Fprintf(&out, `\x%02x`, r)
		case unicode.Is(unicode.Bidi_Control, r):
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteString(s[i : i+n])
		}
		i += n
	}
	return out.String()
}
