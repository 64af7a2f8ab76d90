package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestGrow(t *testing.T) {
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 4 * time.Second, 4: 64 * time.Second, 50: time.Hour, 1 << 30: time.Hour} {
		for range 100 {
			d := grow(time.Second, 4, time.Hour, attempt)
			if d < time.Second || d > time.Hour || d < want*3/4 || d > max(want*5/4, time.Second) {
				t.Fatalf("attempt %d: %s, want %s more or less a quarter", attempt, d, want)
			}
		}
	}
}

type badError struct{ text *string }

func (e badError) Error() string { return *e.text }

func TestReasonOf(t *testing.T) {
	for name, err := range map[string]error{
		"NUL": errors.New("a\x00b"), "not UTF-8": errors.New("a\xffb"), "long": errors.New(strings.Repeat("€", 5000)),
		"panics": badError{}, "cut at a rune": errors.New("x" + strings.Repeat("€", 5000)), "empty": errors.New(""),
	} {
		text := reasonOf(err)
		if !utf8.ValidString(text) || strings.Contains(text, "\x00") || len(text) > maxReason+10 {
			t.Errorf("%s: %d bytes %.40q", name, len(text), text)
		}
	}
}

// FuzzPayload holds the check of payloads against a real decoder.
func FuzzPayload(f *testing.F) {
	for _, s := range []string{`"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `{"\u0000":1}`, `["\u00000"]`, "\"\xff\"", `""`, `1 2`, "\x00", `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `"\ud83d\n"`, `"\\ud83d"`, `[1e999, -0.5E-7]`, `{"a":{"b":[true,false,null]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		decodes := json.Valid(data) && utf8.Valid(data)
		if decodes { // numbers as text: a float64 does not hold all that are JSON
			decoder := json.NewDecoder(bytes.NewReader(data))
			decoder.UseNumber()
			if err := decoder.Decode(&v); err != nil {
				t.Fatal(err)
			}
		}
		hasNUL := decodes && holdsNUL(v)
		err := checkPayload(data, DefaultMaxPayload)
		if err != nil && strings.Contains(err.Error(), "its other half") {
			if decodes && !strings.Contains(fmt.Sprint(v), "\ufffd") && !strings.Contains(strings.ToLower(string(data)), `\ud`) {
				t.Errorf("%q: %v", data, err)
			}
			return
		}
		if (err == nil) != (decodes && !hasNUL) {
			// A key that is overwritten by a later one of the same name is not in v.
			if decodes && !hasNUL && strings.Contains(err.Error(), `\u0000`) {
				return
			}
			t.Errorf("%q: %v; decodes %v, NUL %v", data, err, decodes, hasNUL)
		}
	})
}

func holdsNUL(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, "\x00")
	case []any:
		for _, e := range v {
			if holdsNUL(e) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if holdsNUL(k) || holdsNUL(e) {
				return true
			}
		}
	}
	return false
}

func TestClassify(t *testing.T) {
	if err := wrap(nil, "x"); err != nil {
		t.Errorf("wrap(nil) = %v", err)
	}
	plain := errors.New("plain")
	if err := wrap(plain, "do %q", "x"); !errors.Is(err, plain) || err.Error() != `do "x": plain` {
		t.Errorf("wrap = %v", err)
	}
}

// Other programs may keep anything in extra3.
func TestParseHeaders(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"1","b":""}`: `map[string]string{"a":"1", "b":""}`,
		`{"n":1,"s":"x","t":true,"o":{"a": [1]},"l":12345678901234567890.10,"0":null}`: `map[string]string{"0":"", "l":"12345678901234567890.10", "n":"1", "o":"{\"a\": [1]}", "s":"x", "t":"true"}`,
		`{}`: "map[string]string{}", `[1]`: "map[string]string(nil)", `7`: "map[string]string(nil)", `null`: "map[string]string(nil)",
		`{"a":"1"`: "map[string]string(nil)", `a=1`: "map[string]string(nil)", ``: "map[string]string(nil)",
	} {
		if got := fmt.Sprintf("%#v", parseHeaders(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
