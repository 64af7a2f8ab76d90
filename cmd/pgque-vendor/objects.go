package main

import (
	"bytes"
	"fmt"

	"github.com/stega/pgque-vendor/internal/sqltext"
)

// changedObject is an object of the SQL that differs between two versions.
type changedObject struct {
	Change string `json:"change"` // added, removed, or what changed of it
	Kind   string `json:"kind"`
	Name   string `json:"name"` // with the argument types of a function
}

// line is the object on one line. A quoted name can hold a line break; the rest
// of it would look like a line of ours, or be a command to GitHub Actions.
func (c changedObject) line() string {
	mark := "~"
	switch c.Change {
	case "added":
		mark = "+"
	case "removed":
		mark = "-"
	}
	s := fmt.Sprintf("%s %s %s", mark, c.Kind, c.Name)
	if c.Kind == string(sqltext.Grant) { // its name begins with "grant" or "revoke"
		s = mark + " " + c.Name
	}
	if mark == "~" {
		s += ": " + c.Change
	}
	return oneLine(s)
}

func changedObjects(a, b []byte) []changedObject {
	var list []changedObject
	if bytes.Equal(a, b) {
		return list
	}
	for _, c := range sqltext.Compare(sqltext.Objects(a), sqltext.Objects(b)) {
		o := c.Object()
		list = append(list, changedObject{Change: string(c.What), Kind: string(o.Kind), Name: o.Identity()})
	}
	return list
}
