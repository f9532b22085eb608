package wire_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

type spanKey struct{}

// recorder is an instrumented transport. It records every request that it sees.
type recorder struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen []string
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req.WithContext(context.WithValue(req.Context(), spanKey{}, "span")))
	line := svc.RouteFromContext(req.Context()) + " " + req.URL.String()
	if resp != nil && resp.Request != nil {
		line += " " + resp.Request.URL.String()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, line)
	return resp, err
}

// A transport wrapper sees every exchange with its route, but never the signature of a
// presigned URL.
func TestTransportWrapperSeesNoQuery(t *testing.T) {
	for name, start := range map[string]func(...svctest.Option) *svctest.Server{"loopback": svctest.NewServer, "in memory": svctest.NewInMemory} {
		t.Run(name, func(t *testing.T) {
			srv := start(svctest.WithSeparateStorage())
			defer srv.Close()
			rec := &recorder{}
			opts := []svc.Option{svc.WithToken(srv.Token()), svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper {
				rec.next = next
				return rec
			})}
			if name == "in memory" {
				opts = append(opts, svc.WithHTTPClient(srv.HTTPClient()))
			}
			client, err := svc.NewClient(srv.URL(), opts...)
			require.NoError(t, err)
			defer client.CloseIdleConnections()

			result, err := client.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Purpose: "fine-tune", Body: strings.NewReader("contents")})
			require.NoError(t, err)
			var back bytes.Buffer
			_, err = client.Files.Download(t.Context(), result.FileID, &back, nil)
			require.NoError(t, err)
			require.Equal(t, "contents", back.String())
			_, err = client.VideoJobs.List(t.Context(), &svc.ListJobsOptions{Page: 1, PageSize: 5})
			require.NoError(t, err)

			require.Len(t, rec.seen, 5)
			for _, line := range rec.seen {
				require.NotContains(t, line, "?", "the wrapper must not see the query")
			}
			require.True(t, strings.HasPrefix(rec.seen[0], "/v1/files http"), rec.seen[0])
			require.True(t, strings.HasPrefix(rec.seen[2], "/v1/files/{file_id}/presigned_url http"), rec.seen[2])
			require.Empty(t, svc.RouteFromContext(t.Context()))
		})
	}
}

func TestTransportWrapperWithForeignContext(t *testing.T) {
	srv := svctest.NewInMemory()
	client := srv.Client(svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}), svc.WithTransportWrapper(func(next http.RoundTripper) http.RoundTripper {
		return testkit.RoundTripFunc(func(req *http.Request) (*http.Response, error) {
			return next.RoundTrip(req.WithContext(context.Background()))
		})
	}))
	_, err := client.Files.List(t.Context())
	require.ErrorContains(t, err, "changed the context")
	require.Empty(t, srv.Requests())
}
