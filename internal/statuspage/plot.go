package statuspage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// plot is one number over the last hour or less as SVG: a step for each slot, the
// newest at the right. Slots of which nothing is known are left empty.
type plot struct {
	Width, Height int
	Path          string
	Top           string // what the top of the plot stands for; "" when nothing is known
	Label         string // all of it in words
}

const plotHeight = 40

// span is the time that plots go back. It grows with the time that there is
// something to show of.
type span struct {
	Words  string
	points int
}

func spanOf(known time.Duration) span {
	switch {
	case known <= 10*time.Minute:
		return span{"last 10 min", points / 6}
	case known <= 30*time.Minute:
		return span{"last 30 min", points / 2}
	}
	return span{"last hour", points}
}

// newPlot draws the values that get gives for the numbers of slots up to now's.
// name says what they are, and words how to say one.
func newPlot(name string, over span, now time.Time, get func(int64) (float64, bool), words func(float64) string) plot {
	last := number(now)
	first := last - int64(over.points) + 1
	name += ", " + over.Words + ": "
	p := plot{Width: over.points, Height: plotHeight, Label: name + "nothing seen yet"}
	highest, newest := -1.0, 0.0
	for n := first; n <= last; n++ {
		if v, ok := get(n); ok {
			highest, newest = max(highest, v), v
		}
	}
	if highest < 0 {
		return p
	}
	p.Top = words(highest)
	p.Label = name + fmt.Sprintf("now %s, at most %s", words(newest), p.Top)
	p.Path = steps(first, last, get, max(highest, 1e-9))
	return p
}

// steps is the area under the values, as the d of a path.
func steps(first, last int64, get func(int64) (float64, bool), scale float64) string {
	var d strings.Builder
	level := "" // that is being drawn; "" between areas
	for n := first; n <= last; n++ {
		x := n - first
		v, ok := get(n)
		switch y := height(v, scale); {
		case !ok && level != "":
			fmt.Fprintf(&d, "H%dV%dZ", x, plotHeight)
			level = ""
		case !ok || y == level:
		case level == "":
			fmt.Fprintf(&d, "M%d %dV%s", x, plotHeight, y)
			level = y
		default:
			fmt.Fprintf(&d, "H%dV%s", x, y)
			level = y
		}
	}
	if level != "" {
		fmt.Fprintf(&d, "H%dV%dZ", last-first+1, plotHeight)
	}
	return d.String()
}

// height is where a value is in the plot, from the top. Nothing is a thin line, so
// that it differs from not known.
func height(v, scale float64) string {
	y := (plotHeight - 1.5) * (1 - v/scale)
	return strconv.FormatFloat(y, 'f', 1, 64)
}
