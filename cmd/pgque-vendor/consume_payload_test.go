package main

import (
	"bytes"
	"io"
	"testing"
)

// Before COMMAND runs at all, its payload waits for it.
func TestPayloadPipe(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 2, pipeHolds - 1, pipeHolds, pipeHolds + 1, 1 << 20} {
		payload := bytes.Repeat([]byte("x"), size)
		stdin, feed, err := payloadPipe(payload)
		if err != nil {
			t.Fatal(err)
		}
		_ = feed.Close() // as the system does for a process that is killed
		got, err := io.ReadAll(stdin)
		if err != nil || !bytes.Equal(got, payload[:min(size, pipeHolds)]) {
			t.Errorf("of %d bytes %d were there, error %v", size, len(got), err)
		}
		_ = stdin.Close()
	}
}
