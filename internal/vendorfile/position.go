package vendorfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/stega/pgque-vendor/internal/fault"
)

// scanner reads JSON token by token and knows where each token starts, which
// encoding/json tells nobody else. Its errors carry line and column.
type scanner struct {
	data    []byte
	decoder *json.Decoder
}

func newScanner(data []byte) *scanner {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // 1.0 and 1e0 must not pass for 1
	return &scanner{data, d}
}

// errorf makes an integrity failure that points at a byte of SOURCE.json.
// Columns count characters, as editors do.
func (s *scanner) errorf(at int, format string, args ...any) *fault.Error {
	at = min(at, len(s.data))
	before := s.data[:at]
	line := bytes.Count(before, []byte("\n")) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return fault.New(fault.Integrity, "%s:%d:%d: %w", SourceName, line, column, fmt.Errorf(format, args...))
}

// token returns the next token and where it starts.
func (s *scanner) token() (json.Token, int, error) {
	at := s.skipBlanks(int(s.decoder.InputOffset()))
	if at < len(s.data) && (s.data[at] == ',' || s.data[at] == ':') {
		at = s.skipBlanks(at + 1)
	}
	t, err := s.decoder.Token()
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return t, at, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, at, s.errorf(len(s.data), "the file ends too early: it is no whole JSON document")
	case errors.As(err, &syntax):
		return nil, at, s.errorf(max(at, int(syntax.Offset)-1), "no valid JSON: %s", syntax)
	}
	return nil, at, s.errorf(at, "no valid JSON: %s", err)
}

func (s *scanner) skipBlanks(at int) int {
	for at < len(s.data) && strings.IndexByte(" \t\r\n", s.data[at]) >= 0 {
		at++
	}
	return at
}

// object reads an object and calls member for each of its keys, which must
// consume the value. It returns where the object starts. A key that comes
// twice is refused: programs disagree on which of the two counts.
func (s *scanner) object(what string, member func(key string, at int) error) (int, error) {
	t, start, err := s.token()
	if err != nil {
		return start, err
	}
	if t != json.Delim('{') {
		return start, s.errorf(start, "%s must be an object, it is %s", what, kindOf(t))
	}
	seen := map[string]bool{}
	for s.decoder.More() {
		t, at, err := s.token()
		if err != nil {
			return start, err
		}
		key := t.(string) // the decoder lets nothing else through here
		if seen[key] {
			return start, s.errorf(at, "duplicate key %q", key)
		}
		seen[key] = true
		if err := member(key, at); err != nil {
			return start, err
		}
	}
	_, _, err = s.token()
	return start, err
}

// text reads a value that must be a string.
func (s *scanner) text(key string) (string, int, error) {
	t, at, err := s.token()
	if err != nil {
		return "", at, err
	}
	v, ok := t.(string)
	if !ok {
		return "", at, s.errorf(at, "%q must be a string, it is %s", key, kindOf(t))
	}
	return v, at, nil
}

// errTooLarge is wrapped by integer's error for a number of more than 63 bits.
var errTooLarge = errors.New("too large")

// integer reads a value that must be a whole number from 1 on, written in
// digits.
func (s *scanner) integer(key string) (int64, int, error) {
	t, at, err := s.token()
	if err != nil {
		return 0, at, err
	}
	number, ok := t.(json.Number)
	if !ok {
		return 0, at, s.errorf(at, "%q must be a number, it is %s", key, kindOf(t))
	}
	if strings.Trim(string(number), "0123456789") != "" || number == "0" {
		return 0, at, s.errorf(at, "%q must be a whole number from 1 on, it is %s", key, clip(string(number)))
	}
	n, err := number.Int64()
	if err != nil {
		return 0, at, s.errorf(at, "%q is %w: %s", key, errTooLarge, clip(string(number)))
	}
	return n, at, nil
}

// skip reads a value of any kind.
func (s *scanner) skip() error {
	for depth := 0; ; {
		t, _, err := s.token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// end refuses anything after the document.
func (s *scanner) end() error {
	rest := s.data[s.decoder.InputOffset():]
	if trimmed := bytes.TrimLeft(rest, " \t\r\n"); len(trimmed) > 0 {
		return s.errorf(len(s.data)-len(trimmed), "more text after the end of the document")
	}
	return nil
}

func kindOf(t json.Token) string {
	switch t := t.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("the string %q", clip(t))
	case bool:
		return fmt.Sprint(t)
	case json.Number:
		return "the number " + clip(t.String())
	case json.Delim:
		if t == '[' {
			return "an array"
		}
	}
	return "an object"
}

// clip keeps a value from filling the screen.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
