package ghtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
)

// answer is the right answer to a request.
func (s *Server) answer(r *http.Request, escaped string) *Answer {
	token := strings.TrimPrefix(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "token ")
	switch {
	case r.Method != http.MethodGet:
		return notFound(r)
	case token != "" && s.opts.Token != "" && token != s.opts.Token:
		return refusal(r, http.StatusUnauthorized, "Bad credentials")
	case token == "" && s.opts.Private:
		return notFound(r)
	}
	segments, ok := split(escaped)
	if !ok || len(segments) == 0 {
		return notFound(r)
	}
	s.mu.Lock()
	name, id := s.opts.Repository, s.id
	renamed := s.newName != ""
	if renamed {
		name = s.newName
	}
	s.mu.Unlock()
	switch {
	case segments[0] == "repositories" && len(segments) >= 2 && segments[1] == strconv.FormatInt(id, 10):
		return s.repository(r, name, id, segments[2:])
	case segments[0] == "repos" && len(segments) >= 3:
		asked := segments[1] + "/" + segments[2]
		switch {
		case strings.EqualFold(asked, name):
			return s.repository(r, name, id, segments[3:])
		case renamed && strings.EqualFold(asked, s.opts.Repository):
			return s.moved(r, id, escaped)
		}
	}
	return notFound(r)
}

// split resolves "." and "..", as GitHub's front end does, and unescapes each
// segment. A slash inside a segment is none that GitHub would find.
func split(escaped string) ([]string, bool) {
	var segments []string
	for seg := range strings.SplitSeq(strings.Trim(path.Clean("/"+escaped), "/"), "/") {
		s, err := url.PathUnescape(seg)
		if err != nil || strings.Contains(s, "/") {
			return nil, false
		}
		segments = append(segments, s)
	}
	return segments, true
}

func (s *Server) moved(r *http.Request, id int64, escaped string) *Answer {
	rest := strings.SplitN(strings.TrimPrefix(escaped, "/"), "/", 4)[3:]
	to := fmt.Sprintf("%s/repositories/%d", s.URL, id)
	if len(rest) > 0 {
		to += "/" + rest[0]
	}
	if r.URL.RawQuery != "" {
		to += "?" + r.URL.RawQuery
	}
	a := jsonAnswer(r, http.StatusMovedPermanently, map[string]string{
		"message": "Moved Permanently", "url": to, "documentation_url": "https://docs.github.com/rest",
	})
	a.Header.Set("Location", to)
	return a
}

func (s *Server) repository(r *http.Request, name string, id int64, rest []string) *Answer {
	what := func(n int) string { return strings.Join(rest[:min(n, len(rest))], "/") }
	switch {
	case len(rest) == 0:
		owner, repo, _ := strings.Cut(name, "/")
		return jsonAnswer(r, http.StatusOK, map[string]any{
			"id": id, "name": repo, "full_name": name, "private": s.opts.Private,
			"owner": map[string]any{"login": owner}, "default_branch": "main",
		})
	case what(2) == "tags":
		return s.listTags(r, id)
	case len(rest) >= 3 && what(2) == "git/ref":
		return s.oneRef(r, strings.Join(rest[2:], "/"))
	case len(rest) >= 3 && what(2) == "git/matching-refs":
		return s.matchingRefs(r, strings.Join(rest[2:], "/"))
	case len(rest) == 3 && what(2) == "git/tags":
		return s.tagObject(r, rest[2])
	case len(rest) == 3 && what(2) == "git/commits":
		return s.commit(r, rest[2])
	case len(rest) >= 3 && what(2) == "git/trees":
		return s.tree(r, strings.Join(rest[2:], "/"))
	case len(rest) == 3 && what(2) == "git/blobs":
		return s.blob(r, rest[2])
	case rest[0] == "contents":
		return s.contents(r, strings.Join(rest[1:], "/"))
	}
	return notFound(r)
}

// refs returns the repository's refs below a prefix, with the tags as the test
// wants them.
func (s *Server) refs(prefix string) ([]ref, error) {
	refs, err := s.git.refs(prefix)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	refs = slices.DeleteFunc(refs, func(r ref) bool {
		name, ok := strings.CutPrefix(r.name, "refs/tags/")
		_, differs := s.tags[name]
		return ok && differs
	})
	for name, id := range s.tags {
		if full := "refs/tags/" + name; id != "" && strings.HasPrefix(full, prefix) {
			refs = append(refs, ref{full, id})
		}
	}
	slices.SortFunc(refs, func(a, b ref) int { return strings.Compare(a.name, b.name) })
	return refs, nil
}

func (s *Server) listTags(r *http.Request, id int64) *Answer {
	refs, err := s.refs("refs/tags/")
	if err != nil {
		return failed(r, err)
	}
	slices.Reverse(refs) // GitHub's order is no order by version either
	list := []any{}
	for _, ref := range refs {
		if commit := s.git.commit(ref.id); commit != "" {
			list = append(list, map[string]any{
				"name":   strings.TrimPrefix(ref.name, "refs/tags/"),
				"commit": map[string]string{"sha": commit, "url": s.URL + "/commits/" + commit},
			})
		}
	}
	perPage := min(number(r, "per_page", 30), 100)
	page, last := number(r, "page", 1), max((len(list)+perPage-1)/perPage, 1)
	from := min((page-1)*perPage, len(list))
	a := jsonAnswer(r, http.StatusOK, list[from:min(from+perPage, len(list))])
	var links []string
	link := func(page int, relation string) {
		links = append(links, fmt.Sprintf(`<%s/repositories/%d/tags?per_page=%d&page=%d>; rel="%s"`, s.URL, id, perPage, page, relation))
	}
	if page > 1 {
		link(page-1, "prev")
		link(1, "first")
	}
	if page < last {
		link(page+1, "next")
		link(last, "last")
	}
	if len(links) > 0 {
		a.Header.Set("Link", strings.Join(links, ", "))
	}
	return a
}

func number(r *http.Request, key string, otherwise int) int {
	n, err := strconv.Atoi(r.URL.Query().Get(key))
	if err != nil || n < 1 {
		return otherwise
	}
	return n
}

func (s *Server) refJSON(ref ref) map[string]any {
	return map[string]any{
		"ref":    ref.name,
		"url":    s.URL + "/git/" + ref.name,
		"object": map[string]string{"sha": ref.id, "type": s.git.kind(ref.id), "url": s.URL + "/git/objects/" + ref.id},
	}
}

// oneRef matches exactly, whatever kind of ref it is.
func (s *Server) oneRef(r *http.Request, name string) *Answer {
	refs, err := s.refs("refs/")
	if err != nil {
		return failed(r, err)
	}
	for _, ref := range refs {
		if ref.name == "refs/"+name {
			return jsonAnswer(r, http.StatusOK, s.refJSON(ref))
		}
	}
	return notFound(r)
}

// matchingRefs matches by prefix: v0.2.0 finds v0.2.0-rc.1 as well.
func (s *Server) matchingRefs(r *http.Request, prefix string) *Answer {
	refs, err := s.refs("refs/")
	if err != nil {
		return failed(r, err)
	}
	list := []any{}
	for _, ref := range refs {
		if strings.HasPrefix(ref.name, "refs/"+prefix) {
			list = append(list, s.refJSON(ref))
		}
	}
	return jsonAnswer(r, http.StatusOK, list)
}

func (s *Server) tagObject(r *http.Request, id string) *Answer {
	if s.git.kind(id) != "tag" {
		return notFound(r)
	}
	h, message, err := s.git.header("tag", id)
	if err != nil {
		return failed(r, err)
	}
	return jsonAnswer(r, http.StatusOK, map[string]any{
		"sha": id, "tag": h["tag"], "message": message,
		"object": map[string]string{"sha": h["object"], "type": h["type"]},
	})
}

func (s *Server) commit(r *http.Request, id string) *Answer {
	if s.git.kind(id) != "commit" {
		return notFound(r)
	}
	h, message, err := s.git.header("commit", id)
	if err != nil {
		return failed(r, err)
	}
	return jsonAnswer(r, http.StatusOK, map[string]any{
		"sha": id, "message": message, "tree": map[string]string{"sha": h["tree"]},
	})
}

// tree takes a tree's id, a commit's, or a ref's name, and repeats the id it
// was asked for. Any value of "recursive" counts, also 0.
func (s *Server) tree(r *http.Request, treeish string) *Answer {
	id := treeish
	if kind := s.git.kind(id); kind != "tree" && kind != "commit" {
		if id = s.anyRef(treeish); id == "" {
			return notFound(r)
		}
	}
	recursive := r.URL.Query().Has("recursive")
	entries, err := s.git.tree(id, recursive)
	if err != nil {
		return failed(r, err)
	}
	truncated := recursive && len(entries) > s.opts.TreeLimit
	if truncated {
		entries = entries[:s.opts.TreeLimit]
	}
	list := []any{}
	for _, e := range entries {
		j := map[string]any{"path": e.path, "mode": e.mode, "type": e.kind, "sha": e.id}
		if e.size != nil {
			j["size"] = *e.size
		}
		list = append(list, j)
	}
	return jsonAnswer(r, http.StatusOK, map[string]any{"sha": id, "tree": list, "truncated": truncated})
}

// anyRef finds a commit by a short name as GitHub does: a branch wins over a
// tag of the same name.
func (s *Server) anyRef(name string) string {
	refs, err := s.refs("refs/")
	if err != nil {
		return ""
	}
	for _, full := range []string{"refs/heads/" + name, "refs/tags/" + name} {
		for _, ref := range refs {
			if ref.name == full {
				return s.git.commit(ref.id)
			}
		}
	}
	if s.git.kind(name) == "commit" {
		return name
	}
	return ""
}

func wantsRaw(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "raw")
}

func rawAnswer(r *http.Request, data []byte) *Answer {
	a := newAnswer(r, http.StatusOK)
	a.Header.Set("Content-Type", "application/vnd.github.raw; charset=utf-8")
	a.Body = slices.Clone(data) // a fault may change it
	return a
}

func (s *Server) blob(r *http.Request, id string) *Answer {
	if s.git.kind(id) != "blob" {
		return notFound(r)
	}
	data, err := s.git.blob(id)
	if err != nil {
		return failed(r, err)
	}
	if wantsRaw(r) {
		return rawAnswer(r, data)
	}
	return jsonAnswer(r, http.StatusOK, map[string]any{
		"sha": id, "size": len(data), "encoding": "base64", "content": base64.StdEncoding.EncodeToString(data),
	})
}

// contents gives a file, or a list of a directory. Above 1 MB a file comes
// with empty content and the encoding "none", above 100 MB not at all.
func (s *Server) contents(r *http.Request, name string) *Answer {
	at := r.URL.Query().Get("ref")
	if at == "" {
		at = "main"
	}
	commit := s.anyRef(at)
	if commit == "" {
		return refusal(r, http.StatusNotFound, "No commit found for the ref "+at)
	}
	entries, err := s.git.tree(commit, true)
	if err != nil {
		return failed(r, err)
	}
	directory := name
	if directory == "" {
		directory = "."
	}
	list := []any{}
	for _, e := range entries {
		switch {
		case e.path == name && e.kind != "tree":
			return s.content(r, e)
		case path.Dir(e.path) == directory:
			list = append(list, contentJSON(e))
		}
	}
	if len(list) == 0 {
		return notFound(r)
	}
	return jsonAnswer(r, http.StatusOK, list)
}

func contentJSON(e treeEntry) map[string]any {
	kind := map[string]string{"tree": "dir", "commit": "submodule"}[e.kind]
	if kind == "" {
		kind = "file"
	}
	if e.mode == "120000" {
		kind = "symlink"
	}
	return map[string]any{"type": kind, "path": e.path, "name": path.Base(e.path), "sha": e.id, "size": e.size}
}

func (s *Server) content(r *http.Request, e treeEntry) *Answer {
	const whole, most = 1 << 20, 100 << 20
	j := contentJSON(e)
	if e.kind == "commit" {
		return jsonAnswer(r, http.StatusOK, j)
	}
	data, err := s.git.blob(e.id)
	switch {
	case err != nil:
		return failed(r, err)
	case len(data) > most:
		return refusal(r, http.StatusForbidden, "This API returns blobs up to 100 MB in size.")
	case wantsRaw(r):
		return rawAnswer(r, data)
	case j["type"] == "symlink":
		j["target"] = string(data)
	case len(data) > whole:
		j["encoding"], j["content"] = "none", ""
	default:
		j["encoding"], j["content"] = "base64", base64.StdEncoding.EncodeToString(data)
	}
	return jsonAnswer(r, http.StatusOK, j)
}
