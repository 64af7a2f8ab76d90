package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
	"github.com/stega/pgque-vendor/internal/pgserver"
)

// mavenCentral is where embedded-postgres publishes PostgreSQL's programs.
const mavenCentral = "https://repo1.maven.org/maven2"

// How long the repository has to answer, and the whole download may take.
const (
	repositoryAnswers = 10 * time.Second
	downloadLimit     = 10 * time.Minute
)

// downloadServer fetches PostgreSQL's programs into cache, with progress.
func downloadServer(ctx context.Context, env *environment, cache, repository string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, downloadLimit)
	defer cancel()
	relay, err := startRelay(env, repository)
	if err != nil {
		return "", err
	}
	defer relay.Close()
	env.sayf("no PostgreSQL is on this machine; one is downloaded, once, and kept in %s", cache)
	programs, err := pgserver.Download(limited, cache, relay.url, io.Discard)
	if err == nil {
		return programs, nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if cause := relay.failure(); cause != nil {
		err = cause // the library says no more than that it failed
	}
	return "", fault.New(fault.Usage, "no PostgreSQL is on this machine, and none could be downloaded: %s", err).
		Hint("install PostgreSQL 14 or later: apt-get install postgresql, brew install postgresql@17, https://www.postgresql.org/download/").
		Hint("if it is in an unusual place: PGQUE_TEST_PG_BIN=FOLDER pgque-vendor demo, where FOLDER holds initdb and postgres")
}

// relay stands between the library that downloads and the repository: the library
// has no time limit, tells no progress and swallows reasons.
type relay struct {
	server *http.Server
	url    string

	mu  sync.Mutex
	err error
}

func startRelay(env *environment, repository string) (*relay, error) {
	target, err := url.Parse(repository)
	if err != nil {
		return nil, fault.New(fault.Usage, "the repository's URL: %s", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fault.New(fault.Usage, "listen for the download: %s", err)
	}
	r := &relay{url: "http://" + listener.Addr().String()}
	r.server = &http.Server{ReadHeaderTimeout: repositoryAnswers, Handler: &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: repositoryAnswers}).DialContext,
			TLSHandshakeTimeout:   repositoryAnswers,
			ResponseHeaderTimeout: repositoryAnswers,
		},
		ModifyResponse: func(response *http.Response) error {
			if response.StatusCode != http.StatusOK {
				r.fail(fmt.Errorf("%s answered %s for %s", target.Host, response.Status, response.Request.URL.Path))
			}
			response.Body = &progress{ReadCloser: response.Body, env: env, size: response.ContentLength}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			r.fail(err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}}
	go r.server.Serve(listener) //nolint:errcheck // it ends by Close
	return r, nil
}

// Close ends the relay, and what it still carries.
func (r *relay) Close() { _ = r.server.Close() }

func (r *relay) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *relay) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// progress says how far a download is, each time that another few megabytes have
// come.
type progress struct {
	io.ReadCloser
	env  *environment
	size int64 // -1: not known
	done int64
}

const progressStep = 5 << 20

func (p *progress) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	before := p.done
	p.done += int64(n)
	if p.done/progressStep > before/progressStep {
		of := ""
		if p.size > 0 {
			of = fmt.Sprintf(" of %d", p.size>>20)
		}
		p.env.sayf("%d%s MB", p.done>>20, of)
	}
	return n, err
}
