package transfers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// The disk is full during a transfer. The error is that of the disk, and no temporary
// file is left.
func TestTransfersReportAFullDisk_B19(t *testing.T) {
	if !testkit.InChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	body := testkit.Contents(1 << 20)
	s := testkit.NewFileService(t, ranges(body, `"e1"`))
	path := target(t, []byte("old"))
	leftovers := inTempDir(t)
	big := tempFile(t, body)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 500_000, Max: 500_000}))
	_, err := s.Client(t).Files.DownloadURLFile(t.Context(), s.Link(), path, nil)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.NotErrorIs(t, err, svc.ErrTruncated)
	require.Len(t, s.Requests("GET"), 1)
	requireFile(t, path, []byte("old"))

	_, err = s.Client(t).Files.Put(t.Context(), s.Link(), readOnly{big}, nil)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.Empty(t, s.Requests("PUT"))
	require.Zero(t, leftovers())
}

// The early refusal of a large body also arrives over TLS, with the library's own
// transport.
func TestUploadGetsAnEarlyRefusalOverTLS(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	cert := filepath.Join(t.TempDir(), "cert.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	if !testkit.InChild(t, "SSL_CERT_FILE="+cert) {
		return
	}
	config := &tls.Config{Certificates: srv.TLS.Certificates}
	for range 10 {
		address, conns := rawStorage(t, func(c net.Conn) net.Conn { return tls.Server(c, config) }, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, tooLarge)
		})
		_, err := testkit.NewFileClient(t, "https://"+address).Files.Put(t.Context(), svc.SignedURL("https://"+address+"/o?"+testkit.FileQuery), bytes.NewReader(make([]byte, 64<<20)), nil)
		var e *svc.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "EntityTooLarge", e.Code)
		require.EqualValues(t, 1, conns.Load())
	}
}

// UploadFile of a named pipe waits for a writer until ctx ends, and leaves nothing behind.
func TestUploadFileOfANamedPipeEndsWithCtx_D29(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	s := testkit.NewFileService(t, nil)
	start := time.Now()
	_, err := s.Client(t).Files.UploadFile(testkit.Within(t, 50*time.Millisecond), path, "", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, svc.UploadStageBody, testkit.ErrorAs[*svc.UploadError](t, err).Stage)
	require.Less(t, time.Since(start), 20*time.Second)
	require.Empty(t, s.Seen)

	go func() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, _ = io.WriteString(w, "written later")
			w.Close()
		}
	}()
	_, err = s.Client(t).Files.UploadFile(t.Context(), path, "", nil)
	require.NoError(t, err)
	require.Equal(t, "written later", s.Requests("PUT")[0].Bytes.String())
}
