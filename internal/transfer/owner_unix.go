//go:build unix

package transfer

import (
	"io/fs"
	"os"
	"syscall"
)

// chown gives f the owner and the group of another file. It does nothing if the user may not do
// that.
func chown(f *os.File, like fs.FileInfo) {
	if owner, ok := like.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(owner.Uid), int(owner.Gid))
	}
}
