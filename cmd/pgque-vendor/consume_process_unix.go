//go:build unix

package main

import (
	"errors"
	"os"
	"syscall"
)

func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// groupAlive looks whether anything of the group is left. A group keeps its number
// from being given to another process.
func groupAlive(p *os.Process, _ <-chan struct{}) bool {
	return !errors.Is(syscall.Kill(-p.Pid, 0), syscall.ESRCH)
}

// tooLarge says that arguments and environment are more than the system takes.
func tooLarge(err error) bool { return errors.Is(err, syscall.E2BIG) }
