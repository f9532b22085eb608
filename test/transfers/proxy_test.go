package transfers_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

func TestTransfersUseTheProxyOfTheEnvironment_B20(t *testing.T) {
	if os.Getenv("SVC_TEST_CHILD") == "" {
		var mu sync.Mutex
		var asked []string
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, r.Method+" "+r.RequestURI)
			mu.Unlock()
			switch r.Method {
			case http.MethodPost:
				fmt.Fprint(w, `{"id":"f1","presigned_url":"http://storage.invalid/a%2Fb?sig=1"}`)
			case http.MethodPut:
				_, _ = io.Copy(io.Discard, r.Body)
			default:
				fmt.Fprint(w, `[]`)
			}
		}))
		defer proxy.Close()
		testkit.InChild(t, "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
		once := []string{
			"GET http://svc.invalid/v1/files", "POST http://svc.invalid/v1/files",
			"PUT http://storage.invalid/a%2Fb?sig=1", "GET http://media.invalid/v.mp4?sig=2",
		}
		require.Equal(t, append(once, once...), asked)
		return
	}
	for _, opt := range []svc.Option{
		nil,
		svc.WithHTTPClient(&http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13},
		}}),
	} {
		c, err := svc.NewClient("http://svc.invalid", svc.WithInsecureHTTP(), svc.WithToken(testkit.Token), opt)
		require.NoError(t, err)
		_, err = c.Files.List(t.Context())
		require.NoError(t, err)
		_, err = c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("x")})
		require.NoError(t, err)
		_, err = c.Files.DownloadURL(t.Context(), "http://media.invalid/v.mp4?sig=2", io.Discard, nil)
		require.NoError(t, err)
	}
}

// Concurrent transfers of many clients change no shared state.
func TestTransfersChangeNothingShared_B21(t *testing.T) {
	defaultClient, defaultTransport := *http.DefaultClient, http.DefaultTransport.(*http.Transport)
	mine := &http.Client{Timeout: time.Hour, Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext}}
	snapshot := *mine
	body := testkit.Contents(100_000)
	var wg sync.WaitGroup
	for i := range 20 {
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				_, _ = io.Copy(io.Discard, r.Body)
				return
			}
			ranges(body, `"e1"`)(n, w, r)
		})
		token := fmt.Sprintf("token-of-client-%d", i)
		opts := []svc.Option{svc.WithToken(token), svc.WithTimeout(time.Duration(i+1) * time.Second)}
		if i%2 == 0 {
			opts = append(opts, svc.WithHTTPClient(mine))
		}
		c := s.Client(t, opts...)
		wg.Go(func() {
			up, err := c.Files.Upload(context.Background(), svc.UploadRequest{FileName: "a", Body: bytes.NewReader(body)})
			if !(err == nil && up.FileID == "f1") {
				t.Error(err)
			}
			var got bytes.Buffer
			if _, err := c.Files.Download(context.Background(), "f1", &got, nil); err != nil || !bytes.Equal(body, got.Bytes()) {
				t.Error("download", err)
			}
			for _, r := range s.Requests("POST") {
				if r.Header.Get("Authorization") != "Bearer "+token {
					t.Error("token of another client")
				}
			}
		})
	}
	wg.Wait()
	mine.CloseIdleConnections()
	require.Equal(t, defaultClient, *http.DefaultClient)
	require.Same(t, defaultTransport, http.DefaultTransport)
	require.Equal(t, snapshot.Timeout, mine.Timeout)
	require.Same(t, snapshot.Transport, mine.Transport)
	require.Nil(t, mine.CheckRedirect)
	require.Nil(t, mine.Jar)
}
