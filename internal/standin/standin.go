// Package standin holds an SQL file of our own that behaves like PgQue: for
// tests and for the demo where upstream can't be reached. It was written from
// PgQue's documented behaviour and shares no text with it. The conformance
// suite holds it to the same facts as the real one.
package standin

import (
	"bytes"
	_ "embed"
)

// Marker is the first line of every release of the stand-in. Whoever installs
// PgQue for real must refuse a file that starts with it.
const Marker = "-- pgque-vendor stand-in: for tests and demos, not PgQue"

// The releases there are, oldest first. They carry the names of PgQue's own
// tags, since the rest of the program orders releases by tag.
const (
	Older = "v0.1.0"
	Newer = "v0.2.0"
)

//go:embed standin.sql
var newer []byte

// SQL returns the newest release.
func SQL() []byte { return bytes.Clone(newer) }
