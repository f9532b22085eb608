package svc_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

func redirect(code int, to string) reply {
	return reply{status: code, header: map[string]string{"Location": to}}
}

// A change is never turned into a read, and never reported as done by one.
func TestB10_RedirectedChange(t *testing.T) {
	for _, op := range operations[1:] {
		for _, code := range []int{301, 302, 303, 307, 308} {
			t.Run(fmt.Sprintf("%s/%d", op.name, code), func(t *testing.T) {
				var elsewhere, here atomic.Int32
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/elsewhere" {
						elsewhere.Add(1)
						_, _ = w.Write([]byte(serviceJSON))
						return
					}
					here.Add(1)
					http.Redirect(w, r, "/v1/elsewhere?sig=hush", code)
				}))
				defer srv.Close()
				err := op.do(t.Context(), clientAt(t, srv.URL, tries(4, time.Hour)))
				require.ErrorIs(t, err, svc.ErrRedirect)
				require.Equal(t, code, errorAs[*svc.Error](t, err).StatusCode)
				require.Equal(t, op.method == "POST" && code <= 303, errors.Is(err, svc.ErrOutcomeUnknown))
				require.ErrorContains(t, err, http.StatusText(code)+": the redirect is not followed")
				require.NotContains(t, fmt.Sprintf("%+v", err), "hush")
				require.EqualValues(t, 1, here.Load())
				require.Zero(t, elsewhere.Load())
			})
		}
	}
}

// The token goes to its own origin only, and a redirect that leaves it is an error.
func TestB11_TokenStaysAtHome(t *testing.T) {
	var leaked, visits atomic.Int32
	trap := func(w http.ResponseWriter, r *http.Request) {
		visits.Add(1)
		for _, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), testToken) {
				leaked.Add(1)
			}
		}
		_, _ = w.Write([]byte(serviceJSON))
	}
	other := httptest.NewServer(http.HandlerFunc(trap))
	defer other.Close()
	_, otherPort, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	for _, tls := range []bool{false, true} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			for name, to := range map[string]func(own *url.URL) string{
				"another host": func(*url.URL) string { return "http://localhost:" + otherPort + "/v1/inference-service/svc-1" },
				"another port": func(*url.URL) string { return other.URL + "/v1/inference-service/svc-1" },
				"another name of this host": func(own *url.URL) string {
					return own.Scheme + "://localhost:" + own.Port() + "/v1/trap"
				},
				"no scheme": func(*url.URL) string { return "//localhost:" + otherPort + "/v1/x" },
				"with user": func(*url.URL) string { return "http://me:pw@127.0.0.1:" + otherPort + "/v1/x" },
			} {
				t.Run(fmt.Sprintf("tls %v/%d/%s", tls, code, name), func(t *testing.T) {
					visits.Store(0)
					var own *url.URL
					handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.URL.Path == "/v1/trap" {
							trap(w, r)
							return
						}
						http.Redirect(w, r, to(own), code)
					})
					srv := httptest.NewUnstartedServer(handler)
					if tls {
						srv.StartTLS()
					} else {
						srv.Start()
					}
					defer srv.Close()
					own, _ = url.Parse(srv.URL)
					client := clientAt(t, srv.URL, svc.WithHTTPClient(srv.Client()))
					err := opGet.do(t.Context(), client)
					require.ErrorIs(t, err, svc.ErrRedirect)
					require.Zero(t, visits.Load())
					require.Zero(t, leaked.Load())
				})
			}
		}
	}
}

// A read goes on at the same origin, with the token, and tells nobody where it
// comes from.
func TestRedirectedRead(t *testing.T) {
	for name, tt := range map[string]struct {
		hops []reply
		want []string // the paths asked for after the first
		err  bool
	}{
		"relative":         {[]reply{redirect(302, "../moved?x=1")}, []string{"/v1/moved?x=1"}, false},
		"absolute":         {[]reply{redirect(301, "https://api.test/moved")}, []string{"/moved"}, false},
		"default port":     {[]reply{redirect(308, "https://api.test:443/moved")}, []string{"/moved"}, false},
		"case of the host": {[]reply{redirect(307, "https://API.test/moved")}, []string{"/moved"}, false},
		"see other":        {[]reply{redirect(303, "/moved")}, []string{"/moved"}, false},
		"escaped":          {[]reply{redirect(302, "/a%2Fb")}, []string{"/a%2Fb"}, false},
		"chain":            {[]reply{redirect(302, "/a"), redirect(307, "/b"), redirect(301, "/c")}, []string{"/a", "/b", "/c"}, false},
		"leaves later":     {[]reply{redirect(302, "/a"), redirect(302, "https://other.test/b")}, []string{"/a"}, true},
		"other port":       {[]reply{redirect(302, "https://api.test:8443/moved")}, nil, true},
		"down to http":     {[]reply{redirect(302, "http://api.test/moved")}, nil, true},
		"other scheme":     {[]reply{redirect(302, "ftp://api.test/moved")}, nil, true},
		"nowhere":          {[]reply{{status: 302}}, nil, true},
		"not a URL":        {[]reply{redirect(302, "http://%zz:x/?sig=hush")}, nil, true},
		"300":              {[]reply{redirect(300, "/moved")}, nil, true},
		"304":              {[]reply{redirect(304, "/moved")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replies := tt.hops
				if !tt.err {
					replies = append(replies, opGet.ok)
				}
				s := play(t, replies...)
				var resp svc.Response
				err := opGet.do(t.Context(), s.client(), svc.WithHeader("X-Mine", "1"), svc.WithResponse(&resp))
				require.Equal(t, 1, resp.Attempts)
				var paths []string
				for _, r := range s.seen() {
					paths = append(paths, r.Path)
					require.Equal(t, "GET", r.Method)
					require.Equal(t, []string{"Bearer " + testToken}, r.Header["Authorization"])
					require.Equal(t, []string{"1"}, r.Header["X-Mine"])
					require.NotContains(t, r.Header, "Referer")
				}
				require.Equal(t, append([]string{opGet.path}, tt.want...), paths)
				if tt.err {
					require.ErrorIs(t, err, svc.ErrRedirect)
					require.NotContains(t, err.Error(), "hush")
					return
				}
				require.NoError(t, err)
			})
		})
	}
}

// A redirect that fails on its way is retried from the start.
func TestRedirectThenFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, redirect(302, "/moved"), status(503), redirect(302, "/moved"), lost, redirect(302, "/moved"), opGet.ok)
		require.NoError(t, opGet.do(t.Context(), s.client()))
		var paths []string
		for _, r := range s.seen() {
			paths = append(paths, r.Path)
		}
		require.Equal(t, []string{opGet.path, "/moved", opGet.path, "/moved", opGet.path, "/moved"}, paths)
	})
}

// HEAD and the rest of what Do can send are not redirected.
func TestRedirectedDo(t *testing.T) {
	for _, method := range []string{"HEAD", "OPTIONS", "PATCH"} {
		s := play(t, redirect(307, "/moved"))
		require.ErrorIs(t, s.client().Do(t.Context(), method, "/v2/x", nil, nil), svc.ErrRedirect)
	}
	s := play(t, redirect(307, "/moved"), reply{status: 204})
	require.NoError(t, s.client().Do(t.Context(), "GET", "/v2/x", nil, nil))
}

// An endless redirect is one attempt of at most ten hops.
func TestB09_EndlessRedirect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := loop(t, redirect(302, "/round"))
		start := time.Now()
		err := opGet.do(context.Background(), s.client(tries(4, 2*time.Second)))
		require.ErrorIs(t, err, svc.ErrRedirect)
		require.Equal(t, 302, errorAs[*svc.Error](t, err).StatusCode)
		require.Equal(t, 1, errorAs[*svc.Error](t, err).Attempts)
		require.Len(t, s.seen(), 11)
		require.Zero(t, time.Since(start))
	})
}
