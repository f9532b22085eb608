package wire_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// refusingProxy returns a proxy that gives every CONNECT the same response.
func refusingProxy(t *testing.T, line string) (address *url.URL, asked *atomic.Int32) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); conns.Wait() })
	asked = new(atomic.Int32)
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil && r.Method == http.MethodConnect {
					asked.Add(1)
					_, _ = io.WriteString(c, "HTTP/1.1 "+line+"\r\nContent-Length: 0\r\n\r\n")
				}
			})
		}
	})
	return &url.URL{Scheme: "http", Host: l.Addr().String(), User: url.UserPassword("me", "hush")}, asked
}

// If a proxy refuses to connect, the error names the proxy. Only 502, 503 and 504 are
// retried.
func TestProxyRefusesToConnect_C02(t *testing.T) {
	for line, passes := range map[string]bool{
		"407 Proxy Authentication Required": false, "403 Forbidden": false, "404 Not Found": false, "451 Unavailable For Legal Reasons": false,
		"502 Bad Gateway": true, "503 Service Unavailable": true, "504 Gateway Timeout": true,
	} {
		t.Run(line, func(t *testing.T) {
			proxy, asked := refusingProxy(t, line)
			tr := &http.Transport{Proxy: http.ProxyURL(proxy)}
			client := testkit.ClientAt(t, "https://svc.test", svc.WithHTTPClient(&http.Client{Transport: tr}), testkit.Tries(3, time.Millisecond))
			want := 1
			if passes {
				want = 3
			}
			for _, op := range testkit.Operations {
				asked.Store(0)
				err := op.Do(t.Context(), client)
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, want, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)
				require.EqualValues(t, want, asked.Load())
				require.ErrorContains(t, err, "the proxy refused the connection: "+line)
				require.NotContains(t, err.Error(), "hush")
			}
			if passes {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := client.InferenceServices.WaitUntilAvailable(ctx, "svc-1", nil)
			require.ErrorContains(t, err, "the proxy refused the connection: "+line)
			require.NoError(t, ctx.Err(), "the wait ends at once")
		})
	}
}
