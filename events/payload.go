package events

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// checkPayload says what keeps data from being sent: its size, or that it is not
// JSON that PostgreSQL's jsonb takes. Numbers are taken as JSON has them: jsonb's
// end at 131,072 digits.
func checkPayload(data []byte, maxPayload int) error {
	switch {
	case len(data) == 0:
		return fmt.Errorf("payload is empty; the JSON for nothing is null: %w", ErrInvalid)
	case len(data) > maxPayload:
		return fmt.Errorf("payload of %d bytes, the limit is %d: %w", len(data), maxPayload, ErrTooLarge)
	case !utf8.Valid(data):
		return fmt.Errorf("payload is not valid UTF-8: %w", ErrInvalid)
	}
	c := jsonCheck{data: data}
	if c.document(); c.problem == "" {
		return nil
	}
	if c.at < len(data) && data[c.at] == 0 {
		return fmt.Errorf("payload contains a NUL byte: %w", ErrInvalid)
	}
	return fmt.Errorf("payload %s: %w", c.problem, ErrInvalid)
}

// jsonCheck goes over a JSON text once. json.Valid takes three times as long, which
// was a third of the client's time for an event, and knows nothing of the escapes
// that jsonb refuses. Its functions return false when there is a problem.
type jsonCheck struct {
	data    []byte
	at      int
	problem string // "" while there is none
}

// maxDepth is how deep encoding/json follows arrays and objects.
const maxDepth = 10_000

func (c *jsonCheck) document() bool {
	if !c.value(0) {
		return false
	}
	c.space()
	return c.at == len(c.data) || c.invalid()
}

// invalid says that the text is not JSON from here on.
func (c *jsonCheck) invalid() bool {
	if c.at >= len(c.data) {
		c.problem = fmt.Sprintf("is not JSON: it ends after %d bytes, too early", len(c.data))
	} else {
		r, _ := utf8.DecodeRune(c.data[c.at:])
		c.problem = fmt.Sprintf("is not JSON: unexpected %q after %d bytes", r, c.at)
	}
	return false
}

func (c *jsonCheck) space() {
	for c.at < len(c.data) {
		switch c.data[c.at] {
		case ' ', '\t', '\n', '\r':
			c.at++
		default:
			return
		}
	}
}

// is passes one character.
func (c *jsonCheck) is(char byte) bool {
	if c.at < len(c.data) && c.data[c.at] == char {
		c.at++
		return true
	}
	return false
}

func (c *jsonCheck) value(depth int) bool {
	c.space()
	if c.at == len(c.data) {
		return c.invalid()
	}
	switch c.data[c.at] {
	case '"':
		return c.string()
	case '{', '[':
		if depth == maxDepth {
			c.problem = fmt.Sprintf("is nested deeper than %d", maxDepth)
			return false
		}
		if c.is('{') {
			return c.object(depth + 1)
		}
		c.at++
		return c.array(depth + 1)
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	}
	return c.number()
}

func (c *jsonCheck) object(depth int) bool {
	c.space()
	if c.is('}') {
		return true
	}
	for {
		c.space()
		if c.at == len(c.data) || c.data[c.at] != '"' {
			return c.invalid()
		}
		if !c.string() {
			return false
		}
		c.space()
		if !c.is(':') {
			return c.invalid()
		}
		if !c.value(depth) {
			return false
		}
		c.space()
		if c.is('}') {
			return true
		}
		if !c.is(',') {
			return c.invalid()
		}
	}
}

func (c *jsonCheck) array(depth int) bool {
	c.space()
	if c.is(']') {
		return true
	}
	for {
		if !c.value(depth) {
			return false
		}
		c.space()
		if c.is(']') {
			return true
		}
		if !c.is(',') {
			return c.invalid()
		}
	}
}

func (c *jsonCheck) literal(word string) bool {
	for i := range len(word) {
		if !c.is(word[i]) {
			return c.invalid()
		}
	}
	return true
}

func (c *jsonCheck) number() bool {
	c.is('-')
	if !c.is('0') && !c.digits() {
		return c.invalid()
	}
	if c.is('.') && !c.digits() {
		return c.invalid()
	}
	if c.is('e') || c.is('E') {
		if !c.is('+') {
			c.is('-')
		}
		if !c.digits() {
			return c.invalid()
		}
	}
	return true
}

// digits passes one digit at least.
func (c *jsonCheck) digits() bool {
	from := c.at
	for c.at < len(c.data) && '0' <= c.data[c.at] && c.data[c.at] <= '9' {
		c.at++
	}
	return c.at > from
}

func (c *jsonCheck) string() bool {
	for c.at++; ; {
		rest := c.data[c.at:]
		plain := 0
		for plain < len(rest) && rest[plain] >= ' ' && rest[plain] != '"' && rest[plain] != '\\' {
			plain++
		}
		c.at += plain
		switch {
		case c.is('"'):
			return true
		case c.at == len(c.data) || c.data[c.at] < ' ':
			return c.invalid()
		case !c.escape():
			return false
		}
	}
}

// escape passes an escape that jsonb takes too. It refuses \u0000, and half of a
// character that takes two.
func (c *jsonCheck) escape() bool {
	if c.at+1 < len(c.data) && bytes.IndexByte([]byte(`"\/bfnrt`), c.data[c.at+1]) >= 0 {
		c.at += 2
		return true
	}
	code, ok := escaped(c.data[c.at:])
	if !ok {
		return c.invalid()
	}
	escape := string(c.data[c.at : c.at+6])
	if code == 0 {
		c.problem = "contains " + escape + ", which PostgreSQL's jsonb refuses"
		return false
	}
	c.at += 6
	if utf16.IsSurrogate(code) {
		low, ok := escaped(c.data[c.at:])
		if !ok || utf16.DecodeRune(code, low) == utf8.RuneError {
			c.problem = "contains " + escape + " without its other half, which PostgreSQL's jsonb refuses"
			return false
		}
		c.at += 6
	}
	return true
}

// escaped reads an escape of four hexadecimal digits, such as \u00e9.
func escaped(data []byte) (rune, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	code, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(code), err == nil
}
