//go:build unix

package main

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// background is a line of a document that goes on until a signal. It has a process
// group of its own, as in a terminal.
type background struct {
	line  string
	cmd   *exec.Cmd
	gone  chan struct{} // closed when no process holds its output any more
	notes string        // the file of the calls of pgque-vendor, see writeWatched
	ended bool          // by "end"

	mu  sync.Mutex
	out bytes.Buffer
}

func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *background) output() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// goesOn says that a line does not end by itself.
func goesOn(line string) bool {
	return strings.Contains(line, "while :;") || slices.ContainsFunc(shellCommands(line), func(words []string) bool {
		args, ok := callOf(words)
		return ok && untilSignal(args)
	})
}

// untilSignal says that a call of pgque-vendor ends with a signal, and then with 0.
func untilSignal(args []string) bool {
	return args[0] == "ticker" || args[0] == "consume" || slices.Contains(args, "--watch") || slices.Contains(args, "--keep")
}

// start starts a line and waits until it says something, which it does after it has
// got ready for signals. Whatever happens, it ends with the script.
func (r *reader) start(ts *testscript.TestScript, at, line string) {
	b := &background{line: at + ": " + line, gone: make(chan struct{})}
	b.notes = filepath.Join(ts.Getenv("WATCHED"), fmt.Sprintf("notes-%d", len(r.background)))
	ts.Check(ts.Exec("sh", "-c", "env -0 > $WATCHED/environment"))
	b.cmd = exec.Command("bash", "-e", "-o", "pipefail", "-c", line)
	b.cmd.Dir = ts.MkAbs(".")
	b.cmd.Env = append(strings.Split(strings.TrimSuffix(ts.ReadFile(filepath.Join(ts.Getenv("WATCHED"), "environment")), "\x00"), "\x00"),
		"PATH="+ts.Getenv("WATCHED")+string(os.PathListSeparator)+ts.Getenv("PATH"), "NOTES="+b.notes)
	b.cmd.Stdout, b.cmd.Stderr = b, b
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ts.Check(b.cmd.Start())
	go func() {
		_ = b.cmd.Wait()
		close(b.gone)
	}()
	if len(r.background) == 0 {
		ts.Defer(r.kill)
	}
	r.background = append(r.background, b)
	eventually(ts, func() bool { return b.output() != "" })
}

// kill is for what a failed script leaves behind.
func (r *reader) kill() {
	for _, b := range r.background {
		if b.alive() {
			_ = syscall.Kill(-b.cmd.Process.Pid, syscall.SIGKILL)
			<-b.gone
		}
	}
}

// cmdSeen: "seen REGEXP [NAME]" waits until a background line has printed this, also one
// that has ended, and puts the first group into $NAME.
func cmdSeen(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value("reader").(*reader)
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	eventually(ts, func() bool {
		for _, b := range r.background {
			if match := pattern.FindStringSubmatch(b.output()); match != nil {
				if len(args) > 1 {
					ts.Setenv(args[1], match[1])
				}
				return true
			}
		}
		return false
	})
}

// mustGoOn fails when a line has ended that goes on until a signal.
func (b *background) mustGoOn(ts *testscript.TestScript) {
	if !b.ended && !b.alive() {
		ts.Fatalf("%s: has ended by itself:\n%s", b.line, b.output())
	}
}

func (b *background) alive() bool {
	select {
	case <-b.gone:
		return false
	default:
		return true
	}
}

func (r *reader) outputs() string {
	var all strings.Builder
	for _, b := range r.background {
		fmt.Fprintf(&all, "$ %s\n%s\n", b.line, b.output())
	}
	return all.String()
}

// cmdEnd: "end" sends SIGTERM to what goes on, the last first. All that ends with a
// signal by design must exit with 0.
func cmdEnd(ts *testscript.TestScript, _ bool, _ []string) {
	r := ts.Value("reader").(*reader)
	for n := len(r.background) - 1; n >= 0; n-- {
		b := r.background[n]
		if b.ended {
			continue
		}
		b.mustGoOn(ts)
		b.ended = true
		b.terminate(ts)
		select {
		case <-b.gone:
		case <-time.After(patience):
			ts.Fatalf("%s does not end:\n%s", b.line, r.outputs())
		}
		for code, args := range b.noted("ended") {
			if code != "0" && !strings.Contains(b.line, "|| ") {
				ts.Fatalf("%s: the exit code of %q is %s after SIGTERM:\n%s", b.line, args, code, b.output())
			}
		}
	}
}

// terminate sends SIGTERM to the pgque-vendor of the line that goes on, as a container's
// engine does; what reads from it ends with it. A line without one, a loop, gets it as
// a whole.
func (b *background) terminate(ts *testscript.TestScript) {
	to := -b.cmd.Process.Pid // the group
	for number, args := range b.noted("started") {
		if untilSignal(args) {
			pid, err := strconv.Atoi(number)
			ts.Check(err)
			to = pid
		}
	}
	ts.Check(syscall.Kill(to, syscall.SIGTERM))
}

// noted goes through the calls of pgque-vendor that have started or ended: the number
// of the process or the exit code, and the arguments.
func (b *background) noted(what string) iter.Seq2[string, []string] {
	text, _ := os.ReadFile(b.notes) // not there: there was no call yet
	return func(yield func(string, []string) bool) {
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) > 2 && words[0] == what && !yield(words[1], words[2:]) {
				return
			}
		}
	}
}
