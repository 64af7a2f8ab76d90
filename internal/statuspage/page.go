// Package statuspage is the page that ticker and consume show at /: the state of
// queues and consumers, how it was over the last hour, and what doctor finds. It is
// one document without external parts. It holds names and numbers, and neither
// payloads nor where the database is.
package statuspage

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/stega/pgque-vendor/events"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string
)

// Config is what the page says of its process.
type Config struct {
	Process string // such as "ticker"
	Version string
}

// Look is what was seen of the database. The page does not change it.
type Look struct {
	At      time.Time // when it was tried
	Trouble string    // why it failed; what follows is then that of an earlier look
	Took    time.Duration

	Seen      time.Time // when what follows was seen; zero when nothing ever was
	Queues    []events.QueueInfo
	Consumers []events.ConsumerInfo
	Findings  []events.Finding
}

// Page is the page. Tell it what happens with Observe and Show.
type Page struct {
	config   Config
	template *template.Template
	policy   string

	mu       sync.Mutex
	database string
	look     Look
	history  *history
	counts   counts
	changed  bool // since it was rendered
	rendered []byte
}

// New makes a page that has seen nothing yet.
func New(config Config) (*Page, error) {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	return &Page{
		config: config, template: t, history: newHistory(), changed: true,
		policy: "default-src 'none'; script-src '" + hash(pageJS) + "'; style-src '" + hash(pageCSS) + "'; img-src data:; " +
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}, nil
}

// hash is how a Content-Security-Policy names the one script or style it allows.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Of names the database that is shown.
func (p *Page) Of(database string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.database, p.changed = database, true
}

// Show takes a look at the database.
func (p *Page) Show(look Look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look, p.changed = look, true
	if look.Trouble == "" {
		p.history.add(&look)
	}
}

// Observe counts what this process does. It is an [events.Observer].
func (p *Page) Observe(o events.Observation) { p.counts.observe(o) }

// ServeHTTP writes the page. It is rendered at most once for each look, whoever
// asks and however often.
func (p *Page) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	body, err := p.render()
	if err != nil {
		http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", p.policy)
	_, _ = w.Write(body)
}

func (p *Page) render() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.changed {
		return p.rendered, nil
	}
	var b bytes.Buffer
	if err := p.template.Execute(&b, p.view()); err != nil {
		return nil, err
	}
	p.rendered, p.changed = b.Bytes(), false
	return p.rendered, nil
}
