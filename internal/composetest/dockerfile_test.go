package composetest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is one of a Dockerfile.
type instruction struct{ name, args string }

// lastStage returns the instructions of the stage that becomes the image.
func lastStage(text string) (stage []instruction) {
	text = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, " ")
	for line := range strings.Lines(text) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			continue
		}
		if name == "FROM" {
			stage = nil
		}
		stage = append(stage, instruction{name, strings.TrimSpace(args)})
	}
	return stage
}

// checkDockerfile says everything that is wrong with the image.
func checkDockerfile(text string) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	has := map[string]string{}
	var copied []string
	for _, i := range lastStage(text) {
		has[i.name] = i.args
		switch i.name {
		case "COPY":
			copied = append(copied, i.args)
		case "RUN", "ADD", "ENV":
			say("the image has %s %s", i.name, i.args)
		}
	}
	if has["FROM"] != "scratch" {
		say("the image is from %q, not scratch", has["FROM"])
	}
	execForm := func(name, args string) {
		var list []string
		if json.Unmarshal([]byte(args), &list) != nil || len(list) == 0 || !strings.HasPrefix(list[0], "/") {
			say("%s %q is no exec form of an absolute path", name, args)
		}
	}
	execForm("ENTRYPOINT", has["ENTRYPOINT"])
	_, check, _ := strings.Cut(has["HEALTHCHECK"], "CMD ")
	execForm("HEALTHCHECK", strings.TrimSpace(check))
	if !regexp.MustCompile(`^[1-9]\d*(:[1-9]\d*)?$`).MatchString(has["USER"]) {
		say("USER %q is no number other than 0", has["USER"])
	}
	if !slices.ContainsFunc(copied, func(c string) bool { return strings.HasSuffix(c, " /etc/ssl/certs/ca-certificates.crt") }) {
		say("the image has no CA certificates where Go looks for them")
	}
	return wrong
}

// B074, B089: what the image is, without building it.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range checkDockerfile(string(data)) {
		t.Error("Dockerfile: ", wrong)
	}
	text := string(data)
	for _, test := range []struct{ old, replacement, want string }{
		{`ENTRYPOINT ["/usr/local/bin/pgque-vendor"]`, "ENTRYPOINT /usr/local/bin/pgque-vendor", "ENTRYPOINT"},
		{`CMD ["/usr/local/bin/pgque-vendor", "health"]`, "CMD pgque-vendor health", "HEALTHCHECK"},
		{"USER 65532:65532", "USER root", "USER"},
		{"USER 65532:65532", "USER 0", "USER"},
		{"FROM scratch", "FROM debian", "from \"debian\""},
		{"FROM scratch", "FROM scratch\nENV PGPASSWORD=x", "ENV"},
		{"/etc/ssl/certs/ca-certificates.crt /etc", "/etc/ssl/certs/ca-certificates.crt /opt", "CA certificates"},
	} {
		changed := strings.Replace(text, test.old, test.replacement, 1)
		wrong := checkDockerfile(changed)
		if changed == text || !slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, test.want) }) {
			t.Errorf("with %q in place of %q: %q, want %q in it", test.replacement, test.old, wrong, test.want)
		}
	}
}
