package sqltext

import (
	"maps"
	"slices"
)

// What says what happened to an object between two texts.
type What string

// What can happen to an object. A changed function can have changed in several
// ways; What is the first of these that holds, and Parts has them all.
const (
	Added             What = "added"
	Removed           What = "removed"
	ChangedSignature  What = "changed-signature"  // other argument types, names, modes or defaults
	ChangedResult     What = "changed-result"     // another result type
	ChangedAttributes What = "changed-attributes" // language, volatility, security, settings, …
	ChangedBody       What = "changed-body"       // only the code inside
	ChangedDefinition What = "changed-definition" // of anything but a function or procedure
)

// Change is one object that differs between two texts.
type Change struct {
	What   What
	Parts  []What  // all that changed of a function or procedure, What first
	Before *Object // nil when it was added
	After  *Object // nil when it was removed
}

// Object is the object as it is now, or as it was before it was removed.
func (c Change) Object() Object {
	if c.After != nil {
		return *c.After
	}
	return *c.Before
}

// Compare returns what differs from a to b, two results of Objects, sorted as
// they are. A function that was replaced by the only new one of its name, with
// other argument types, is one changed signature, not one added and one
// removed.
func Compare(a, b []Object) []Change {
	before, after := byKey(a), byKey(b)
	var changes, removed, added []Change
	for key, old := range before {
		current, still := after[key]
		if !still {
			removed = append(removed, Change{What: Removed, Before: old})
			continue
		}
		if parts := differences(*old, *current); len(parts) > 0 {
			changes = append(changes, Change{What: parts[0], Parts: parts, Before: old, After: current})
		}
	}
	for key, current := range after {
		if _, was := before[key]; !was {
			added = append(added, Change{What: Added, After: current})
		}
	}
	changes = append(changes, pairOverloads(removed, added)...)
	slices.SortFunc(changes, func(x, y Change) int {
		return compareObjects(x.Object(), y.Object())
	})
	return changes
}

// objectKey tells the objects of a text apart.
type objectKey struct {
	kind     Kind
	identity string
}

func byKey(objects []Object) map[objectKey]*Object {
	m := make(map[objectKey]*Object, len(objects))
	for i := range objects {
		m[objectKey{objects[i].Kind, objects[i].Identity()}] = &objects[i]
	}
	return m
}

// pairOverloads joins a function that went and one that came, where both are
// the only ones of their name.
func pairOverloads(removed, added []Change) []Change {
	group := func(changes []Change) map[objectName][]Change {
		m := map[objectName][]Change{}
		for _, c := range changes {
			o := c.Object()
			m[objectName{o.Kind, o.Name}] = append(m[objectName{o.Kind, o.Name}], c)
		}
		return m
	}
	gone, came := group(removed), group(added)
	var changes []Change
	for n, old := range gone {
		current := came[n]
		if len(old) != 1 || len(current) != 1 {
			changes = append(changes, old...)
			continue
		}
		delete(came, n)
		parts := differences(*old[0].Before, *current[0].After)
		changes = append(changes, Change{What: ChangedSignature, Parts: parts, Before: old[0].Before, After: current[0].After})
	}
	for c := range maps.Values(came) {
		changes = append(changes, c...)
	}
	return changes
}

// differences lists what differs between two objects, the most important for a
// caller first.
func differences(a, b Object) []What {
	if a.Kind != Function && a.Kind != Procedure {
		if a.Definition != b.Definition {
			return []What{ChangedDefinition}
		}
		return nil
	}
	var parts []What
	for _, d := range []struct {
		differs bool
		what    What
	}{
		{a.arguments() != b.arguments(), ChangedSignature},
		{a.Result != b.Result, ChangedResult},
		{a.Language != b.Language || a.Volatility != b.Volatility || a.Definer != b.Definer ||
			!slices.Equal(a.Settings, b.Settings) || !slices.Equal(a.Options, b.Options), ChangedAttributes},
		{a.Body != b.Body || a.Definition != b.Definition, ChangedBody},
	} {
		if d.differs {
			parts = append(parts, d.what)
		}
	}
	return parts
}

// arguments is the signature without the result.
func (o Object) arguments() string {
	return o.Signature[:len(o.Signature)-len(o.resultSuffix())]
}

func (o Object) resultSuffix() string {
	if o.Result == "" {
		return ""
	}
	return " returns " + o.Result
}
