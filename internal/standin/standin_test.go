package standin

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestReleases(t *testing.T) {
	t.Parallel()
	older, err := Release(Older)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := Release(Newer)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(newer, SQL()) {
		t.Error("SQL() is not the newer release")
	}
	if bytes.Equal(older, newer) {
		t.Error("the releases are equal")
	}
	for tag, sql := range map[string][]byte{Older: older, Newer: newer} {
		if first, _, _ := strings.Cut(string(sql), "\n"); first != Marker {
			t.Errorf("%s begins with %q, not with the marker", tag, first)
		}
		if !utf8.Valid(sql) || bytes.IndexByte(sql, '\r') >= 0 || !bytes.HasSuffix(sql, []byte("\n")) {
			t.Errorf("%s is not plain UTF-8 text with LF", tag)
		}
		if strings.Contains(string(sql), "-- >>>") || strings.Contains(string(sql), "-- <<<\n") {
			t.Errorf("%s still has the marks of a block", tag)
		}
		// What trips tools that look at such files: characters outside ASCII in
		// a body, and (newer) a transaction command inside one.
		if !strings.Contains(string(sql), "→") {
			t.Errorf("%s has no character outside ASCII in a body", tag)
		}
	}
	if !strings.Contains(string(newer), "        commit;") {
		t.Error("the newer release has no commit inside a procedure")
	}
	if _, err := Release("v9.9.9"); err == nil {
		t.Error("a release that does not exist was made")
	}
}
