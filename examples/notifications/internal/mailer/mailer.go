// Package mailer sends e-mail by SMTP.
package mailer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/stega/pgque-vendor/events"
	"github.com/stega/pgque-vendor/examples/notifications/internal/once"
)

// Config says how to reach the mail server.
type Config struct {
	Host           string
	Port           int
	User, Password string // none: no login
	From           string
	Plaintext      bool // no TLS, for a server on this machine
}

// Mailer sends e-mail; one may be used by many goroutines.
type Mailer struct {
	client *mail.Client
	from   string
}

// New checks the configuration. It does not connect.
func New(cfg Config) (*Mailer, error) {
	options := []mail.Option{mail.WithPort(cfg.Port), mail.WithTLSPolicy(mail.TLSMandatory), mail.WithTimeout(10 * time.Second)}
	if cfg.Plaintext {
		options = append(options, mail.WithTLSPolicy(mail.NoTLS))
	}
	if cfg.User != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(cfg.User), mail.WithPassword(cfg.Password))
	}
	client, err := mail.NewClient(cfg.Host, options...)
	return &Mailer{client: client, from: cfg.From}, err
}

// Send sends one message. key names its cause: the same key gives the same
// Message-ID, by which mail servers and programs recognise a second copy.
//
// An error is marked with once.NotDone when the message was certainly not taken,
// and with events.Dead when it never will be.
func (m *Mailer) Send(ctx context.Context, key, to, subject, body string) error {
	msg := mail.NewMsg()
	msg.SetMessageIDWithValue(fmt.Sprintf("%x@stega.example", sha256.Sum256([]byte(key))))
	msg.SetDate()
	msg.Subject(subject)
	msg.SetBodyString(mail.TypeTextPlain, body)
	if err := errors.Join(msg.From(m.from), msg.To(to)); err != nil {
		return events.Dead(once.NotDone(err)) // no address
	}
	err := m.client.DialAndSendWithContext(ctx, msg)
	if msg.IsDelivered() {
		return nil // what failed is the farewell
	}
	return judge(err)
}

// judge says what an error proves.
func judge(err error) error {
	var refused *mail.SendError
	if !errors.As(err, &refused) {
		return once.NotDone(err) // no connection, or no login: nothing was sent
	}
	if refused.Reason == mail.ErrSMTPDataClose && refused.ErrorCode() == 0 {
		return err // the message was sent, the answer was lost
	}
	if refused.Reason == mail.ErrSMTPRcptTo && refused.ErrorCode() >= 500 {
		return events.Dead(once.NotDone(err)) // the address does not exist
	}
	return once.NotDone(err)
}
