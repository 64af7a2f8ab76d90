package vendorfile

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// isMountPoint reports whether a single file is mounted over, as
// "docker run -v ./pgque.sql:…" does. Such a file can't be replaced (EBUSY).
// Kernels before 5.8 don't tell; there the rename does, and is rolled back.
func isMountPoint(dir, name string) bool {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, filepath.Join(dir, name), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &st)
	return err == nil && st.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
