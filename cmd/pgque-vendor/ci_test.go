package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// actionFile is what the tests need of action.yml.
type actionFile struct {
	Inputs map[string]struct{ Default string }
	Runs   struct {
		Using string
		Steps []struct {
			Uses, Shell, Run string
			Dir              string `yaml:"working-directory"`
			Env              map[string]string
		}
	}
}

// TestAction runs the shell steps of action.yml as a runner does, in a job that sets
// what its own Go builds need.
func TestAction(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	data, err := os.ReadFile("../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var action actionFile
	if err := yaml.Unmarshal(data, &action); err != nil {
		t.Fatal(err)
	}
	home, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	work, temp := t.TempDir(), t.TempDir()
	upstream := filepath.Join(temp, "upstream.git")
	if err := makeUpstream(upstream, fixtureReleases()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(work, "db/pgque")
	if _, stderr, code := runCommand(t, nil, "update", "v0.2.0", "--dir", dir, "--from", upstream); code != 0 {
		t.Fatal(stderr)
	}

	inputs := map[string]string{}
	for name, input := range action.Inputs {
		inputs[name] = input.Default
	}
	inputs["dir"] = "db/pgque"
	expand := func(s string) string {
		s = strings.ReplaceAll(s, "${{ github.action_path }}", home)
		return regexp.MustCompile(`\$\{\{ inputs\.(\w+) \}\}`).ReplaceAllStringFunc(s, func(m string) string {
			return inputs[strings.TrimSuffix(strings.TrimPrefix(m, "${{ inputs."), " }}")]
		})
	}
	runSteps := func() (out string, err error) {
		for _, step := range action.Runs.Steps {
			if step.Run == "" {
				continue
			}
			cmd := exec.Command(step.Shell, "-e", "-o", "pipefail", "-c", expand(step.Run))
			cmd.Dir = work
			if step.Dir != "" {
				cmd.Dir = expand(step.Dir)
			}
			cmd.Env = append(os.Environ(), "RUNNER_TEMP="+temp, "GITHUB_ACTIONS=true", "GITHUB_WORKSPACE="+work,
				"GOFLAGS=-mod=vendor", "GOWORK="+filepath.Join(work, "go.work"), "GOOS=plan9", "GOARCH=386")
			for name, value := range step.Env {
				cmd.Env = append(cmd.Env, name+"="+expand(value))
			}
			b, err := cmd.CombinedOutput()
			out += string(b)
			if err != nil {
				return out, err
			}
		}
		return out, nil
	}

	if out, err := runSteps(); err != nil || !strings.Contains(out, "match v0.2.0") {
		t.Errorf("a clean folder: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "NOTICE"), []byte("mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := runSteps(); err == nil || !strings.Contains(out, "::error file=db/pgque/NOTICE,") {
		t.Errorf("an edited file: %v\n%s", err, out)
	}
}

// TestPreCommitHook checks that the hook's pattern matches what it must see.
func TestPreCommitHook(t *testing.T) {
	data, err := os.ReadFile("../../.pre-commit-hooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var hooks []struct{ Entry, Files, Language string }
	if err := yaml.Unmarshal(data, &hooks); err != nil || len(hooks) != 1 {
		t.Fatalf("%d hooks, %v", len(hooks), err)
	}
	files := regexp.MustCompile(hooks[0].Files)
	for path, want := range map[string]bool{
		"vendor/pgque/pgque.sql":           true,
		"third_party/pgque/SOURCE.json":    true,
		"vendor/pgque/.gitattributes":      true,
		"README.md":                        false,
		"vendor/pgque/notes.txt":           false,
		"vendor/otherpgque/pgque.sql/x.go": false,
	} {
		if files.MatchString(path) != want {
			t.Errorf("the hook's pattern matches %q: %v, want %v", path, !want, want)
		}
	}
	if args := strings.Fields(hooks[0].Entry); args[0] != "pgque-vendor" || args[1] != "status" {
		t.Errorf("the hook runs %q", hooks[0].Entry)
	}
}

// TestRenovatePattern runs the pattern of docs/ci.md on a SOURCE.json of ours.
func TestRenovatePattern(t *testing.T) {
	doc, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```json\n")
	block, _, _ := strings.Cut(rest, "\n```")
	var config struct {
		CustomManagers []struct{ MatchStrings []string }
	}
	if err := json.Unmarshal([]byte(block), &config); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../vendor/pgque/SOURCE.json")
	if err != nil {
		t.Fatal(err)
	}
	pattern := strings.ReplaceAll(config.CustomManagers[0].MatchStrings[0], "(?<", "(?P<")
	m := regexp.MustCompile(pattern).FindStringSubmatch(string(source))
	if len(m) != 4 || m[1] != "NikolayS/PgQue" || m[2] != "v0.2.0" {
		t.Errorf("the pattern finds %q", m)
	}
}
