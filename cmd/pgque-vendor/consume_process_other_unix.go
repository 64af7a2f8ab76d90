//go:build unix && !linux

package main

import "syscall"

// ownGroup gives a process a group of its own, out of reach of a terminal's Ctrl-C.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
