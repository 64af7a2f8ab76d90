package events

import (
	"fmt"
	"testing"
)

func TestParseIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{1,20,-3}": "[1 20 -3] <nil>", "{7}": "[7] <nil>", "{}": "[] <nil>",
		"": "error", "{1,2": "error", "1,2}": "error", "{1,,2}": "error", "{NULL}": "error", "{99999999999999999999}": "error",
	} {
		ids, err := parseIDs([]byte(text))
		got := fmt.Sprint(ids, err)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("parseIDs(%q) = %v, %v", text, ids, err)
		}
	}
}

func FuzzParseIDs(f *testing.F) {
	f.Add([]byte("{1,2}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if ids, err := parseIDs(text); err == nil && len(ids) > len(text) {
			t.Errorf("%d ids of %d bytes", len(ids), len(text))
		}
	})
}
