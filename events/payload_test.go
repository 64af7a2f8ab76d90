package events

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestCheckPayload(t *testing.T) {
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	for _, test := range []struct{ payload, want string }{
		{` {"a": [1, -0.5e+7, "é\n\u00e9\ud83d\ude00", true, false, null, {}, []]} `, ""},
		{deep, ""},
		{`[` + deep + `]`, "payload is nested deeper than 10000"},
		{``, "payload is empty; the JSON for nothing is null"},
		{`   `, "payload is not JSON: it ends after 3 bytes, too early"},
		{`{"id": 7`, "payload is not JSON: it ends after 8 bytes, too early"},
		{`"abc`, "payload is not JSON: it ends after 4 bytes, too early"},
		{`"abc\`, `payload is not JSON: unexpected '\\' after 4 bytes`},
		{`nul`, "payload is not JSON: it ends after 3 bytes, too early"},
		{`{'id': 7}`, `payload is not JSON: unexpected '\'' after 1 bytes`},
		{`{"id": 7,}`, "payload is not JSON: unexpected '}' after 9 bytes"},
		{`{"id" 7}`, "payload is not JSON: unexpected '7' after 6 bytes"},
		{`[1 2]`, "payload is not JSON: unexpected '2' after 3 bytes"},
		{`1 2`, "payload is not JSON: unexpected '2' after 2 bytes"},
		{`01`, "payload is not JSON: unexpected '1' after 1 bytes"},
		{`1.`, "payload is not JSON: it ends after 2 bytes, too early"},
		{`1e+`, "payload is not JSON: it ends after 3 bytes, too early"},
		{`+1`, "payload is not JSON: unexpected '+' after 0 bytes"},
		{`hello`, "payload is not JSON: unexpected 'h' after 0 bytes"},
		{`"é` + "\n" + `"`, `payload is not JSON: unexpected '\n' after 3 bytes`},
		{`["\x"]`, `payload is not JSON: unexpected '\\' after 2 bytes`},
		{`["\u00g0"]`, `payload is not JSON: unexpected '\\' after 2 bytes`},
		{`€`, "payload is not JSON: unexpected '€' after 0 bytes"},
		{"\x00", "payload contains a NUL byte"},
		{"\"a\x00\"", "payload contains a NUL byte"},
		{"\"\xff\"", "payload is not valid UTF-8"},
		{`"\\\u0000"`, `payload contains \u0000, which PostgreSQL's jsonb refuses`},
		{`"\\u0000"`, ""},
		{`{"\uD83D": 1}`, `payload contains \uD83D without its other half, which PostgreSQL's jsonb refuses`},
		{`"\ude00\ud83d"`, `payload contains \ude00 without its other half, which PostgreSQL's jsonb refuses`},
		{`"\ud83d\n"`, `payload contains \ud83d without its other half, which PostgreSQL's jsonb refuses`},
	} {
		got := strings.TrimSuffix(fmt.Sprint(checkPayload([]byte(test.payload), 1<<20)), ": not valid")
		if got == "<nil>" {
			got = ""
		}
		if got != test.want {
			t.Errorf("%.60q: %s, want %s", test.payload, got, test.want)
		}
	}
}

func BenchmarkCheckPayload(b *testing.B) {
	for name, payload := range map[string]string{
		"59 bytes":  `{"ticket":4711,"email":"ann@example.com","at":"2026-11-30"}`,
		"272 bytes": `{"ticket_id":48211,"requester":{"name":"Ann Example","email":"ann@example.org","locale":"de"},"subject":"The export of last week's report fails","priority":"high","opened_at":"2026-11-30T09:14:07Z","tags":["export","report"],"url":"https://help.example.org/tickets/48211"}`,
	} {
		data := []byte(payload)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := checkPayload(data, DefaultMaxPayload); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+", json.Valid alone", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if !json.Valid(data) {
					b.Fatal("not valid")
				}
			}
		})
	}
}
