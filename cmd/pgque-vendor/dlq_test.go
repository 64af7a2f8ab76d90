package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/pgtest"
)

// On a terminal the person is shown what was chosen, and asked; only a yes is one.
func TestDLQAsksOnATerminal(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	db.Install(t, pgtest.Standin())
	db.Exec(t, `select pgque.create_queue('q'), pgque.subscribe('q', 'c')`)
	db.Exec(t, `insert into pgque.dead_letter (dl_queue_id, dl_consumer_id, ev_id, ev_time) select sub_queue, sub_consumer, 7, now() from pgque.subscription`)
	for _, test := range []struct {
		answer string
		code   int
		left   string
	}{
		{"", 6, "1"}, {"\n", 6, "1"}, {"n\n", 6, "1"}, {"yellow\n", 6, "1"}, {" Y \n", 0, "0"},
	} {
		var out, talk bytes.Buffer
		stdin := strings.NewReader(test.answer)
		variables := map[string]string{"PGQUE_VENDOR_DATABASE_URL": db.URL}
		code := run([]string{"dlq", "purge", "--queue", "q"}, &environment{
			stdin: stdin, stdout: &out, stderr: &talk,
			lookup: func(name string) (string, bool) { v, ok := variables[name]; return v, ok },
			now:    time.Now, color: "never", log: slog.New(slog.DiscardHandler),
			tty: func(w any) bool { return w == any(stdin) },
		})
		if code != test.code {
			t.Errorf("answer %q: exit code %d, want %d: %s", test.answer, code, test.code, talk.String())
		}
		if !strings.Contains(talk.String(), "q      c") || !strings.Contains(talk.String(), "delete 1 dead letter for good? [y/N] ") {
			t.Errorf("answer %q: not asked: %s", test.answer, talk.String())
		}
		if got := db.Value(t, "select count(*) from pgque.dead_letter"); got != test.left {
			t.Errorf("answer %q: %s dead letters are left, want %s", test.answer, got, test.left)
		}
	}
}

func FuzzAge(f *testing.F) {
	for _, seed := range []string{"30d", "12h", "1h30m", "-1d", "0d", "9999999999d", "d", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var a, again ageFlag
		if a.Set(text) != nil {
			return
		}
		if a <= 0 {
			t.Errorf("%q is %d", text, a)
		}
		if err := again.Set(a.String()); err != nil || again != a {
			t.Errorf("%q is %q, which is %q (%v)", text, a.String(), again.String(), err)
		}
	})
}
