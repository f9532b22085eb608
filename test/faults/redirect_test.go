package faults_test

import (
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
	"example.com/svc/internal/testkit"
)

// A redirect never turns a change into a GET, and the response to such a GET never counts
// as success of the change.
func TestRedirectedChange_B10(t *testing.T) {
	for _, op := range testkit.Operations[1:] {
		for _, code := range []int{301, 302, 303, 307, 308} {
			t.Run(fmt.Sprintf("%s/%d", op.Name, code), func(t *testing.T) {
				var elsewhere, here atomic.Int32
				srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/v1/elsewhere" {
						elsewhere.Add(1)
						_, _ = w.Write([]byte(testkit.ServiceJSON))
						return
					}
					here.Add(1)
					http.Redirect(w, r, "/v1/elsewhere?sig=hush", code)
				}))
				defer srv.Close()
				err := op.Do(t.Context(), testkit.ClientAt(t, srv.URL, testkit.Tries(4, time.Hour)))
				testkit.RequireRedirect(t, err)
				require.Equal(t, code, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
				require.Equal(t, op.Method == "POST" && code <= 303, errors.Is(err, svc.ErrOutcomeUnknown))
				require.ErrorContains(t, err, http.StatusText(code)+": the redirect is not followed")
				require.NotContains(t, fmt.Sprintf("%+v", err), "hush")
				require.EqualValues(t, 1, here.Load())
				require.Zero(t, elsewhere.Load())
			})
		}
	}
}

func TestNotModifiedIsNoRedirect(t *testing.T) {
	err := testkit.OpGet.Do(t.Context(), testkit.Play(t, testkit.RedirectTo(304, "/moved")).Client())
	require.EqualError(t, err, "svc: GET /v1/inference-service/{service_id}: 304 Not Modified (id svc-1)")
}

// The token is sent only to the origin of the base URL. A redirect to another origin is
// an error.
func TestTokenStaysAtHome_B11(t *testing.T) {
	var leaked, visits atomic.Int32
	trap := func(w http.ResponseWriter, r *http.Request) {
		visits.Add(1)
		for _, values := range r.Header {
			if strings.Contains(strings.Join(values, " "), testkit.Token) {
				leaked.Add(1)
			}
		}
		_, _ = w.Write([]byte(testkit.ServiceJSON))
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
					client := testkit.ClientAt(t, srv.URL, svc.WithHTTPClient(srv.Client()))
					err := testkit.OpGet.Do(t.Context(), client)
					testkit.RequireRedirect(t, err)
					require.Zero(t, visits.Load())
					require.Zero(t, leaked.Load())
				})
			}
		}
	}
}

// A redirected read within the same origin carries the token, and no Referer header.
func TestRedirectedRead(t *testing.T) {
	for name, tt := range map[string]struct {
		hops []testkit.Reply
		want []string // the paths requested after the first one
		err  bool
	}{
		"relative":         {[]testkit.Reply{testkit.RedirectTo(302, "../moved?x=1")}, []string{"/v1/moved?x=1"}, false},
		"absolute":         {[]testkit.Reply{testkit.RedirectTo(301, "https://api.test/moved")}, []string{"/moved"}, false},
		"default port":     {[]testkit.Reply{testkit.RedirectTo(308, "https://api.test:443/moved")}, []string{"/moved"}, false},
		"case of the host": {[]testkit.Reply{testkit.RedirectTo(307, "https://API.test/moved")}, []string{"/moved"}, false},
		"see other":        {[]testkit.Reply{testkit.RedirectTo(303, "/moved")}, []string{"/moved"}, false},
		"escaped":          {[]testkit.Reply{testkit.RedirectTo(302, "/a%2Fb")}, []string{"/a%2Fb"}, false},
		"chain":            {[]testkit.Reply{testkit.RedirectTo(302, "/a"), testkit.RedirectTo(307, "/b"), testkit.RedirectTo(301, "/c")}, []string{"/a", "/b", "/c"}, false},
		"leaves later":     {[]testkit.Reply{testkit.RedirectTo(302, "/a"), testkit.RedirectTo(302, "https://other.test/b")}, []string{"/a"}, true},
		"other port":       {[]testkit.Reply{testkit.RedirectTo(302, "https://api.test:8443/moved")}, nil, true},
		"down to http":     {[]testkit.Reply{testkit.RedirectTo(302, "http://api.test/moved")}, nil, true},
		"other scheme":     {[]testkit.Reply{testkit.RedirectTo(302, "ftp://api.test/moved")}, nil, true},
		"nowhere":          {[]testkit.Reply{{Status: 302}}, nil, true},
		"not a URL":        {[]testkit.Reply{testkit.RedirectTo(302, "http://%zz:x/?sig=hush")}, nil, true},
		"300":              {[]testkit.Reply{testkit.RedirectTo(300, "/moved")}, nil, true},
		"305":              {[]testkit.Reply{testkit.RedirectTo(305, "/moved")}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replies := tt.hops
				if !tt.err {
					replies = append(replies, testkit.OpGet.OK)
				}
				s := testkit.Play(t, replies...)
				var resp svc.Response
				err := testkit.OpGet.Do(t.Context(), s.Client(), svc.WithHeader("X-Mine", "1"), svc.WithResponse(&resp))
				require.Equal(t, 1, resp.Attempts)
				var paths []string
				for _, r := range s.Seen() {
					paths = append(paths, r.Path)
					require.Equal(t, "GET", r.Method)
					require.Equal(t, []string{"Bearer " + testkit.Token}, r.Header["Authorization"])
					require.Equal(t, []string{"1"}, r.Header["X-Mine"])
					require.NotContains(t, r.Header, "Referer")
				}
				require.Equal(t, append([]string{testkit.OpGet.Path}, tt.want...), paths)
				if tt.err {
					testkit.RequireRedirect(t, err)
					require.NotContains(t, err.Error(), "hush")
					return
				}
				require.NoError(t, err)
			})
		})
	}
}

// Do does not follow redirects of HEAD, OPTIONS and PATCH.
func TestRedirectedDo(t *testing.T) {
	for _, method := range []string{"HEAD", "OPTIONS", "PATCH"} {
		s := testkit.Play(t, testkit.RedirectTo(307, "/moved"))
		testkit.RequireRedirect(t, s.Client().Do(t.Context(), method, "/v2/x", nil, nil))
	}
	s := testkit.Play(t, testkit.RedirectTo(307, "/moved"), testkit.Reply{Status: 204})
	require.NoError(t, s.Client().Do(t.Context(), "GET", "/v2/x", nil, nil))
}
