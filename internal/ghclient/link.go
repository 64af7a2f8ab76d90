package ghclient

import (
	"strconv"
	"strings"

	"github.com/stega/pgque-vendor/internal/fault"
)

// nextPage returns the number of the page that a Link header calls next, or 0
// where there is none. go-github would take the number from a link to any
// host, and take a link without a number for the last page.
func (t *transport) nextPage(headers []string, page int) (int, error) {
	target, ok := linkTo(headers, "next")
	if !ok {
		return 0, nil
	}
	u, err := t.base.Parse(target)
	if err != nil {
		return 0, fault.New(fault.Upstream, "%s links to a next page that is no URL: %q", t.base.Host, t.show(target))
	}
	if !sameOrigin(u, t.base) {
		return 0, fault.New(fault.Upstream, "%s links to a next page at %q, which was not followed: only %s is ever contacted", t.base.Host, t.show(origin(u)), origin(t.base))
	}
	next, err := strconv.Atoi(u.Query().Get("page"))
	if err != nil || next <= page {
		return 0, fault.New(fault.Upstream, "%s links from page %d to a next page %q", t.base.Host, page, t.show(u.Query().Get("page")))
	}
	return next, nil
}

// linkTo returns the target of the first link with the relation, from headers
// of the form `<url>; rel="next", <url>; rel="last"`.
func linkTo(headers []string, relation string) (string, bool) {
	for _, h := range headers {
		for {
			_, rest, ok := strings.Cut(h, "<")
			if !ok {
				break
			}
			target, rest, ok := strings.Cut(rest, ">")
			if !ok {
				break
			}
			parameters := rest
			if i := strings.IndexByte(rest, '<'); i >= 0 {
				parameters = rest[:i]
			}
			if hasRelation(parameters, relation) {
				return target, true
			}
			h = rest
		}
	}
	return "", false
}

func hasRelation(parameters, relation string) bool {
	for p := range strings.FieldsFuncSeq(parameters, func(r rune) bool { return r == ';' || r == ',' }) {
		key, value, _ := strings.Cut(p, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "rel") {
			continue
		}
		for word := range strings.FieldsSeq(strings.Trim(strings.TrimSpace(value), `"`)) {
			if strings.EqualFold(word, relation) {
				return true
			}
		}
	}
	return false
}
