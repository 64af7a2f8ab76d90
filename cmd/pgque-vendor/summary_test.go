package main

import (
	"strings"
	"testing"
)

// hostileSummary has names that upstream is free to choose.
func hostileSummary(tag string) *updateSummary {
	return &updateSummary{
		Action:     "updated",
		Repository: "NikolayS/PgQue",
		From:       &revision{"v0.1.0", strings.Repeat("a", 40)},
		To:         revision{tag, strings.Repeat("b", 40)},
		Notes:      []string{tag + " has the same SQL as the one you had (v0.1.0)"},
		Objects: []changedObject{
			{Change: "added", Kind: "table", Name: "\"x\n```\n</details>\n@octocat\n::error file=a::no\""},
			{Change: "added", Kind: "table", Name: "\"esc\x1b[2J\tend\""},
		},
	}
}

// What upstream names can neither leave its code block in a pull request nor
// address anybody there.
func TestMarkdownOfHostileNames(t *testing.T) {
	t.Parallel()
	body := hostileSummary("v1.1.1-@octocat/<b>x</b>`|#1").markdown()
	for line := range strings.Lines(body) {
		for _, bad := range []string{"@octocat", "<b>", "#1"} {
			if strings.Contains(line, bad) && !strings.HasPrefix(line, "+ ") && !strings.Contains(line, "``v1.1.1-@octocat/<b>x</b>`|#1") && !strings.Contains(line, "``NikolayS/PgQue: ") {
				t.Errorf("%q stands outside code: %q", bad, line)
			}
		}
	}
	if got := strings.Count(body, "\n```"); got != 2 {
		t.Errorf("%d lines open or close a code block, want 2:\n%s", got, body)
	}
	if strings.ContainsAny(body, "\x1b\t") {
		t.Errorf("control characters got into it: %q", body)
	}
}

// A plain tag reads as before.
func TestMarkdownOfPlainNames(t *testing.T) {
	t.Parallel()
	body := hostileSummary("v0.2.0-rc.1").markdown()
	for _, want := range []string{"## PgQue v0.2.0-rc.1\n", "\nNikolayS/PgQue: v0.1.0 (aaaaaaaaaaaa) -> v0.2.0-rc.1 (bbbbbbbbbbbb)\n", "\n- v0.2.0-rc.1 has the same SQL"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in it:\n%s", want, body)
		}
	}
}

// A name with a line break can't begin a line of its own: in a log of GitHub
// Actions that line could be a command.
func TestObjectStaysOnItsLine(t *testing.T) {
	t.Parallel()
	for _, o := range hostileSummary("v1").Objects {
		if line := o.line(); strings.ContainsAny(line, "\n\r\t\x1b") {
			t.Errorf("%q", line)
		}
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"@a":    "`@a`",
		"a`b@":  "``a`b@``",
		"``":    "``` `` ```",
		"a`":    "`` a` ``",
		"plain": "`plain`",
	} {
		if got := code(in); got != want {
			t.Errorf("code(%q) = %q, want %q", in, got, want)
		}
	}
}
