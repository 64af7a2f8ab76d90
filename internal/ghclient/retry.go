package ghclient

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// persist repeats what may go away by itself, while the time lasts.
func (t *transport) persist(req *http.Request, withToken bool) (*answer, *failure) {
	ctx, expected := req.Context(), callOf(req.Context())
	delays := backoff.NewExponentialBackOff()
	delays.InitialInterval = t.firstWait
	delays.Multiplier = 2
	delays.Reset()
	for try := 1; ; try++ {
		a, f := t.follow(req, withToken)
		if f == nil {
			return a, nil
		}
		if ctx.Err() != nil {
			return nil, f
		}
		expected.last = f
		if !f.temporary || try == maxTries {
			return nil, f
		}
		wait := f.wait
		if wait == 0 {
			wait = delays.NextBackOff()
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
			return nil, t.tooLong(f, wait)
		}
		t.log.Debug("trying again", "path", t.show(req.URL.Path), "try", try+1, "wait", wait, "reason", f.err.Text)
		if f.wait > 0 {
			t.notice(f.err.Text + "; waiting " + roundUp(wait).String())
		}
		if !sleep(ctx, wait) {
			return nil, f
		}
		if f.stale {
			req = req.Clone(ctx)
			req.Header.Set("Cache-Control", "no-cache")
		}
	}
}

// sleep reports whether the whole time went by before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tooLong says that waiting as asked would take longer than the budget.
func (t *transport) tooLong(f *failure, wait time.Duration) *failure {
	if f.wait == 0 {
		return f
	}
	late := *f.err
	late.Text = fmt.Sprintf("%s; it asks to wait until %s (%s), longer than the time that is left", f.err.Text, t.clock(wait), roundUp(wait))
	late.Hints = append(append([]string{}, f.err.Hints...), "try again later, or give it more time with --timeout")
	return &failure{err: &late}
}
