package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// ownGroup keeps a console's Ctrl-C from the process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// terminateGroup ends the process: Windows has nothing that asks it to.
func terminateGroup(p *os.Process) { killGroup(p) }

func killGroup(p *os.Process) { _ = p.Kill() }

func groupAlive(_ *os.Process, exited <-chan struct{}) bool {
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// tooLarge says that command line or environment are more than the system takes.
func tooLarge(err error) bool { return errors.Is(err, windows.ERROR_FILENAME_EXCED_RANGE) }
