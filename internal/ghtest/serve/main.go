// Command serve runs a GitHub for scripts and benchmarks: ghtest's server, fed
// from a git repository. It prints the API's URL on the first line of stdout,
// and after its standard input ends, the requests that came and how many of
// them came one after another.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/stega/pgque-vendor/internal/ghtest"
)

func main() {
	var o ghtest.Options
	var faults []ghtest.Fault
	flag.StringVar(&o.GitDir, "git-dir", ".", "the git `repository` to show, bare or not")
	flag.StringVar(&o.Repository, "repo", "owner/repo", "`OWNER/NAME` to show it as")
	flag.StringVar(&o.Addr, "addr", "127.0.0.1:0", "`HOST:PORT` to listen on")
	flag.StringVar(&o.Prefix, "prefix", "", "/api/v3 for an Enterprise server")
	flag.StringVar(&o.Token, "token", "", "the one valid token")
	flag.DurationVar(&o.Latency, "latency", 0, "before each answer")
	flag.IntVar(&o.TreeLimit, "tree-limit", 0, "cut recursive listings of more entries")
	flag.Func("fault", "misbehave, as ghtest.ParseFault says (repeatable)", func(text string) error {
		f, err := ghtest.ParseFault(text)
		faults = append(faults, f)
		return err
	})
	flag.Parse()

	s := ghtest.New(o)
	defer s.Close()
	for _, f := range faults {
		s.Inject(f)
	}
	fmt.Println(s.URL)
	io.Copy(io.Discard, os.Stdin) // until whoever started this closes it
	for _, path := range s.Paths() {
		fmt.Println(path)
	}
	fmt.Printf("%d requests, %d one after another\n", len(s.Requests()), s.RoundTrips())
}
