package transfers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/testkit"
)

// In a container a file may be a mount point. Such a file cannot be replaced. The error
// says so before anything is transferred, and says what to do.
func TestDownloadFileRefusesAMountPoint_C15(t *testing.T) {
	if dir := os.Getenv("SVC_TEST_MOUNT"); dir != "" {
		from, at := filepath.Join(dir, "from"), filepath.Join(dir, "a file")
		for _, path := range []string{from, at} {
			require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		}
		require.NoError(t, os.Symlink("a file", filepath.Join(dir, "link")))
		require.NoError(t, syscall.Mount(from, at, "", syscall.MS_BIND, ""))
		t.Chdir(dir)
		for _, path := range []string{at, "a file", filepath.Join(dir, "link"), "../" + filepath.Base(dir) + "/link"} {
			c, s := scripted(t)
			_, err := c.Files.DownloadURLFile(t.Context(), uploadLink, path, nil)
			require.ErrorContains(t, err, "is a mount point")
			require.ErrorContains(t, err, "use Download with a writer")
			require.Empty(t, s.Seen())
		}
		require.NoError(t, syscall.Unmount(at, 0))
		c, _ := scripted(t, testkit.Reply{Status: 200, Body: "new"})
		_, err := c.Files.DownloadURLFile(t.Context(), uploadLink, at, nil)
		require.NoError(t, err)
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "SVC_TEST_MOUNT="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no mount namespace of its own: ", err)
	}
	require.NoError(t, cmd.Wait())
}

// A file that is replaced keeps its owner and group, if the process may set them.
func TestDownloadFileKeepsTheOwner_D28(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may set the owner of a file")
	}
	path := target(t, []byte("old"))
	require.NoError(t, os.Chown(path, 1234, 2345))
	require.NoError(t, os.Chmod(path, 0o640))
	s := testkit.NewFileService(t, ranges([]byte("new"), `"e1"`))
	_, err := s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, nil)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 1234, info.Sys().(*syscall.Stat_t).Uid)
	require.EqualValues(t, 2345, info.Sys().(*syscall.Stat_t).Gid)
	require.Equal(t, os.FileMode(0o640), info.Mode())
}
