// Package standin holds an SQL file of our own that behaves like PgQue: for
// tests, and for the demo where upstream can't be reached. It was written from
// PgQue's documented behaviour and shares no text with it. The conformance
// suite holds it to the same facts as the real one.
package standin

import (
	"bytes"
	_ "embed"
	"fmt"
)

// Marker is the first line of every release of the stand-in. Whoever installs
// PgQue for real must refuse a file that starts with it.
const Marker = "-- pgque-vendor stand-in: for tests and demos, not PgQue"

// The releases there are. They carry the names of PgQue's own tags, since the
// rest of the program orders releases by tag. The older one lacks functions
// and columns, answers PUBLIC, lets writers read, and takes the same dead
// letter twice, as PgQue v0.1.0 does.
const (
	Older = "v0.1.0"
	Newer = "v0.2.0"
)

//go:embed standin.sql
var source []byte

// SQL returns the newer release.
func SQL() []byte {
	sql, err := Release(Newer)
	if err != nil {
		panic(err) // the file is part of this package, and a test reads it
	}
	return sql
}

// Release returns one of the two releases by its tag.
func Release(tag string) ([]byte, error) {
	if tag != Older && tag != Newer {
		return nil, fmt.Errorf("the stand-in has no release %q, only %q and %q", tag, Older, Newer)
	}
	var out bytes.Buffer
	only := "" // the release that the present lines belong to, or "" for both
	for n, line := range bytes.SplitAfter(source, []byte("\n")) {
		text := string(bytes.TrimSpace(line))
		switch text {
		case "-- >>> " + Older, "-- >>> " + Newer:
			if only != "" {
				return nil, fmt.Errorf("standin.sql:%d: a block begins inside another", n+1)
			}
			only = text[len("-- >>> "):]
		case "-- <<<":
			if only == "" {
				return nil, fmt.Errorf("standin.sql:%d: no block ends here", n+1)
			}
			only = ""
		default:
			if only == "" || only == tag {
				out.Write(line)
			}
		}
	}
	if only != "" {
		return nil, fmt.Errorf("standin.sql: the block of %s does not end", only)
	}
	return out.Bytes(), nil
}
