package vendorfile

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ignoredBy returns the line that keeps git from taking a file of the folder,
// as `.gitignore:3: "vendor/"`, or "".
//
// It reads the .gitignore files from the repository's root down to the folder,
// and knows comments, "!", "/" at the start, in the middle and at the end, "*",
// "?", "[…]" and "**". It does not know .git/info/exclude, a user's own
// excludes file, or that a file which is already tracked is never ignored:
// only git knows these. So a wrong answer is possible, and the answer is only
// ever used for a line of talk.
func ignoredBy(dir, name string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	top := repositoryRoot(abs)
	if top == "" {
		return ""
	}
	rel, err := filepath.Rel(top, filepath.Join(abs, name))
	if err != nil {
		return ""
	}
	parts := strings.Split(filepath.ToSlash(rel), "/")
	var rules []ignoreRule
	for i := range parts {
		folder := strings.Join(parts[:i], "/")
		rules = append(rules, readIgnoreFile(top, folder)...)
		// From the root down: what is below an ignored folder can't be
		// brought back.
		target := strings.Join(parts[:i+1], "/")
		for _, r := range slices.Backward(rules) {
			if r.matches(target, i < len(parts)-1) {
				if !r.negated {
					return r.String()
				}
				break
			}
		}
	}
	return ""
}

// repositoryRoot is the nearest directory with a .git, which is a file in a
// worktree or a submodule.
func repositoryRoot(dir string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}

// ignoreRule is a line of a .gitignore file.
type ignoreRule struct {
	file     string // the .gitignore file, from the repository's root
	line     int
	text     string
	base     string // the folder the file is in, from the root; "" for the root
	pattern  []string
	negated  bool
	onlyDirs bool
}

func (r ignoreRule) String() string { return fmt.Sprintf("%s:%d: %q", r.file, r.line, r.text) }

func readIgnoreFile(top, folder string) []ignoreRule {
	file := path.Join(folder, ".gitignore")
	data, err := readAround(filepath.Join(top, filepath.FromSlash(file)))
	if err != nil || len(data) > sourceLimit {
		return nil
	}
	var rules []ignoreRule
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		text := strings.TrimRight(line, " \t\r\n")
		pattern, negated := strings.CutPrefix(text, "!")
		pattern, onlyDirs := strings.CutSuffix(pattern, "/")
		if text == "" || text[0] == '#' || pattern == "" {
			continue
		}
		if anchored := strings.Contains(pattern, "/"); !anchored {
			pattern = "**/" + pattern
		}
		rules = append(rules, ignoreRule{
			file: file, line: number, text: text, base: folder, negated: negated, onlyDirs: onlyDirs,
			pattern: strings.Split(strings.TrimPrefix(pattern, "/"), "/"),
		})
	}
	return rules
}

func (r ignoreRule) matches(target string, isDir bool) bool {
	if r.onlyDirs && !isDir {
		return false
	}
	if r.base != "" {
		below, ok := strings.CutPrefix(target, r.base+"/")
		if !ok {
			return false
		}
		target = below
	}
	return matchParts(r.pattern, strings.Split(target, "/"))
}

func matchParts(pattern, target []string) bool {
	switch {
	case len(pattern) == 0:
		return len(target) == 0
	case pattern[0] == "**" && len(pattern) == 1:
		return len(target) > 0 // "dir/**" is what is inside of dir
	case pattern[0] == "**":
		for i := range target {
			if matchParts(pattern[1:], target[i:]) {
				return true
			}
		}
		return false
	case len(target) == 0:
		return false
	}
	ok, err := path.Match(pattern[0], target[0])
	return err == nil && ok && matchParts(pattern[1:], target[1:])
}
