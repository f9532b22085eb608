//go:build unix

package transfer

import (
	"io/fs"
	"os"
	"syscall"
)

// chown gives f the owner and the group of another file. Most users may not do that: then f keeps
// its own.
func chown(f *os.File, like fs.FileInfo) {
	if owner, ok := like.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(owner.Uid), int(owner.Gid))
	}
}
