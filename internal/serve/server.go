// Package serve is what ticker and consume show of themselves over HTTP: whether
// they are alive and ready, metrics for Prometheus, and a page. It looks at the
// database by itself, now and then, never because somebody asked: what a client
// does reaches neither the database nor the work of the process.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// Limits on what a client can take. A status page has few readers, and answers in
// milliseconds.
const (
	maxConnections = 64
	maxHeader      = 8 << 10
	headerTime     = 5 * time.Second
	requestTime    = 10 * time.Second
	idleTime       = 30 * time.Second
)

// Config is what is served.
type Config struct {
	// Ready says whether the process does its work, and in a word or two how:
	// "ticking", "standing by". Its error is shown to whoever asks, so it may not
	// hold secrets.
	Ready   func() (string, error)
	Metrics http.Handler
	Page    http.Handler
	// Log gets what goes wrong in the server itself.
	Log *slog.Logger
}

// Serve answers on l until ctx ends, and closes it.
func Serve(ctx context.Context, l *Listener, config Config) {
	server := &http.Server{
		Handler:                      Handler(config, l.Loopback),
		ReadHeaderTimeout:            headerTime,
		ReadTimeout:                  requestTime,
		WriteTimeout:                 requestTime,
		IdleTimeout:                  idleTime,
		MaxHeaderBytes:               maxHeader,
		ErrorLog:                     slog.NewLogLogger(config.Log.Handler(), slog.LevelWarn),
		DisableGeneralOptionsHandler: true,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(&newestConnections{Listener: l, most: maxConnections})
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		config.Log.Error("listening ended", "err", err)
	}
}

// Handler answers requests as Serve does. Where loopback is true it refuses those
// that come by another name.
func Handler(config Config, loopback bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		state, err := config.Ready()
		if err != nil {
			answer(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		answer(w, http.StatusOK, "ready: "+state)
	})
	mux.Handle("/metrics", config.Metrics)
	mux.Handle("/{$}", config.Page)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, "not found; there are /, /metrics, /healthz and /readyz")
	})
	return harden(mux, loopback)
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

// harden lets only readers through, and keeps browsers from doing anything with
// the answer but show it.
func harden(next http.Handler, loopback bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			h.Set("Connection", "close")
			answer(w, http.StatusMethodNotAllowed, "only GET and HEAD")
		case r.ContentLength != 0: // nothing here takes a body, and none is read
			h.Set("Connection", "close")
			answer(w, http.StatusBadRequest, "no body, please")
		case loopback && r.Host != "" && !isLoopbackHost(r.Host):
			answer(w, http.StatusMisdirectedRequest, fmt.Sprintf("this listens on loopback only and was asked as %q: use localhost or 127.0.0.1, or have the proxy send it as Host", r.Host))
		default:
			next.ServeHTTP(w, r)
		}
	})
}
