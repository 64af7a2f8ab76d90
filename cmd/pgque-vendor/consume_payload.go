package main

import "os"

// pipeHolds is how many bytes every system's pipe takes before anybody reads: a page.
const pipeHolds = 4096

// payloadPipe is a pipe that holds the payload, or the first part of a long one. A
// COMMAND that outlives us by a moment, when we are killed, would take an empty
// input for the event; a part of a long payload it cannot take for JSON.
func payloadPipe(payload []byte) (stdin, feed *os.File, err error) {
	if stdin, feed, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if _, err = feed.Write(payload[:min(len(payload), pipeHolds)]); err != nil {
		_, _ = stdin.Close(), feed.Close()
		return nil, nil, err
	}
	return stdin, feed, nil
}
