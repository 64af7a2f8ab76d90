package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stega/pgque-vendor/internal/gitobject"
)

// A name is one line, whatever a server says: a second one could be a command to
// GitHub Actions.
func TestListHostileTag(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	env := processEnvironment()
	env.stdout = &stdout
	o := listOptions{sql: true}
	same := "v9.9.8\n::error::x"
	doc := listDocument{Tags: []listedTag{{Tag: "v9.9.9\n::error::x\x1b[2J", SQLBlob: new(gitobject.ID), SameSQLAs: &same}}}
	*doc.Tags[0].SQLBlob = "0123456789012345678901234567890123456789"
	if err := o.print(env, doc); err != nil {
		t.Fatal(err)
	}
	if got := stdout.String(); strings.Count(got, "\n") != 1 || strings.Contains(got, "\x1b") {
		t.Errorf("list prints %q", got)
	}
}
