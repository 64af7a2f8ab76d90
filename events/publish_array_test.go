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

// What goes in one transaction is cut into statements of a size that PostgreSQL takes.
func TestCut(t *testing.T) {
	t.Parallel()
	sized := func(sizes ...int) []row {
		rows := make([]row, len(sizes))
		for i, size := range sizes {
			rows[i] = row{data: make([]byte, size-1), typ: "t"}
		}
		return rows
	}
	header := "12345"
	withHeaders := []row{{typ: "t", data: []byte("1"), headers: &header}, {typ: "t", data: []byte("1"), headers: &header}}
	for _, test := range []struct {
		parts [][]row
		want  string // how many rows each piece has
	}{
		{[][]row{sized(4, 3, 3)}, "[3]"},
		{[][]row{sized(4, 3, 4)}, "[2 1]"},
		{[][]row{sized(30, 1, 9, 30, 30, 5, 5, 5)}, "[1 2 1 1 2 1]"},
		{[][]row{sized(5), sized(5, 5), sized(11)}, "[1 2 1]"},
		{[][]row{withHeaders}, "[1 1]"},
	} {
		var got []int
		for _, piece := range cut(test.parts, 10) {
			got = append(got, len(piece))
		}
		if fmt.Sprint(got) != test.want {
			t.Errorf("pieces of %v rows, want %s", got, test.want)
		}
	}
}
