package svctest_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// A client may compare its clock with the Date header of a response. So every response
// has this header, whether the service, the storage or a fault sends the response.
func TestEveryResponseHasADate(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		id := srv.AddFile("a.txt", "fine-tune", []byte("contents"))
		link := fileLink(t, srv, id)
		gateway := svctest.GatewayErrorAfterEffect()
		srv.Fault("POST", svctest.RouteFiles, gateway, svctest.Fault{Status: http.StatusNoContent})
		responses := map[string]reply{
			"success":       send(t, srv, "GET", "/v1/files", ""),
			"failure":       send(t, srv, "GET", "/v1/files/file-9", ""),
			"unknown path":  send(t, srv, "GET", "/v2", ""),
			"fault":         send(t, srv, "POST", "/v1/files", `{}`),
			"empty fault":   send(t, srv, "POST", "/v1/files", `{}`),
			"download":      storage(t, srv, "GET", link, ""),
			"head":          storage(t, srv, "HEAD", link, ""),
			"storage error": storage(t, srv, "GET", link+"x", ""),
			"inference":     send(t, srv, "GET", "/inference-api/v1/inference_service/svc-9", ""),
		}
		for name, r := range responses {
			date, err := http.ParseTime(r.Header.Get("Date"))
			require.NoError(t, err, name)
			require.WithinDuration(t, time.Now(), date, time.Minute, name)
		}
	}, svctest.WithDeployTime(0))
}

func TestDateIsByTheClockOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory()
		time.Sleep(26*time.Hour + 3*time.Second) // the bubble's clock starts at midnight, 2000-01-01
		srv.Fault("GET", svctest.RouteFiles, svctest.Slow(time.Hour))
		require.Equal(t, "Sun, 02 Jan 2000 03:00:03 GMT", send(t, srv, "GET", "/v1/files", "").Header.Get("Date"))
	})
}

func TestFaultSetsOrLeavesOutTheDate(t *testing.T) {
	const date = "Mon, 02 Jan 2006 15:04:05 GMT"
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.Fault("GET", svctest.RouteFiles,
			svctest.Fault{Header: http.Header{"Date": {date}}}, svctest.Fault{Header: http.Header{"Date": nil}})
		require.Equal(t, []string{date}, send(t, srv, "GET", "/v1/files", "").Header["Date"])
		require.NotContains(t, send(t, srv, "GET", "/v1/files", "").Header, "Date")
	})
}
