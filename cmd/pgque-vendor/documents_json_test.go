package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// jsonDocuments are what the commands with --json write.
func jsonDocuments() map[string]reflect.Type {
	return map[string]reflect.Type{
		"status":           reflect.TypeFor[statusDocument](),
		"list":             reflect.TypeFor[listDocument](),
		"update":           reflect.TypeFor[updateSummary](),
		"restore":          reflect.TypeFor[restoreDocument](),
		"diff":             reflect.TypeFor[diffDocument](),
		"bootstrap":        reflect.TypeFor[bootstrapDocument](),
		"publish":          reflect.TypeFor[publishDocument](),
		"publish --ndjson": reflect.TypeFor[publishLinesDocument](),
		"peek":             reflect.TypeFor[peekDocument](),
		"queues":           reflect.TypeFor[queuesDocument](),
		"doctor":           reflect.TypeFor[doctorReport](),
		"dlq list":         reflect.TypeFor[deadLettersDocument](),
		"dlq show":         reflect.TypeFor[deadLetterDocument](),
		"dlq replay":       reflect.TypeFor[movedDocument](),
		"dlq purge":        reflect.TypeFor[movedDocument](),
	}
}

var (
	jsonKeyRow = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| ([^|]+?) \\|")
	jsonKey    = regexp.MustCompile("`([^`]+)`")
)

// docs/json.md has, below the name of each command with --json, all keys of its
// document with their types, and an example that is a document of that type.
func TestJSONIsDocumented(t *testing.T) {
	t.Parallel()
	page := documents(t)["docs/json.md"]
	types := jsonDocuments()
	examples := map[string]string{}
	for _, b := range blocksOf("docs/json.md", page) {
		examples[b.heading] = b.text
	}
	documented := map[string]bool{}
	for _, section := range strings.Split(page, "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		got := map[string]string{}
		for _, row := range jsonKeyRow.FindAllStringSubmatch(text, -1) {
			for _, key := range jsonKey.FindAllStringSubmatch(row[1], -1) {
				if got[key[1]] != "" {
					t.Errorf("docs/json.md, %s: %q is there twice", heading, key[1])
				}
				got[key[1]] = row[2]
			}
		}
		for _, command := range strings.Split(heading, ", ") {
			document, ok := types[command]
			if !ok {
				t.Errorf("docs/json.md: no command %q writes JSON", command)
				continue
			}
			documented[command] = true
			want := map[string]string{}
			jsonKeys(t, document, "", want)
			for _, key := range slices.Sorted(maps.Keys(want)) {
				if got[key] != want[key] {
					t.Errorf("docs/json.md, %s: %q is said to be %q, and is %q", heading, key, got[key], want[key])
				}
			}
			for key := range got {
				if want[key] == "" {
					t.Errorf("docs/json.md, %s: there is no key %q", heading, key)
				}
			}
			checkJSONExample(t, heading, examples[heading], document)
		}
	}
	for _, command := range commandsWithJSON(newRootCommand(processEnvironment())) {
		if !documented[command] {
			t.Errorf("docs/json.md has no section for %q", command)
		}
	}
	for command := range types {
		if !documented[command] {
			t.Errorf("docs/json.md has no section for %q", command)
		}
	}
}

func commandsWithJSON(cmd *cobra.Command) (all []string) {
	if cmd.Flags().Lookup("json") != nil {
		_, words, _ := strings.Cut(cmd.CommandPath(), " ")
		all = append(all, words)
	}
	for _, child := range cmd.Commands() {
		all = append(all, commandsWithJSON(child)...)
	}
	return all
}

// jsonKeys gives each key of a document, with its path, and the page's word for its
// type.
func jsonKeys(t *testing.T, document reflect.Type, above string, keys map[string]string) {
	t.Helper()
	for n := range document.NumField() {
		field := document.Field(n)
		tag, ok := field.Tag.Lookup("json")
		if !ok && field.Anonymous {
			jsonKeys(t, field.Type, above, keys)
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if name == "" {
			t.Fatalf("%s.%s has no name in JSON", document, field.Name)
		}
		of, word := jsonType(t, field.Type)
		switch {
		case options == "omitempty":
			word = strings.TrimSuffix(word, " or null") + ", optional"
		case options != "":
			t.Fatalf("%s.%s has the option %q, which this test does not know", document, field.Name, options)
		}
		keys[above+name] = word
		if of != nil {
			below := above + name + "."
			if strings.HasPrefix(word, "list") {
				below = above + name + "[]."
			}
			jsonKeys(t, of, below, keys)
		}
	}
}

// jsonType is the page's word for a type, and the struct that has keys of its own.
func jsonType(t *testing.T, v reflect.Type) (of reflect.Type, word string) {
	t.Helper()
	switch v {
	case reflect.TypeFor[time.Time]():
		return nil, "time"
	case reflect.TypeFor[json.RawMessage]():
		return nil, "JSON"
	case reflect.TypeFor[map[string]string]():
		return nil, "object of strings"
	}
	switch v.Kind() {
	case reflect.String:
		return nil, "string"
	case reflect.Bool:
		return nil, "boolean"
	case reflect.Int, reflect.Int64:
		return nil, "integer"
	case reflect.Float64:
		return nil, "number"
	case reflect.Struct:
		return v, "object"
	case reflect.Pointer:
		of, word = jsonType(t, v.Elem())
		return of, word + " or null"
	case reflect.Slice:
		if of, word = jsonType(t, v.Elem()); of != nil {
			return of, "list"
		}
		return nil, "list of " + word + "s"
	}
	t.Fatalf("this test knows no word for %s", v)
	return nil, ""
}

// checkJSONExample reads an example and writes it again: it has all keys, in the
// program's order, and no other.
func checkJSONExample(t *testing.T, heading, example string, document reflect.Type) {
	t.Helper()
	value := reflect.New(document).Interface()
	d := json.NewDecoder(strings.NewReader(example))
	d.DisallowUnknownFields()
	if err := d.Decode(value); err != nil {
		t.Errorf("docs/json.md, %s: the example is no such document: %v", heading, err)
		return
	}
	var written, got, want bytes.Buffer
	if err := writeJSON(&written, value); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&want, written.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := json.Compact(&got, []byte(example)); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("docs/json.md, %s: the example is\n%s\nand would be written as\n%s", heading, &got, &want)
	}
}
