//go:build !linux

package vendorfile

// isMountPoint: only Linux mounts single files.
func isMountPoint(string, string) bool { return false }
