package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestEachSignal(t *testing.T) {
	for name, tt := range map[string]struct {
		pauses []time.Duration // before each signal but the first
		want   string
	}{
		"one":                      {nil, "[1]"},
		"a hang-up, sent twice":    {[]time.Duration{94 * time.Microsecond}, "[1]"},
		"two wishes":               {[]time.Duration{burst}, "[1 2]"},
		"three bursts":             {[]time.Duration{1, time.Second, 1, 1, time.Second, 1}, "[1 2 3]"},
		"a key that is held down":  {[]time.Duration{burst / 2, burst / 2, burst / 2, burst / 2}, "[1 2 3]"},
		"shortly before the other": {[]time.Duration{burst - 1}, "[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, ended := make(chan os.Signal), make(chan struct{})
				var got []int
				go func() {
					defer close(ended)
					eachSignal(signals, func(n int, _ os.Signal) { got = append(got, n) })
				}()
				signals <- syscall.SIGTERM
				for _, pause := range tt.pauses {
					time.Sleep(pause)
					signals <- syscall.SIGHUP
				}
				close(signals)
				<-ended
				if fmt.Sprint(got) != tt.want {
					t.Errorf("counted %v, want %s", got, tt.want)
				}
			})
		})
	}
}
