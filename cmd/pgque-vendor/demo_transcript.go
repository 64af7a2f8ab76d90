package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgserver"
)

// demo runs this program's commands one after the other, each as a process of its
// own, in a folder of its own, so that what is shown is what happens.
type demo struct {
	cluster  *pgserver.Cluster
	program  string // this program
	folder   string // where the commands run; it goes with the cluster's
	passFile string
	env      []string // of the commands
	exported []string // what a user would have to export, as NAME=value
	fromFlag []string
	consume  []string // the consumer's command line
	page     string   // the status page

	out          *sharedOutput
	bold         bool
	steps        int
	started      []*child
	inBackground map[string]*child // by name
}

// newDemo makes the demo's folder inside that of the cluster, which is removed also
// when we are killed.
func newDemo(env *environment, cluster *pgserver.Cluster) (*demo, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fault.New(fault.Usage, "find this program: %s", err)
	}
	folder := filepath.Join(cluster.Dir, "demo")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, fault.New(fault.Usage, "make a folder: %s", err)
	}
	d := &demo{
		cluster:      cluster,
		program:      program,
		folder:       folder,
		passFile:     filepath.Join(folder, "pgpass"),
		env:          demoEnvironment(os.Environ()),
		out:          &sharedOutput{w: env.stdout},
		bold:         env.colored(env.stdout),
		inBackground: map[string]*child{},
	}
	return d, nil
}

// demoEnvironment is ours without what would lead the commands elsewhere: other
// databases, other flags, the annotations of GitHub's CI, the user's cache.
func demoEnvironment(ours []string) []string {
	var kept []string
	for _, v := range ours {
		name, _, _ := strings.Cut(v, "=")
		name = strings.ToUpper(name) // Windows knows no case
		other := strings.HasPrefix(name, "PG") && name != "PGQUE_VENDOR_TOKEN" ||
			strings.HasPrefix(name, "DATABASE_URL") || name == "GITHUB_ACTIONS"
		if !other {
			kept = append(kept, v)
		}
	}
	return append(kept, "PGQUE_VENDOR_NO_CACHE=true")
}

// sayf writes lines of the demo itself.
func (d *demo) sayf(format string, args ...any) {
	d.out.write([]byte(fmt.Sprintf(format, args...) + "\n"))
}

func (d *demo) heading(text string) {
	d.steps++
	text = fmt.Sprintf("== %d. %s", d.steps, text)
	if d.bold {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	d.sayf("\n%s", text)
}

// prompt shows a command as somebody would type it.
func (d *demo) prompt(command string) { d.sayf("$ %s", command) }

// export sets variables for the commands that follow, and shows how.
func (d *demo) export(assignments ...string) {
	d.env = append(d.env, assignments...) // of two with one name the last one counts
	d.prompt(exportLine(assignments))
	for _, a := range assignments {
		name, _, _ := strings.Cut(a, "=")
		d.exported = append(slices.DeleteFunc(d.exported, func(e string) bool { return strings.HasPrefix(e, name+"=") }), a)
	}
}

// exportLine sets variables in a POSIX shell, or in PowerShell.
func exportLine(assignments []string) string {
	var words []string
	for _, a := range assignments {
		name, value, _ := strings.Cut(a, "=")
		if runtime.GOOS == "windows" {
			words = append(words, "$env:"+name+" = '"+value+"';")
		} else {
			words = append(words, name+"="+shellQuote(value))
		}
	}
	if runtime.GOOS == "windows" {
		return strings.Join(words, " ")
	}
	return "export " + strings.Join(words, " ")
}

func commandLine(args []string) string {
	words := []string{"pgque-vendor"}
	for _, a := range args {
		words = append(words, shellQuote(a))
	}
	return strings.Join(words, " ")
}

// marked puts a mark before each line.
type marked struct {
	out  *sharedOutput
	mark string
}

func (m *marked) Write(p []byte) (int, error) {
	var text strings.Builder
	for line := range strings.Lines(string(p)) {
		text.WriteString(m.mark + line)
	}
	m.out.write([]byte(text.String()))
	return len(p), nil
}
