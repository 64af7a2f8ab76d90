package composetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// composeFile is what the checks need of a compose file.
type composeFile struct {
	Services map[string]composeService
	Secrets  map[string]struct{ File string }
}

type composeService struct {
	Image           string
	Command         yaml.Node
	Entrypoint      yaml.Node
	Environment     map[string]string
	Secrets         []string
	Ports           []string
	Init            *bool
	ReadOnly        bool `yaml:"read_only"`
	Restart         string
	StopGracePeriod string                                `yaml:"stop_grace_period"`
	DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
	HealthCheck     struct{ Test []string }               `yaml:"healthcheck"`
}

const (
	ourImage    = "pgque-vendor:dev"
	wholeGrace  = 25 * time.Second // consume's default --grace, and 5 s to settle
	database    = "postgres-events"
	oneShot     = "bootstrap"
	atCompleted = "service_completed_successfully"
)

// checkCompose says everything that is wrong with the text of our compose file.
func checkCompose(text []byte) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var file composeFile
	if err := yaml.Unmarshal(text, &file); err != nil {
		return []string{err.Error()}
	}
	if m := plainPassword.Find(text); m != nil {
		say("there is a plain password: %s", m)
	}
	for name, secret := range file.Secrets {
		if secret.File == "" {
			say("secret %s is no file", name)
		}
	}
	for name, s := range file.Services {
		where := "service " + name + ": "
		for key, value := range s.Environment {
			if secretName.MatchString(key) && (!strings.HasSuffix(key, "_FILE") || !strings.HasPrefix(value, "/run/secrets/")) {
				say(where+"%s must come from a secret's file", key)
			}
		}
		for _, secret := range s.Secrets {
			if _, ok := file.Secrets[secret]; !ok {
				say(where+"secret %s is not declared", secret)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				say(where+"port %s is open to the network", port)
			}
		}
		if s.Image == ourImage {
			for _, w := range checkOurs(name, s) {
				say(where+"%s", w)
			}
		}
	}
	for _, w := range checkDatabase(file.Services[database]) {
		say("service %s: %s", database, w)
	}
	slices.Sort(wrong)
	return wrong
}

var (
	secretName    = regexp.MustCompile(`(?i)password|secret|token|DATABASE_URL|AUTH_METHOD`)
	plainPassword = regexp.MustCompile(`\w+://[^\s:@/]+:[^\s@/]+@|(?i)password[ \t]*[=:][ \t]*['"]?[a-z0-9]`)
)

// checkOurs checks a service that runs pgque-vendor.
func checkOurs(name string, s composeService) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var command []string
	if s.Command.Kind != yaml.SequenceNode || s.Command.Decode(&command) != nil || len(command) == 0 {
		say("command is no list") // a string is taken apart by rules of its own
	} else if slices.Contains(command, "-c") || strings.HasSuffix(command[0], "sh") {
		say("a shell would be PID 1, and keep signals from the program")
	}
	if !s.Entrypoint.IsZero() {
		say("entrypoint replaces the image's")
	}
	if s.Init == nil || *s.Init {
		say("init is not false")
	}
	if !s.ReadOnly {
		say("read_only is not set")
	}
	if grace, err := time.ParseDuration(s.StopGracePeriod); err != nil || grace <= wholeGrace {
		say("stop_grace_period is %q, want more than %s", s.StopGracePeriod, wholeGrace)
	}
	after, condition, restart := oneShot, atCompleted, "unless-stopped"
	if name == oneShot {
		after, condition, restart = database, "service_healthy", "no"
	}
	if got := s.DependsOn[after].Condition; got != condition {
		say("it waits for %s with the condition %q, want %s", after, got, condition)
	}
	if s.Restart != restart {
		say("restart is %q, want %q", s.Restart, restart)
	}
	if name != oneShot && s.Environment["PGQUE_VENDOR_LISTEN"] == "" {
		say("PGQUE_VENDOR_LISTEN is not set: the image's health check asks nobody")
	}
	return wrong
}

// checkDatabase checks that the database is as its users have it, and that its
// health check is not met by the image's throw-away server, which listens on the
// unix socket only.
func checkDatabase(s composeService) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if s.Image != "postgres:17-alpine" || !s.Command.IsZero() || !s.Entrypoint.IsZero() {
		say("it is not the untouched image postgres:17-alpine")
	}
	if !slices.Contains(s.Ports, "127.0.0.1:55434:5432") {
		say("ports are %v, want 127.0.0.1:55434:5432", s.Ports)
	}
	if s.Environment["POSTGRES_DB"] != "stega-events" {
		say("POSTGRES_DB is %q, want stega-events", s.Environment["POSTGRES_DB"])
	}
	test := s.HealthCheck.Test
	if len(test) == 0 || test[0] != "CMD" {
		say("healthcheck is not in exec form")
	}
	if host := slices.Index(test, "--host"); host < 0 || host+1 >= len(test) || test[host+1] != "127.0.0.1" {
		say("healthcheck does not go over TCP")
	}
	if grace, err := time.ParseDuration(s.StopGracePeriod); err != nil || grace < 30*time.Second {
		say("stop_grace_period is %q, want 30s or more", s.StopGracePeriod)
	}
	return wrong
}

func readCompose(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../../compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// B051, B052, B089: the compose file that everybody copies from.
func TestCompose(t *testing.T) {
	t.Parallel()
	for _, wrong := range checkCompose(readCompose(t)) {
		t.Error("compose.yml: ", wrong)
	}
}

// Each of the checks can fail.
func TestComposeChecks(t *testing.T) {
	t.Parallel()
	text := string(readCompose(t))
	for _, test := range []struct{ old, replacement, want string }{
		{"command: [ticker]", "command: ticker", "service ticker: command is no list"},
		{"command: [ticker]", `command: [sh, -c, "pgque-vendor ticker"]`, "service ticker: a shell would be PID 1"},
		{"command: [ticker]", "command: [ticker]\n    entrypoint: /bin/sh", "service ticker: entrypoint replaces"},
		{"init: false", "init: true", "service bootstrap: init is not false"},
		{"read_only: true\n  cap", "cap", "service worker: read_only is not set"},
		{"stop_grace_period: 40s # longer", "stop_grace_period: 10s # longer", "service worker: stop_grace_period"},
		{"stop_grace_period: 1m", "stop_grace_period: 10s", "service postgres-events: stop_grace_period"},
		{"restart: \"no\"", "restart: always", "service bootstrap: restart"},
		{"condition: service_healthy", "condition: service_started", "service bootstrap: it waits for postgres-events"},
		{"condition: service_completed_successfully", "condition: service_started", "service ticker: it waits for bootstrap"},
		{`"--host", "127.0.0.1", `, "", "healthcheck does not go over TCP"},
		{`["CMD", `, `["CMD-SHELL", `, "healthcheck is not in exec form"},
		{"PGPASSWORD_FILE: /run/secrets/events_app_password", "PGPASSWORD: abc", "PGPASSWORD must come from a secret's file"},
		{"PGUSER: app", "PGUSER: app\n  DATABASE_URL: postgres://app:abc@postgres-events/stega-events", "there is a plain password"},
		{"POSTGRES_DB: stega-events", "POSTGRES_DB: stega-events\n      POSTGRES_HOST_AUTH_METHOD: trust", "POSTGRES_HOST_AUTH_METHOD must come"},
		{"127.0.0.1:55434:5432", "55434:5432", "port 55434:5432 is open to the network"},
		{"postgres:17-alpine", "postgres:16", "not the untouched image"},
		{"secrets: [events_app_password]", "secrets: [nobody]", "secret nobody is not declared"},
		{"file: ./compose/secrets/events_app_password", "environment: APP_PASSWORD", "secret events_app_password is no file"},
		{"PGQUE_VENDOR_LISTEN: 127.0.0.1:8080", "", "PGQUE_VENDOR_LISTEN is not set"},
	} {
		changed := strings.Replace(text, test.old, test.replacement, 1)
		if changed == text {
			t.Errorf("compose.yml does not hold %q", test.old)
			continue
		}
		wrong := checkCompose([]byte(changed))
		if !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, test.want) }) {
			t.Errorf("with %q in place of %q: %q, want %q in it", test.replacement, test.old, wrong, test.want)
		}
	}
}

// The commands are ones that the program takes, and the grace that the checks
// reckon with is the program's own.
func TestComposeCommands(t *testing.T) {
	t.Parallel()
	var file composeFile
	if err := yaml.Unmarshal(readCompose(t), &file); err != nil {
		t.Fatal(err)
	}
	ours := 0
	for name, s := range file.Services {
		if s.Image != ourImage {
			continue
		}
		ours++
		var command []string
		if err := s.Command.Decode(&command); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program(t), append(command, "--wait", "0")...)
		cmd.Dir, cmd.Env = t.TempDir(), []string{"PGHOST=127.0.0.1", "PGPORT=1", "PGUSER=app"}
		out, _ := cmd.CombinedOutput()
		want := 4 // nobody listens there: the command line was taken
		if name == oneShot {
			want = 5 // the files come before the connection, and there are none
		}
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("service %s: %v ends with %d, want %d\n%s", name, command, got, want, out)
		}
	}
	if ours < 3 {
		t.Errorf("compose.yml has %d services of ours, want bootstrap, ticker and worker", ours)
	}
	help, err := exec.Command(program(t), "consume", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	if grace := regexp.MustCompile(`--grace .*\(default (\S+)\)`).FindSubmatch(help); grace == nil || string(grace[1]) != (wholeGrace-5*time.Second).String() {
		t.Errorf("consume --help says %q of its grace; wholeGrace in this test is 5s more", grace)
	}
}

// No password can get into git or into an image by way of the secrets' folder.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	const secret = "compose/secrets/events_app_password"
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(root, ".git")); err == nil {
		cmd := exec.Command("git", "check-ignore", "--quiet", secret)
		cmd.Dir = root
		if err := cmd.Run(); err != nil {
			t.Errorf("git does not ignore %s: %v", secret, err)
		}
	}
	ignored, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Split(string(ignored), "\n"), "/compose/secrets/*") {
		t.Error(".dockerignore lets /compose/secrets/* into the build")
	}
	sql, err := os.ReadFile(filepath.Join(root, "compose", "init", "10-app.sql"))
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?i)password\s+'`).Match(sql) {
		t.Error("compose/init/10-app.sql has a password in it")
	}
}

// README.md shows a part of the compose file: what stands there stands here too.
func TestReadmeShowsAPart(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)```yaml\n(services:.*?)```").FindSubmatch(readme)
	if shown == nil {
		t.Fatal("README.md shows no services")
	}
	var part, whole map[string]any
	if err := yaml.Unmarshal(shown[1], &part); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(readCompose(t), &whole); err != nil {
		t.Fatal(err)
	}
	for _, missing := range notIn(whole, part, "") {
		t.Errorf("README.md shows %s, which compose.yml does not have", missing)
	}
}

// notIn names what a document has that a larger one has not, or has otherwise.
func notIn(whole, part map[string]any, above string) (missing []string) {
	for key, value := range part {
		at := above + key
		below, isMap := value.(map[string]any)
		larger, _ := whole[key].(map[string]any)
		switch {
		case isMap:
			missing = append(missing, notIn(larger, below, at+".")...)
		case !reflect.DeepEqual(value, whole[key]):
			missing = append(missing, fmt.Sprintf("%s: %v", at, value))
		}
	}
	return missing
}
