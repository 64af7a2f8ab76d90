package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stega/pgque-vendor/internal/ghtest"
	"github.com/stega/pgque-vendor/internal/gitobject"
	"github.com/stega/pgque-vendor/internal/vendorfile"
)

// patience is how long tests wait for what must come about: more than a busy
// machine needs.
const patience = 3 * time.Minute

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pgque-vendor": main})
}

// TestScripts runs the scripts of testdata/script against the repository that
// the tests make.
func TestScripts(t *testing.T) {
	runScripts(t, "", "testdata/script")
}

// TestScriptsUpstream runs the same scripts against a clone of the real PgQue.
func TestScriptsUpstream(t *testing.T) {
	clone := os.Getenv("PGQUE_UPSTREAM_GIT")
	if clone == "" {
		t.Skip("PGQUE_UPSTREAM_GIT names no clone of PgQue, so only the repository made here was tried")
	}
	clone, err := filepath.Abs(clone)
	if err != nil {
		t.Fatal(err)
	}
	runScripts(t, clone, "testdata/script")
}

func runScripts(t *testing.T, clone, dir string) {
	testscript.Run(t, scriptParams(clone, dir))
}

// scriptParams gives scripts an upstream of their own: $UPSTREAM is a bare git
// repository which a script may change, and after the command "github" a GitHub
// made from it answers at $GITHUB_API_URL.
func scriptParams(clone, dir string) testscript.Params {
	return testscript.Params{
		Dir:                 dir,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: false,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			upstream := filepath.Join(env.WorkDir, "upstream.git")
			env.Setenv("UPSTREAM", upstream)
			env.Values["github"] = &github{}
			env.Values["kept"] = map[string]string{}
			env.Values["database"] = &scriptDatabase{test: env.T().(testing.TB), real: clone != ""}
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
			env.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			env.Setenv("GITHUB_API_URL", "http://127.0.0.1:1") // nothing answers: a script must ask for its GitHub
			if clone != "" {
				return runGit(env.WorkDir, nil, "clone", "-q", "--bare", clone, upstream)
			}
			return makeUpstream(upstream, fixtureReleases())
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "real":
				return clone != "", nil
			case "root":
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"github":   cmdGitHub,
			"fault":    cmdFault,
			"requests": cmdRequests,
			"until":    cmdUntil,
			"code":     cmdCode,
			"crlf":     cmdCRLF,
			"database": cmdDatabase,
			"login":    cmdLogin,
			"sql":      cmdSQL,
			"vendored": cmdVendored,
			"forge":    cmdForge,
			"keep":     cmdKeep,
			"same":     cmdSame,
		},
	}
}

// github holds the GitHub of a script, once it asked for one.
type github struct{ server *ghtest.Server }

func gitHubOf(ts *testscript.TestScript) *ghtest.Server {
	server := ts.Value("github").(*github).server
	if server == nil {
		ts.Fatalf("this script has started no github yet")
	}
	return server
}

// cmdGitHub: "github [OWNER/NAME]" starts a GitHub that serves $UPSTREAM.
func cmdGitHub(ts *testscript.TestScript, _ bool, args []string) {
	name := "NikolayS/PgQue"
	if len(args) > 0 {
		name = args[0]
	}
	server := ghtest.New(ghtest.Options{GitDir: ts.Getenv("UPSTREAM"), Repository: name})
	ts.Defer(server.Close)
	ts.Value("github").(*github).server = server
	ts.Setenv("GITHUB_API_URL", server.URL)
}

// cmdFault makes the script's GitHub misbehave: see ghtest.ParseFault, and
// "heal", "rename OWNER/NAME", "id N", "tag NAME COMMIT", "untag NAME".
func cmdFault(ts *testscript.TestScript, _ bool, args []string) {
	server := gitHubOf(ts)
	if len(args) == 0 {
		ts.Fatalf("usage: fault KIND [ARG …]")
	}
	switch args[0] {
	case "heal":
		server.Heal()
	case "rename":
		server.Rename(args[1])
	case "id":
		n, err := strconv.ParseInt(args[1], 10, 64)
		ts.Check(err)
		server.SetRepositoryID(n)
	case "tag":
		server.SetTag(args[1], args[2])
	case "untag":
		server.DeleteTag(args[1])
	default:
		f, err := ghtest.ParseFault(strings.Join(args, " "))
		ts.Check(err)
		server.Inject(f)
	}
}

// cmdUntil: "until FILE REGEXP" waits until a file that a process in the background
// writes holds a match.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: until FILE REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var text []byte
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if text, err = os.ReadFile(ts.MkAbs(args[0])); err == nil && want.Match(text) {
			return
		}
	}
	ts.Fatalf("%s has no %q: %s%v", args[0], args[1], text, err)
}

// cmdRequests: "requests N" fails unless N requests came since the last time.
func cmdRequests(ts *testscript.TestScript, _ bool, args []string) {
	server := gitHubOf(ts)
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := server.Paths(); len(got) != want {
		ts.Fatalf("%d requests, want %d:\n%s", len(got), want, strings.Join(got, "\n"))
	}
	server.Forget()
}

// cmdCode: "code N COMMAND ARG…" runs a command that must exit with N.
func cmdCode(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND [ARG …]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("run %s: %v", args[1], err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// cmdCRLF: "crlf FILE…" gives each file Windows line endings.
func cmdCRLF(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		data := []byte(ts.ReadFile(name))
		ts.Check(os.WriteFile(ts.MkAbs(name), bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")), 0o644))
	}
}

// cmdForge: "forge FOLDER [but-blob]" makes the folder's SOURCE.json pin its files as
// they are, all of it or all but git's ids.
func cmdForge(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs(args[0])
	src, err := vendorfile.ReadSource(dir)
	ts.Check(err)
	for name, f := range src.Files {
		data, err := vendorfile.ReadFile(dir, name)
		ts.Check(err)
		f.Size, f.SHA256 = int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data))
		if len(args) == 1 {
			id, err := gitobject.BlobID(data)
			ts.Check(err)
			f.GitBlob = string(id)
		}
		src.Files[name] = f
	}
	ts.Check(os.WriteFile(filepath.Join(dir, vendorfile.SourceName), src.Format(), 0o644))
}

// cmdKeep: "keep NAME FOLDER" remembers names, bytes and times of a folder's
// files; "same NAME FOLDER" fails unless nothing of it has changed since.
func cmdKeep(ts *testscript.TestScript, _ bool, args []string) {
	ts.Value("kept").(map[string]string)[args[0]] = fingerprint(ts, args[1])
}

func cmdSame(ts *testscript.TestScript, neg bool, args []string) {
	before, now := ts.Value("kept").(map[string]string)[args[0]], fingerprint(ts, args[1])
	switch {
	case before != now && !neg:
		ts.Fatalf("%s has changed:\nbefore\n%s\nnow\n%s", args[1], before, now)
	case before == now && neg:
		ts.Fatalf("%s has not changed", args[1])
	}
}

func fingerprint(ts *testscript.TestScript, dir string) string {
	var b strings.Builder
	err := filepath.Walk(ts.MkAbs(dir), func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %s", path, info.Mode())
		if info.Mode().IsRegular() {
			fmt.Fprintf(&b, " %d", info.ModTime().UnixNano())
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(data))
		}
		b.WriteByte('\n')
		return nil
	})
	ts.Check(err)
	return b.String()
}
