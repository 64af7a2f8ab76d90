package statuspage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// plot is the last hour of one number as SVG: a step for each slot, the newest at
// the right. Slots of which nothing is known are left empty.
type plot struct {
	Width, Height int
	Path          string
	Top           string // what the top of the plot stands for; "" when nothing is known
	Label         string // all of it in words
}

const plotHeight = 40

// newPlot draws the values that get gives for the numbers of slots up to now's.
// name says what they are, and words how to say one.
func newPlot(name string, now time.Time, get func(int64) (float64, bool), words func(float64) string) plot {
	last := number(now)
	first := last - int64(points) + 1
	p := plot{Width: points, Height: plotHeight, Label: name + " over the last hour: nothing seen yet"}
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
	p.Label = fmt.Sprintf("%s over the last hour: now %s, at most %s", name, words(newest), p.Top)
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
		fmt.Fprintf(&d, "H%dV%dZ", points, plotHeight)
	}
	return d.String()
}

// height is where a value is in the plot, from the top. Nothing is a thin line, so
// that it differs from not known.
func height(v, scale float64) string {
	y := (plotHeight - 1.5) * (1 - v/scale)
	return strconv.FormatFloat(y, 'f', 1, 64)
}
