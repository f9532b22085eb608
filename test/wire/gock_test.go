package wire_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"gopkg.in/h2non/gock.v1"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// gocked returns a client whose requests only gock responds to.
func gocked(t *testing.T, opts ...svc.Option) *svc.Client {
	t.Helper()
	hc := &http.Client{Transport: failing{t}}
	gock.InterceptClient(hc)
	client := testkit.ClientAt(t, "https://api.test", append([]svc.Option{svc.WithHTTPClient(hc)}, opts...)...)
	t.Cleanup(func() {
		gock.RestoreClient(hc)
		gock.CleanUnmatchedRequest()
		gock.Off() // gock also replaces the default transport
	})
	return client
}

// failing is a transport that fails the test if a request reaches it.
type failing struct{ t *testing.T }

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	f.t.Errorf("%s %s went to the network", r.Method, r.URL.Path)
	return nil, errors.New("no network")
}

// Mocks are used in order, also by retries. A request that matches no mock is an error
// and does not reach the network.
func TestGock_B46(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := gocked(t)
		gock.New("https://api.test").Get("^/v1/inference-service/svc-1$").MatchHeader("Authorization", "^Bearer "+testkit.Token+"$").
			Reply(503).SetHeader("Retry-After", "2").JSON(map[string]string{"message": "busy"})
		gock.New("https://api.test").Get("^/v1/inference-service/svc-1$").Reply(200).BodyString(testkit.ServiceJSON)
		gock.New("https://api.test").Put("^/v1/inference-service/svc-1$").JSON(map[string]any{"resource_metadata": map[string]string{"target_instance_number": "2"}}).
			Reply(200).BodyString(testkit.ServiceJSON)
		start := time.Now()
		require.NoError(t, testkit.OpGet.Do(t.Context(), client))
		require.GreaterOrEqual(t, time.Since(start), 2*time.Second)
		require.NoError(t, testkit.OpUpdate.Do(t.Context(), client))
		require.True(t, gock.IsDone(), "mocks left over")
		require.False(t, gock.HasUnmatchedRequest())

		err := testkit.OpDelete.Do(t.Context(), client)
		require.ErrorIs(t, err, gock.ErrCannotMatch)
		require.True(t, gock.HasUnmatchedRequest())
	})
	t.Run("create", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := gocked(t)
			gock.New("https://api.test").Post("^/v1/inference-service$").Times(2).Reply(502).BodyString("<html>")
			require.ErrorIs(t, testkit.OpCreate.Do(t.Context(), client), svc.ErrOutcomeUnknown)
			require.True(t, gock.IsPending(), "the second mock was not asked for")
		})
	})
}

// After RestoreClient the client uses its transport normally.
func TestGockTakenOff_B46(t *testing.T) {
	srv := httptest.NewServer(testkit.JSONHandler(200, testkit.ServiceJSON))
	defer srv.Close()
	hc := new(http.Client)
	gock.InterceptClient(hc)
	client := testkit.ClientAt(t, srv.URL, svc.WithHTTPClient(hc))
	gock.RestoreClient(hc)
	gock.Off()
	require.NoError(t, testkit.OpGet.Do(t.Context(), client))
}

// Transports of tests leave fields empty that net/http would set.
func TestSparseTransport_B46(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			resp *http.Response
			op   testkit.Operation
			want error
		}{
			"no body":         {&http.Response{StatusCode: 204}, testkit.OpDelete, nil},
			"no body, 404":    {&http.Response{StatusCode: 404}, testkit.OpGet, svc.ErrNotFound},
			"no body, 503":    {&http.Response{StatusCode: 503}, testkit.OpGet, svc.ErrServer},
			"no body, create": {&http.Response{StatusCode: 201}, testkit.OpCreate, svc.ErrOutcomeUnknown},
			"no length":       {&http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(testkit.ServiceJSON))}, testkit.OpGet, nil},
			"nothing":         {nil, testkit.OpCreate, svc.ErrOutcomeUnknown},
		} {
			rt := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				if r.Body != nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				return tt.resp, nil
			})
			var resp svc.Response
			require.ErrorIs(t, tt.op.Do(t.Context(), testkit.ClientOn(t, rt), svc.WithResponse(&resp)), tt.want, name)
			if tt.resp != nil {
				require.Equal(t, tt.resp.StatusCode, resp.StatusCode)
			}
		}
	})
}

// Clients in parallel tests do not affect each other, even if one of the servers is
// closed.
func TestParallel_B46(t *testing.T) {
	var ended atomic.Int32
	t.Run("all", func(t *testing.T) {
		for range 20 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				first, second := httptest.NewServer(testkit.JSONHandler(200, testkit.ServiceJSON)), httptest.NewServer(testkit.JSONHandler(200, testkit.ServiceJSON))
				defer second.Close()
				one, two := testkit.ClientAt(t, first.URL), testkit.ClientAt(t, second.URL)
				require.NoError(t, testkit.OpGet.Do(t.Context(), one))
				require.NoError(t, testkit.OpGet.Do(t.Context(), two))
				first.Close()
				one.CloseIdleConnections()
				for range 5 {
					require.NoError(t, testkit.OpGet.Do(t.Context(), two, svc.WithMaxAttempts(1)))
				}
				ended.Add(1)
			})
		}
	})
	require.EqualValues(t, 20, ended.Load())
}
