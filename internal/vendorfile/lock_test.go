package vendorfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stega/pgque-vendor/internal/fault"
)

// B066: two at once: one wins, the other says who holds the lock.
func TestLock(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{
		vendored(t, "v0.1.0", contents("0.1.0")),
		filepath.Join(t.TempDir(), "not", "there"),
	} {
		before := tree(t, dir)
		first, err := Begin(dir, "pgque-vendor update v0.2.0")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Begin(dir, "pgque-vendor update v0.3.0")
		host, _ := os.Hostname()
		who := fmt.Sprintf("another run holds the lock of %q (pid %d on %s, since 2", dir, os.Getpid(), host)
		if !fault.Is(err, fault.Usage) || !strings.HasPrefix(err.Error(), who) {
			t.Errorf("got %v, want %s…", err, who)
		}
		if r := mustCheck(t, dir); !r.Interrupted || r.Clean() || !strings.Contains(r.Findings[0].Message, "or runs right now (pid ") {
			t.Errorf("while it runs: %+v", r.Findings)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if err := first.Close(); err != nil {
			t.Errorf("the second Close: %v", err)
		}
		if got := tree(t, dir); !reflect.DeepEqual(got, before) {
			t.Errorf("left behind: %v", got)
		}
		again, err := Begin(dir, "pgque-vendor update v0.3.0")
		if err != nil {
			t.Fatal(err)
		}
		if again.Interrupted() {
			t.Error("a run that ended well counts as interrupted")
		}
		again.Close()
	}
}

// The other run may have locked and not yet signed: its name is waited for.
func TestLockNotYetSigned(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	locked, sign, signed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	slow := realSeams()
	slow.before = func(step, name string) error {
		if step == "create" && name == ownerName+".new" {
			close(locked)
			<-sign
		}
		return nil
	}
	go func() {
		defer close(signed)
		first, err := begin(dir, "pgque-vendor update v0.2.0", slow)
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { first.Close() })
	}()
	<-locked
	var once sync.Once
	waiting := realSeams()
	waiting.sleep = func(time.Duration) { once.Do(func() { close(sign); <-signed }) }
	_, err := begin(dir, "pgque-vendor update v0.3.0", waiting)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("(pid %d on ", os.Getpid())) {
		t.Errorf("got %v", err)
	}
	once.Do(func() { close(sign); <-signed })
}

// A lock that nobody holds any more is taken over, whatever was left.
func TestStaleLock(t *testing.T) {
	t.Parallel()
	files := contents("0.1.0")
	dir := vendored(t, "v0.1.0", files)
	put(t, dir, lockName, "")
	put(t, dir, ownerName, `{"pid": 999999, "host": "elsewhere", "since": "2020-01-01T00:00:00Z"}`)
	put(t, dir, stagingName+"/new.pgque.sql", "half")
	put(t, dir, stagingName+"/deep/er", "x")
	put(t, dir, commandName+".new", "x")
	r := mustCheck(t, dir)
	if !r.Interrupted || !strings.Contains(r.Findings[0].Message, "(pid 999999 on elsewhere, since 2020-01-01T00:00:00Z)") {
		t.Errorf("got %+v", r.Findings)
	}
	mustWrite(t, dir, files, sourceOf(t, "v0.1.0", files))
	if got := tree(t, dir); !reflect.DeepEqual(got, treeOf(files, sourceOf(t, "v0.1.0", files))) {
		t.Errorf("left behind: %v", got)
	}
}

// Many at once: whoever says it won did, the others name the lock, the files
// belong together, and nothing is left.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	top := scratch(t)
	for round := range 50 {
		dir := filepath.Join(top, "vendor", fmt.Sprint(round/2)) // missing, then there
		var group sync.WaitGroup
		results := make([]error, 4)
		for i := range results {
			group.Go(func() {
				files := contents(fmt.Sprintf("0.%d.0", i))
				results[i] = func() error {
					s, err := Begin(dir, "pgque-vendor update")
					if err != nil {
						return err
					}
					_, err = s.Commit(files, sourceOf(t, fmt.Sprintf("v0.%d.0", i), files))
					return errors.Join(err, s.Close())
				}()
			})
		}
		group.Wait()
		won := map[string]bool{}
		for i, err := range results {
			switch {
			case err == nil:
				won[fmt.Sprintf("v0.%d.0", i)] = true
			case !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), "another run holds the lock"):
				t.Fatalf("run %d: %v", i, err)
			}
		}
		r := mustCheck(t, dir)
		if len(won) == 0 || !r.Clean() || !won[r.Source.Tag] {
			t.Fatalf("winners %v, folder %s of %v", won, summary(r), r.Source)
		}
		files := contents(r.Source.SQLVersion)
		if got := tree(t, dir); !reflect.DeepEqual(got, treeOf(files, sourceOf(t, r.Source.Tag, files))) {
			t.Fatalf("mixed or left behind: %v", got)
		}
	}
}

// A run can lock the file that another removes in the same moment. It must not
// take that for the lock of the folder.
func TestLockOfARemovedFile(t *testing.T) {
	t.Parallel()
	dir := vendored(t, "v0.1.0", contents("0.1.0"))
	path := filepath.Join(dir, filepath.FromSlash(lockName))
	removed := 0
	s := realSeams()
	s.before = func(step, _ string) error {
		if step == "locked" && removed < 3 {
			removed++
			if err := os.Remove(path); err != nil {
				t.Skip("an open file can't be removed here: ", err)
			}
			if removed == 3 { // and another run makes its own
				return os.WriteFile(path, nil, 0o644)
			}
		}
		return nil
	}
	staging, err := begin(dir, "pgque-vendor update v0.2.0", s)
	if err != nil {
		t.Fatal(err)
	}
	defer staging.Close()
	if _, err := Begin(dir, "x"); removed != 3 || !fault.Is(err, fault.Usage) {
		t.Errorf("after %d removals another run gets %v", removed, err)
	}
}
