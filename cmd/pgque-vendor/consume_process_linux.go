package main

import "syscall"

// ownGroup gives a process a group of its own, out of reach of a terminal's Ctrl-C,
// and has the kernel kill it when we die in whatever way.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
