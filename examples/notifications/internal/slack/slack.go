// Package slack posts to a channel by an incoming webhook.
package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/once"
)

// Webhook is an incoming webhook. Its URL is a secret, so no error shows it.
type Webhook struct {
	URL    string
	Client *http.Client // with a timeout
}

// Post posts a message. A webhook has no key for a second copy, so the text has
// to tell. An error is marked with once.NotDone when nothing was posted for
// certain, with events.Dead when it never will be, and with events.RetryAfter
// when Slack says when.
func (w Webhook) Post(ctx context.Context, text string) error {
	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return once.NotDone(errors.New("the webhook's URL is no URL"))
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.Client.Do(request)
	if err != nil {
		return judge(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(response.Body, 200))
	if response.StatusCode == http.StatusOK {
		return nil
	}
	err = fmt.Errorf("slack answered %s: %q", response.Status, answer)
	switch {
	case response.StatusCode == http.StatusTooManyRequests:
		after, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return events.RetryAfter(time.Duration(max(after, 1))*time.Second, once.NotDone(err))
	case response.StatusCode == http.StatusBadRequest:
		return events.Dead(once.NotDone(err)) // the message itself is wrong
	case response.StatusCode < 500:
		return once.NotDone(err) // the webhook is wrong or gone: someone will mend it
	}
	return err // 5xx: it may be posted or not
}

// judge says what a failed request proves: without a connection nothing was sent.
func judge(err error) error {
	var dial *net.OpError
	notSent := errors.As(err, &dial) && dial.Op == "dial"
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // *url.Error would show the URL
	}
	if notSent {
		return once.NotDone(err)
	}
	return err
}
