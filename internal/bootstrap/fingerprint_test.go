package bootstrap

import (
	"slices"
	"testing"
)

// Of overloads the right one is named, and two are not the same line twice.
func TestCompareOverloads(t *testing.T) {
	t.Parallel()
	file := fileFunctions([]byte(`
		create function pgque.drop(q text, force boolean) returns int language sql as 'select 1';
		create function pgque.drop(q text) returns int language sql as 'select 2';
		create function pgque."Odd"() returns int language sql as 'select 3';`))
	body := func(name, args string) string {
		i := slices.IndexFunc(file[name], func(o overload) bool { return o.args == args })
		return file[name][i].body
	}
	for _, c := range []struct {
		name string
		live []function
		want []string
	}{
		{"none is there", nil, []string{"pgque.Odd() is missing", "pgque.drop(text) is missing", "pgque.drop(text, boolean) is missing"}},
		{"one is there", []function{{Name: "drop", Args: "q text, force boolean", Body: body("drop", "text, boolean")}, {Name: "Odd", Body: body("Odd", "")}},
			[]string{"pgque.drop(text) is missing"}},
		{"one is changed", []function{{Name: "drop", Args: "q text", Body: "x"}, {Name: "Odd", Body: body("Odd", "")}},
			[]string{"pgque.drop(q text) differs from the file", "pgque.drop(text, boolean) is missing"}},
	} {
		if got := compare(file, c.live).lines(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
