package sqltext

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A text of 16 MiB is taken from upstream before anybody has read it. What it makes
// of us must grow with its size, not with its square.
func TestHostileTextAllocates(t *testing.T) {
	const n = 50_000
	names := func(prefix string) string {
		list := make([]string, 100)
		for i := range list {
			list[i] = fmt.Sprint(prefix, i)
		}
		return strings.Join(list, ", ")
	}
	long := strings.Repeat("long", 10_000)
	for name, text := range map[string]string{
		"strings of a body":     "create function pgque.version() returns text language sql as " + strings.Repeat("'abcdefgh' ", n) + ";",
		"bodies":                "create function pgque.version() returns text language sql " + strings.Repeat("as 'abcdefgh' ", n) + ";",
		"words of a type":       "create function f(a x" + strings.Repeat(" varying", n) + ") returns int as '';",
		"pairs of a long grant": "grant " + strings.Repeat("select, ", n) + "select on " + names("a") + " to " + names("b") + ";",
		"long objects":          "grant select on " + names(long) + " to " + names("b") + ";",
		"long grantees":         "grant select on " + names("a") + " to " + names(long) + ";",
		"a long grant's option": "grant select on " + names("a") + " to " + names("b") + " with " + strings.Repeat("grant ", n) + "option;",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		Objects([]byte(text))
		Version([]byte(text))
		runtime.ReadMemStats(&after)
		if got, most := after.TotalAlloc-before.TotalAlloc, uint64(100*len(text)); got > most {
			t.Errorf("%s: %d bytes were allocated for %d of text, want at most %d", name, got, len(text), most)
		}
	}
}

func TestHostileDrops(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&text, "create function f%d() returns int as '';", i)
	}
	text.WriteString(strings.Repeat("drop function x;", 200_000))
	done := make(chan int, 1)
	go func() { done <- len(Objects([]byte(text.String()))) }()
	select {
	case got := <-done:
		if got != 200_000 {
			t.Errorf("%d objects are left, want 200000", got)
		}
	case <-time.After(2 * time.Minute): // by the square it takes ten or more
		t.Error("dropping what is not there takes more than 2 minutes")
	}
}
