package notifications_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"encoding/json"

	"github.com/emersion/go-smtp"
)

// inbox is where notifications arrive: a mail server and a webhook that are slow,
// and now and then refuse.
type inbox struct {
	mu      sync.Mutex
	letters map[string]int // by recipient and subject: copies taken
	ids     map[string]map[string]bool
	posts   map[string]int // by text
}

func newInbox() *inbox {
	return &inbox{letters: map[string]int{}, ids: map[string]map[string]bool{}, posts: map[string]int{}}
}

// mailServer gives the address of an SMTP server.
func (in *inbox) mailServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &session{in: in}, nil }))
	s.Domain = "localhost"
	s.ErrorLog = quiet{}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

type quiet struct{}

func (quiet) Printf(string, ...any) {} // clients that are killed are no news
func (quiet) Println(...any)        {}

type session struct {
	in *inbox
	to string
}

func (s *session) Reset()                               {}
func (s *session) Logout() error                        { return nil }
func (s *session) Mail(string, *smtp.MailOptions) error { return sometimes(10) }
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return nil
}

func (s *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err // the client went away: the message is not taken
	}
	if err := sometimes(10); err != nil {
		return err
	}
	letter, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return err
	}
	key := s.to + " | " + letter.Header.Get("Subject")
	s.in.mu.Lock()
	s.in.letters[key]++
	if s.in.ids[key] == nil {
		s.in.ids[key] = map[string]bool{}
	}
	s.in.ids[key][letter.Header.Get("Message-Id")] = true
	s.in.mu.Unlock()
	time.Sleep(10 * time.Millisecond) // taken, and the answer on its way
	return nil
}

// sometimes refuses one in n for now.
func sometimes(n int) error {
	time.Sleep(5 * time.Millisecond)
	if rand.N(n) == 0 {
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "not now"}
	}
	return nil
}

// webhook gives the URL of a Slack channel.
func (in *inbox) webhook(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message struct{ Text string }
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			http.Error(w, "invalid_payload", http.StatusBadRequest)
			return
		}
		switch rand.N(20) {
		case 0:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "rate_limited", http.StatusTooManyRequests)
			return
		case 1:
			http.Error(w, "no_service", http.StatusNotFound)
			return
		}
		in.mu.Lock()
		in.posts[message.Text]++
		in.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// count gives the number of notifications that arrived, a second copy not counted.
func (in *inbox) count() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.letters)
	for text := range in.posts {
		if !strings.HasSuffix(text, seenBefore) || in.posts[strings.TrimSuffix(text, seenBefore)] == 0 {
			n++
		}
	}
	return n
}

const seenBefore = " (you may have seen this before)"
