package linediff

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkAgainstGit compares the two versions of an SQL file, in turns with
// "git diff --no-index" as a whole process, and reports how much of git's time
// it takes. With PGQUE_UPSTREAM_GIT the two are PgQue's v0.1.0 and v0.2.0;
// without, files of that size made here.
func BenchmarkAgainstGit(b *testing.B) {
	old, new := sqlVersions()
	if versions := upstreamVersions(b); versions != nil {
		old, new = versions["v0.1.0:sql/pgque.sql"], versions["v0.2.0:sql/pgque.sql"]
	}
	dir := b.TempDir()
	for name, data := range map[string][]byte{"a": old, "b": new} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	var ours, git time.Duration
	var s Stat
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		var err error
		s, err = Unified(io.Discard, File{Name: "f", Data: old}, File{Name: "f", Data: new}, Options{Context: DefaultContext})
		if err != nil {
			b.Fatal(err)
		}
		ours += time.Since(start)
		start = time.Now()
		cmd := exec.CommandContext(b.Context(), "git", "diff", "--no-index", "a", "b")
		cmd.Dir = dir
		if out, err := cmd.Output(); len(out) == 0 {
			b.Fatalf("git diff printed nothing: %v", err)
		}
		git += time.Since(start)
	}
	b.ReportMetric(float64(ours)/float64(b.N), "ours-ns/op")
	b.ReportMetric(float64(git)/float64(b.N), "git-ns/op")
	b.ReportMetric(float64(ours)/float64(git), "ours/git")
	b.ReportMetric(float64(s.Added+s.Removed), "changed-lines")
}

// BenchmarkHard is for the bounds of B042: two seconds, 200 MB.
func BenchmarkHard(b *testing.B) {
	for _, h := range hardPairs() {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			var s Stat
			for b.Loop() {
				var err error
				s, err = Unified(io.Discard, File{Name: "f", Data: h.a}, File{Name: "f", Data: h.b}, Options{Context: DefaultContext})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.Added+s.Removed), "changed-lines")
		})
	}
}

// sqlVersions returns two versions of a made-up SQL file: functions with lines
// that every function has, a few of them changed, and many new ones.
func sqlVersions() (old, new []byte) {
	random := rand.New(rand.NewPCG(11, 12))
	function := func(w *bytes.Buffer, n int, changed bool) {
		fmt.Fprintf(w, "create function pgque.f%d(a text)\nreturns bigint as $$\ndeclare\n    n bigint;\nbegin\n", n)
		for i := range 12 {
			fmt.Fprintf(w, "    n := n + %d; -- step %d of %d\n", n*i, i, n)
			if i%4 == 0 {
				w.WriteString("    if n > 10 then\n        return n;\n    end if;\n\n")
			}
		}
		if changed {
			fmt.Fprintf(w, "    raise notice 'f%d';\n", n)
		}
		w.WriteString("    return n;\nend;\n$$ language plpgsql;\n\n")
	}
	var a, b bytes.Buffer
	for n := range 230 {
		if n%4 == 3 || n > 200 {
			function(&b, n, false)
			continue
		}
		function(&a, n, false)
		function(&b, n, random.IntN(4) == 0)
	}
	return a.Bytes(), b.Bytes()
}
