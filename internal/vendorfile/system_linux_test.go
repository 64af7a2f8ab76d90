package vendorfile

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func makePipe(t testing.TB, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

// runAsNobody runs check on a thread with the rights of user 65532 when the
// test runs as root. The raw calls change one thread only, and the thread ends
// with its goroutine.
func runAsNobody(t *testing.T, check func() string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return check()
	}
	result := make(chan string)
	go func() {
		runtime.LockOSThread()
		const nobody = 65532
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, 0, 0, 0},
			{unix.SYS_SETRESGID, nobody, nobody, nobody},
			{unix.SYS_SETRESUID, nobody, nobody, nobody},
		} {
			if _, _, e := syscall.RawSyscall(call[0], call[1], call[2], call[3]); e != 0 {
				result <- "can't become another user: " + e.Error()
				return
			}
		}
		result <- check()
	}()
	return <-result
}

func setUmask(mask int) (old int) { return syscall.Umask(mask) }
