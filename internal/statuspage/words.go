package statuspage

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// shown is a name as a person can tell it: an empty one, and what would not be
// seen or would reorder the text around it.
func shown(name string) string {
	if quoted := strconv.QuoteToGraphic(name); name == "" || strings.TrimSpace(name) != name || quoted != `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name)+`"` {
		return quoted
	}
	return name
}

// visible is text with nothing in it that turns or hides what is around it.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r != '\n' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// number3 writes a number in groups of three digits.
func number3(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// unseen is a number that this login may not be allowed to know.
func unseen(n int64) string {
	if n < 0 {
		return "?"
	}
	return number3(n)
}

func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0/s"
	case rate < 0.095:
		return strconv.FormatFloat(max(rate*60, 0.1), 'f', 1, 64) + "/min"
	case rate < 9.95:
		return strconv.FormatFloat(rate, 'f', 1, 64) + "/s"
	}
	return number3(int64(rate+0.5)) + "/s"
}

func ago(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return age(d) + " ago"
}

// age is a duration as a person says it: in the one unit that matters, or in two.
func age(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(big time.Duration, bigUnit string, small time.Duration, smallUnit string) string {
		return strings.TrimSuffix(fmt.Sprintf("%d %s %d %s", d/big, bigUnit, d%big/small, smallUnit), " 0 "+smallUnit)
	}
	switch {
	case d < 0: // clocks may jump
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(time.Minute, "min", time.Second, "s")
	case d < day:
		return two(time.Hour, "h", time.Minute, "min")
	}
	return two(day, "d", time.Hour, "h")
}
