package vendorfile

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

// scenario is a run that is made to fail, or killed, at each of its steps.
type scenario struct {
	name  string
	setUp func(t testing.TB, dir string)
	run   func(t testing.TB, dir string, seams seams) error
	old   func(t testing.TB) map[string]string // the folder before, nil when it is not there
	next  func(t testing.TB) map[string]string // the folder after
}

func nextFiles() map[string][]byte {
	files := contents("0.2.0")
	files[LicenseName] = []byte("another licence\n") // two files change, one doesn't
	return files
}

func scenarios() []scenario {
	update := func(t testing.TB, dir string, seams seams) error {
		return runUpdate(dir, "v0.2.0", nextFiles(), sourceOf(t, "v0.2.0", nextFiles()), seams)
	}
	next := func(t testing.TB) map[string]string { return treeOf(nextFiles(), sourceOf(t, "v0.2.0", nextFiles())) }
	old := func(t testing.TB) map[string]string {
		return treeOf(contents("0.1.0"), sourceOf(t, "v0.1.0", contents("0.1.0")))
	}
	install := func(t testing.TB, dir string) {
		if err := runUpdate(dir, "v0.1.0", contents("0.1.0"), sourceOf(t, "v0.1.0", contents("0.1.0")), quickSeams()); err != nil {
			t.Fatal(err)
		}
	}
	return []scenario{
		{"update", install, update, old, next},
		{"first update", func(testing.TB, string) {}, update, func(testing.TB) map[string]string { return nil }, next},
		{
			name: "restore",
			setUp: func(t testing.TB, dir string) {
				install(t, dir)
				for _, name := range []string{SQLName, NoticeName, attributesName} {
					if err := os.Remove(filepath.Join(dir, name)); err != nil {
						t.Fatal(err)
					}
				}
			},
			run: func(_ testing.TB, dir string, seams seams) error {
				return runUpdate(dir, "", contents("0.1.0"), nil, seams)
			},
			old: func(t testing.TB) map[string]string {
				all := old(t)
				delete(all, SQLName)
				delete(all, NoticeName)
				delete(all, attributesName)
				return all
			},
			next: old,
		},
		{
			// The run before died after it had replaced one file.
			name: "repair",
			setUp: func(t testing.TB, dir string) {
				install(t, dir)
				put(t, dir, LicenseName, string(nextFiles()[LicenseName]))
				put(t, dir, commandName, "pgque-vendor update v0.2.0\n")
				put(t, dir, stagingName+"/new.pgque.sql", "half")
				put(t, dir, stagingName+"/old.LICENSE", string(contents("0.1.0")[LicenseName]))
			},
			run:  update,
			old:  func(testing.TB) map[string]string { return nil }, // never calm again before it is new
			next: next,
		},
	}
}

// quickSeams are the real ones but for the syncs, of which these tests would
// make some ten thousand. A failure or a kill takes nothing from the system's
// own memory, so they prove nothing here.
func quickSeams() seams {
	s := realSeams()
	s.sync = func(*os.File) error { return nil }
	return s
}

// scratch is a temporary folder in memory where the system has one: a rename
// over a file waits for a real disk.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "vendorfile-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func runUpdate(dir, tag string, files map[string][]byte, source *Source, seams seams) error {
	command := "pgque-vendor update " + tag
	if source == nil {
		command = "pgque-vendor restore"
	}
	s, err := begin(dir, command, seams)
	if err != nil {
		return err
	}
	_, err = s.Commit(files, source)
	return errors.Join(err, s.Close())
}

// verdict fails the test unless the folder is the old one, the new one, or one
// that Check calls interrupted.
func (sc scenario) verdict(t testing.TB, dir, when string) {
	t.Helper()
	got := tree(t, dir)
	r := mustCheck(t, dir)
	old := sc.old(t)
	switch {
	case r.Clean():
		if !reflect.DeepEqual(got, sc.next(t)) && !reflect.DeepEqual(got, old) {
			t.Errorf("%s: Check says clean, and the folder is neither old nor new: %v", when, got)
		}
	case r.Interrupted:
		if r.Findings[0].Code != Interrupted || r.Findings[0].Hint == "" {
			t.Errorf("%s: %+v", when, r.Findings)
		}
	case old != nil && reflect.DeepEqual(got, old):
	case old == nil && sc.name == "first update" && (len(got) == 0 || reflect.DeepEqual(got, map[string]string{"./": ""})):
	default:
		t.Errorf("%s: Check says %q, and not that it was interrupted: %v", when, summary(r), got)
	}
}

// repaired fails the test unless the same run makes the folder new.
func (sc scenario) repaired(t testing.TB, dir, when string) {
	t.Helper()
	if sc.name != "restore" {
		// The command asks for local edits first; what died must be none.
		if edits := LocalEdits(mustCheck(t, dir), sourceOf(t, "v0.2.0", nextFiles()).Files); len(edits) > 0 {
			t.Errorf("%s: counts as local edits: %+v", when, edits)
		}
	}
	if err := sc.run(t, dir, quickSeams()); err != nil {
		t.Errorf("%s: the same command does not repair it: %v", when, err)
	}
	if r := mustCheck(t, dir); !r.Clean() || !reflect.DeepEqual(tree(t, dir), sc.next(t)) {
		t.Errorf("%s: not repaired: %s, %v", when, summary(r), tree(t, dir))
	}
}

// steps lists the steps of a whole run.
func (sc scenario) steps(t testing.TB) []string {
	t.Helper()
	dir := filepath.Join(scratch(t), "vendor", "pgque")
	sc.setUp(t, dir)
	var steps []string
	s := quickSeams()
	s.before = func(step, name string) error {
		steps = append(steps, step+" "+filepath.Base(name))
		return nil
	}
	if err := sc.run(t, dir, s); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(tree(t, dir), sc.next(t)) {
		t.Fatalf("a whole run leaves %v", tree(t, dir))
	}
	return steps
}

var errInjected = errors.New("no space left on device")

// Each step fails once; and each step fails with all that come after it, so
// that nothing can be put back or swept.
func TestFailAtEveryStep(t *testing.T) {
	t.Parallel()
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			steps := sc.steps(t)
			for _, forever := range []bool{false, true} {
				for i, step := range steps {
					when := fmt.Sprintf("step %d (%s) fails, forever %v", i, step, forever)
					dir := filepath.Join(scratch(t), "vendor", "pgque")
					sc.setUp(t, dir)
					n := 0
					s := quickSeams()
					s.before = func(string, string) error {
						n++
						if n == i+1 || forever && n > i {
							return errInjected
						}
						return nil
					}
					err := sc.run(t, dir, s)
					if err == nil || !strings.Contains(err.Error(), errInjected.Error()) || fault.ClassOf(err) != fault.Usage {
						t.Errorf("%s: the run says %v", when, err)
					}
					sc.verdict(t, dir, when)
					if !forever && sc.old(t) != nil && !reflect.DeepEqual(tree(t, dir), sc.old(t)) && !mustCheck(t, dir).Interrupted && !mustCheck(t, dir).Clean() {
						t.Errorf("%s: the old files are not back", when)
					}
					sc.repaired(t, dir, when)
				}
			}
		})
	}
}

// The child of TestKillAtEveryStep: which scenario, where, and the step before
// which it is killed.
var (
	killScenario = flag.String("kill-scenario", "", "run this scenario and be killed (for TestKillAtEveryStep)")
	killDir      = flag.String("kill-dir", "", "the folder of the scenario")
	killStep     = flag.Int("kill-step", 0, "the step before which to be killed")
)

func TestKilledChild(t *testing.T) {
	if *killScenario == "" {
		t.Skip("it is the child of TestKillAtEveryStep")
	}
	n := 0
	s := quickSeams()
	s.before = func(string, string) error {
		if n == *killStep {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			time.Sleep(time.Minute) // the signal comes while this waits
			return err
		}
		n++
		return nil
	}
	for _, sc := range scenarios() {
		if sc.name == *killScenario {
			t.Fatalf("it was not killed; the run says %v", sc.run(t, *killDir, s))
		}
	}
}

// A process is killed before every step; what it leaves is old, new or
// interrupted, and the same command repairs it.
func TestKillAtEveryStep(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			for i, step := range sc.steps(t) {
				when := fmt.Sprintf("killed before step %d (%s)", i, step)
				dir := filepath.Join(scratch(t), "vendor", "pgque")
				sc.setUp(t, dir)
				child := exec.Command(self, "-test.run=^TestKilledChild$", "-kill-scenario="+sc.name, "-kill-dir="+dir, fmt.Sprintf("-kill-step=%d", i))
				out, err := child.CombinedOutput()
				if err == nil || strings.Contains(string(out), "it was not killed") {
					t.Fatalf("%s: the child says %v\n%s", when, err, out)
				}
				sc.verdict(t, dir, when)
				sc.repaired(t, dir, when)
			}
		})
	}
}
