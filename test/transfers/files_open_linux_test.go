package transfers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// openIn counts the files below dir that this process has open, including deleted files.
func openIn(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// However a transfer ends, no file stays open.
func TestTransfersCloseTheirFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the garbage collector would close files that were forgotten
	closed := func(what string) {
		t.Helper()
		require.Zero(t, openIn(t, dir), what)
	}
	big := func() io.Reader { return readOnly{bytes.NewReader(testkit.Contents(100_000))} }
	upload := func(body io.Reader, size int64, replies ...testkit.Reply) error {
		c, _ := scripted(t, replies...)
		_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: body, Size: size})
		return err
	}
	require.NoError(t, upload(testkit.ReadFunc(func(p []byte) (int, error) {
		return copy(p, "data"), io.EOF
	}), 0, registered, testkit.Reply{Status: 200}))

	require.NoError(t, upload(big(), 0, registered, testkit.Reply{Status: 200}))
	closed("success")
	require.Error(t, upload(big(), 0, registered, refusedPut))
	closed("put refused")
	require.Error(t, upload(big(), 0, refusedPut))
	closed("register refused")
	require.Error(t, upload(big(), 99_999))
	closed("another size")
	require.Error(t, upload(io.MultiReader(big(), iotest.ErrReader(errors.New("torn"))), 0))
	closed("a body that fails")

	path := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(path, []byte("data"), 0o600))
	for _, last := range []testkit.Reply{{Status: 200}, refusedPut} {
		c, _ := scripted(t, registered, last)
		_, _ = c.Files.UploadFile(t.Context(), path, "", nil)
		closed("UploadFile")
		c, _ = scripted(t, last)
		_, _ = c.Files.DownloadURLFile(t.Context(), testkit.SignedLink, path, nil)
		closed("DownloadFile")
	}
}

// ctx ends while a Read of the body still blocks. What that Read returns later is not
// stored.
func TestTransfersCloseTheirFilesAfterCtx(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the garbage collector would close files that were forgotten
	ctx, cancel := context.WithCancel(t.Context())
	release, spooling := make(chan struct{}), 0
	body := io.MultiReader(bytes.NewReader(testkit.Contents(100_000)), testkit.ReadFunc(func([]byte) (int, error) {
		spooling = openIn(t, dir)
		cancel()
		<-release
		return 0, io.EOF
	}))
	c, _ := scripted(t)
	_, err := c.Files.Put(ctx, uploadLink, readOnly{body}, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, spooling)
	close(release)
	require.Eventually(t, func() bool { return openIn(t, dir) == 0 }, 20*time.Second, time.Millisecond)
}

// If the path cannot be a file, the error names it, and what is there stays unchanged.
func TestDownloadFileNamesItsTarget(t *testing.T) {
	c, _ := scripted(t)
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink(loop, loop))
	for path, want := range map[string]string{
		"":        "open : file does not exist",
		dir + "/": "open " + dir + "/: is a directory",
		dir:       "open " + dir + ": is a directory",
		loop:      "open " + loop + ": too many levels of symbolic links",
	} {
		n, err := c.Files.DownloadURLFile(t.Context(), testkit.SignedLink, path, nil)
		require.Zero(t, n)
		require.EqualError(t, err, "svc: download: "+want)
	}
	to, err := os.Readlink(loop)
	require.NoError(t, err)
	require.Equal(t, loop, to)
}

// Until the download is complete, other users cannot read the temporary file, even if the
// old file is readable for them.
func TestDownloadFileHidesWhatIsNotComplete(t *testing.T) {
	path := target(t, []byte("old"))
	require.NoError(t, os.Chmod(path, 0o640))
	modes := map[string]fs.FileMode{}
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		entries, _ := os.ReadDir(filepath.Dir(path))
		for _, e := range entries {
			info, err := e.Info()
			if err == nil {
				modes[filepath.Ext(e.Name())] = info.Mode()
			}
		}
		_, _ = io.WriteString(w, "new")
	})
	_, err := s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]fs.FileMode{".mp4": 0o640, ".part": 0o600}, modes)
	requireFile(t, path, []byte("new"))
}
