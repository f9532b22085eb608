package faults_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// A server that restarts sends a GOAWAY frame, which says up to which stream it has
// processed requests. Requests after that stream are sent again, also creates. The
// outcome of a create before it is unknown if no response came.
func TestMatrixGoAway(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	const parallel = 50
	record := `{"service_id":"svc-1","name":"x","status":"available"}`
	for name, tt := range map[string]struct {
		processed int
		answers   string
		create    bool
		unknown   int
	}{
		"read, nothing processed":     {},
		"read, some answered":         {processed: 20, answers: record},
		"read, some lost":             {processed: 20},
		"create, nothing processed":   {create: true},
		"create, some answered":       {create: true, processed: 20, answers: record},
		"create, some lost":           {create: true, processed: 20, unknown: 20},
		"create, everything answered": {create: true, processed: parallel, answers: record},
	} {
		t.Run(name, func(t *testing.T) {
			var streams []uint32
			var behind atomic.Int32 // requests on later connections
			h := newHandmade(t, func(n int, stream uint32) string {
				switch {
				case n == 1: // this request only opens the connection
					return h2OK(stream, "{}")
				case n > 1+parallel:
					behind.Add(1)
					return h2OK(stream, record)
				}
				if streams = append(streams, stream); len(streams) < parallel {
					return ""
				}
				slices.Sort(streams)
				last, say := uint32(1), ""
				for _, s := range streams[:tt.processed] {
					last = s
					if tt.answers != "" {
						say += h2OK(s, tt.answers)
					}
				}
				return say + h2GoingAway(last)
			})
			client := testkit.ClientAt(t, h.url, testkit.Tries(3, time.Millisecond), svc.WithHTTPClient(&http.Client{Transport: h.trusting}))
			require.NoError(t, client.Do(t.Context(), http.MethodGet, "/v1/files", nil, nil))

			errs := make([]error, parallel)
			var calls sync.WaitGroup
			for i := range parallel {
				calls.Go(func() { errs[i] = matrixGoAwayCall(t.Context(), client, tt.create) })
			}
			calls.Wait()
			unknown := 0
			for _, err := range errs {
				if errors.Is(err, svc.ErrOutcomeUnknown) {
					unknown++
					continue
				}
				require.NoError(t, err)
			}
			require.Equal(t, tt.unknown, unknown)
			sent := parallel - tt.processed
			if !tt.create && tt.answers == "" {
				sent = parallel
			}
			require.EqualValues(t, sent, behind.Load(), "requests on later connections")
		})
	}
}

func matrixGoAwayCall(ctx context.Context, c *svc.Client, create bool) (err error) {
	if create {
		_, err = c.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{Name: "x"})
	} else {
		_, err = c.InferenceServices.Get(ctx, "svc-1")
	}
	return err
}

// A stream is reset after the last byte of the contents. The download is complete, and no
// further request is sent.
func TestMatrixHTTP2ResetAfterTheEnd(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	var asked atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Etag", `"e1"`)
		if r.Header.Get("Range") != "" {
			http.Error(w, "no such range", http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(matrixContents)))
		_, _ = io.WriteString(w, matrixContents)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	client, err := svc.NewClient(srv.URL, svc.WithHTTPClient(srv.Client()),
		svc.WithRetry(svc.RetryPolicy{MaxAttempts: 3, MinDelay: time.Millisecond, MaxDelay: 4 * time.Millisecond}))
	require.NoError(t, err)
	var got bytes.Buffer
	n, err := client.Files.DownloadURL(t.Context(), svc.SignedURL(srv.URL+"/media"), &got, nil)
	require.NoError(t, err)
	require.EqualValues(t, len(matrixContents), n)
	require.Equal(t, matrixContents, got.String())
	require.EqualValues(t, 1, asked.Load())
}
