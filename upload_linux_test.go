package svc_test

import (
	"bytes"
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

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// The disk fills up: the error is that of the disk, and nothing is left.
func TestB19_DiskFull(t *testing.T) {
	if !inChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	body := contents(1 << 20)
	s := newFileService(t, ranges(body, `"e1"`))
	path := target(t, []byte("old"))
	leftovers := inTempDir(t)
	big := tempFile(t, body)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 500_000, Max: 500_000}))
	_, err := s.client(t).DownloadFile(t.Context(), s.link(), path, nil)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.NotErrorIs(t, err, svc.ErrTruncated)
	require.Len(t, s.requests("GET"), 1)
	requireFile(t, path, []byte("old"))

	_, err = s.client(t).Files.Put(t.Context(), s.link(), readOnly{big}, nil)
	require.ErrorIs(t, err, syscall.EFBIG)
	require.Empty(t, s.requests("PUT"))
	require.Zero(t, leftovers())
}

// The early refusal of a large body arrives over TLS too, with the transport that
// the SDK makes itself.
func TestUpload_EarlyRefusalArrivesOverTLS(t *testing.T) {
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	cert := filepath.Join(t.TempDir(), "cert.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	if !inChild(t, "SSL_CERT_FILE="+cert) {
		return
	}
	config := &tls.Config{Certificates: srv.TLS.Certificates}
	for range 10 {
		address, conns := rawStorage(t, func(c net.Conn) net.Conn { return tls.Server(c, config) }, func(c net.Conn) {
			readHead(c)
			_, _ = io.WriteString(c, tooLarge)
		})
		_, err := newFileClient(t, "https://"+address).Files.Put(t.Context(), svc.SignedURL("https://"+address+"/o?"+fileQuery), bytes.NewReader(make([]byte, 64<<20)), nil)
		var e *svc.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "EntityTooLarge", e.Code)
		require.EqualValues(t, 1, conns.Load())
	}
}
