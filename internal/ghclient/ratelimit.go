package ghclient

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// shortReset is how soon a used-up rate limit may be reset for waiting to be
// better than failing.
const shortReset = 5 * time.Second

// longestWait stands for every longer one; it is no wait that anybody keeps.
const longestWait = 365 * 24 * time.Hour

// retryAfter returns how long the answer asks to wait: seconds, or an HTTP
// date. It reports false when there is nothing, or nothing readable. A date
// that has passed gives 0.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0, false
	}
	if strings.Trim(v, "0123456789") == "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil || seconds > int64(longestWait/time.Second) {
			return longestWait, true // too large a number is a number still
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return until(at, h, now), true
}

// resetIn returns when the rate limit is reset, from now.
func resetIn(h http.Header, now time.Time) (time.Duration, bool) {
	seconds, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil || seconds <= 0 || seconds > math.MaxInt32*1000 {
		return 0, false
	}
	return until(time.Unix(seconds, 0), h, now), true
}

// until counts by the server's own clock, which its Date header tells: our
// clock may be wrong by hours. The result is never negative and never huge.
func until(at time.Time, h http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), longestWait)
}

// forbidden tells apart what GitHub answers 403 and 429 for: a token that an
// organisation does not accept, too many requests in an hour, too many at a
// time, and what is plainly not allowed.
func (t *transport) forbidden(a *answer, withToken bool) *failure {
	message, documentation := a.message()
	_, saysWhen := retryAfter(a.header, t.now())
	about := strings.ToLower(message + " " + documentation)
	switch {
	case withToken && refusesToken(a, message):
		return t.notForOrganisation(a)
	case saysWhen || strings.Contains(about, "secondary rate limit") || strings.Contains(about, "secondary-rate-limit") || strings.Contains(about, "abuse"):
		return t.secondaryLimit(a)
	case a.header.Get("X-RateLimit-Remaining") == "0":
		return t.primaryLimit(a, withToken)
	case a.status == http.StatusTooManyRequests:
		return t.secondaryLimit(a)
	}
	f := fail("%s answered %s", t.base.Host, t.says(a))
	if withToken {
		f.hint("the token%s may lack the right; try --no-token", from(t.source))
	}
	return f
}

func (t *transport) secondaryLimit(a *answer) *failure {
	f := passing("%s asks for fewer requests at a time (secondary rate limit): it answered %s", t.base.Host, t.says(a))
	f.wait, _ = retryAfter(a.header, t.now())
	return f
}

func (t *transport) primaryLimit(a *answer, withToken bool) *failure {
	var b strings.Builder
	fmt.Fprintf(&b, "the rate limit of %s", t.base.Host)
	if limit, err := strconv.Atoi(a.header.Get("X-RateLimit-Limit")); err == nil {
		fmt.Fprintf(&b, ", %d requests an hour", limit)
	}
	if withToken {
		fmt.Fprintf(&b, " for the token%s", from(t.source))
	}
	b.WriteString(", is used up")
	wait, known := resetIn(a.header, t.now())
	if known {
		fmt.Fprintf(&b, "; it is reset at %s (in %s)", t.clock(wait), roundUp(wait))
	}
	f := fail("%s", b.String())
	if !withToken {
		f.hint("set GITHUB_TOKEN (or GH_TOKEN, PGQUE_VENDOR_TOKEN) to a GitHub token, which needs no rights: with one the limit is 5000 requests an hour")
	}
	f.hint("or take everything from a clone: --from DIR")
	if known && wait <= shortReset {
		f.temporary, f.wait = true, wait+time.Second // the reset is told in whole seconds
	}
	return f
}

// clock is a time from now, as the clock on the person's wall will show it.
func (t *transport) clock(in time.Duration) string {
	now := t.now().Local()
	at := now.Add(in)
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04:05")
	}
	return at.Format(time.DateTime)
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
