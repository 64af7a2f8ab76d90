package ghtest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Answer is what the server is about to send. A fault may change all of it.
type Answer struct {
	Request *http.Request
	Status  int
	Header  http.Header
	Body    []byte

	wire wire
	cut  int // bytes of the body that are sent, for the wires that cut
}

// wire is how an answer goes out.
type wire int

const (
	wireWhole wire = iota
	wireReset
	wireStall
	wireCutLength  // Content-Length says more than comes
	wireCutChunked // the last chunk is missing
	wireCutHTTP10  // no length at all, just an end
	wireStallBody  // a part of the body, then nothing
	wireGzip
	wireBrokenGzip // the checksum is wrong
)

// newAnswer carries the headers that GitHub sends with everything.
func newAnswer(r *http.Request, status int) *Answer {
	h := http.Header{}
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-GitHub-Media-Type", "github.v3; format=json")
	limit := "60"
	if r.Header.Get("Authorization") != "" {
		limit = "5000"
	}
	h.Set("X-RateLimit-Limit", limit)
	h.Set("X-RateLimit-Remaining", "42")
	h.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
	return &Answer{Request: r, Status: status, Header: h}
}

func jsonAnswer(r *http.Request, status int, v any) *Answer {
	a := newAnswer(r, status)
	body, err := json.Marshal(v)
	if err != nil {
		return failed(r, err)
	}
	a.Body = body
	return a
}

// refusal is GitHub's JSON for everything that is no success.
func refusal(r *http.Request, status int, message string) *Answer {
	return jsonAnswer(r, status, map[string]string{
		"message":           message,
		"documentation_url": "https://docs.github.com/rest",
		"status":            strconv.Itoa(status),
	})
}

func notFound(r *http.Request) *Answer { return refusal(r, http.StatusNotFound, "Not Found") }

// failed is a mistake of the test's set-up, not a behaviour of GitHub.
func failed(r *http.Request, err error) *Answer {
	return refusal(r, http.StatusInternalServerError, "ghtest: "+err.Error())
}

// tag adds an ETag and answers 304 to a client that has this very answer.
func (a *Answer) tag(r *http.Request) {
	etag := fmt.Sprintf(`W/"%x"`, sha256.Sum256(a.Body))
	a.Header.Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		a.Status, a.Body = http.StatusNotModified, nil
	}
}

func (a *Answer) write(w http.ResponseWriter, done <-chan struct{}) {
	switch a.wire {
	case wireWhole:
		a.plain(w)
	case wireGzip, wireBrokenGzip:
		a.gzip()
		a.plain(w)
	case wireStall:
		wait(a.Request, done)
		panic(http.ErrAbortHandler)
	default:
		a.raw(w, done)
	}
}

func wait(r *http.Request, done <-chan struct{}) {
	select {
	case <-r.Context().Done():
	case <-done:
	}
}

func (a *Answer) plain(w http.ResponseWriter) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(a.Status)
	w.Write(a.Body) // a client that has gone is no failure of the server
}

func (a *Answer) gzip() {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(a.Body)
	z.Close()
	a.Body = b.Bytes()
	if a.wire == wireBrokenGzip {
		a.Body[len(a.Body)-8] ^= 0xff // the trailer: 4 bytes of checksum, 4 of length
	}
	a.Header.Set("Content-Encoding", "gzip")
}

// raw writes to the connection itself, since net/http would mend or notice
// what goes wrong here.
func (a *Answer) raw(w http.ResponseWriter, done <-chan struct{}) {
	conn, out, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	if a.wire == wireReset {
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // the close is a reset then
		}
		return
	}
	protocol := "HTTP/1.1"
	switch a.wire {
	case wireCutLength, wireStallBody:
		a.Header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	case wireCutChunked:
		a.Header.Set("Transfer-Encoding", "chunked")
	case wireCutHTTP10:
		protocol = "HTTP/1.0"
	}
	fmt.Fprintf(out, "%s %d %s\r\n", protocol, a.Status, http.StatusText(a.Status))
	a.Header.Write(out)
	out.WriteString("\r\n")
	part := a.Body[:min(a.cut, len(a.Body))]
	if a.wire == wireCutChunked {
		fmt.Fprintf(out, "%x\r\n%s\r\n", len(part), part)
	} else {
		out.Write(part)
	}
	out.Flush()
	if a.wire == wireStallBody {
		<-done // the connection is ours; its end is not seen without reading
	}
}
