package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// owner is nobody in particular: on Windows initdb and pg_ctl drop an
// administrator's rights by themselves.
type owner struct{}

func findOwner() (owner, error)   { return owner{}, nil }
func (owner) tempDir() string     { return os.TempDir() }
func (owner) give(string) error   { return nil }
func (owner) runAs(cmd *exec.Cmd) {}

// spawn starts the server through pg_ctl, which an administrator needs.
func (c *Cluster) spawn(ctx context.Context) (*os.Process, error) {
	err := c.run(ctx, "pg_ctl", "start", "-W", "-D", c.data(), "-l", filepath.Join(c.Dir, "log"), "-o", "-p "+strconv.Itoa(c.Port))
	if err != nil {
		return nil, err
	}
	for {
		text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
		if first, _, ok := strings.Cut(string(text), "\n"); err == nil && ok {
			pid, err := strconv.Atoi(strings.TrimSpace(first))
			if err != nil {
				return nil, fmt.Errorf("read postmaster.pid: %w", err)
			}
			return os.FindProcess(pid)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		time.Sleep(readyPoll)
	}
}

// guard puts the server into a job object, which Windows ends with the process
// that holds it. The folder of a killed test process stays behind.
type guard struct{ job windows.Handle }

func startGuard(string) (*guard, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make a job object for PostgreSQL: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		windows.CloseHandle(job)
		return nil, fmt.Errorf("set up a job object for PostgreSQL: %w", err)
	}
	return &guard{job: job}, nil
}

func (g *guard) watch(pid int) {
	if pid == 0 {
		return
	}
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(pid))
	if err != nil {
		return
	}
	defer windows.CloseHandle(process)
	_ = windows.AssignProcessToJobObject(g.job, process) // where it can't, the server outlives a killed test
}

func (g *guard) release() { windows.CloseHandle(g.job) }
