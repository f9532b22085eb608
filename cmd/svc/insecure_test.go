package main

import (
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// SVC_INSECURE_HTTP allows plain http as --insecure-http does, which wins, to scripts too. It has four values.
func TestPlainHTTPIsAllowedByTheEnvironment(t *testing.T) {
	t.Parallel()
	viaProxy := func() *session {
		s := scriptSession(t)
		to, err := url.Parse(s.srv.URL())
		require.NoError(t, err)
		proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }})
		t.Cleanup(proxy.Close)
		s.env["HTTP_PROXY"], s.env["SVC_BASE_URL"] = proxy.URL, "http://service.example"
		return s
	}
	for value, allowed := range map[string]bool{"": false, "0": false, "false": false, "1": true, "true": true} {
		s := viaProxy()
		s.env["SVC_INSECURE_HTTP"] = value
		code, failed := exitOK, exitOK
		if !allowed {
			code, failed = exitUsage, exitFailed
		}
		s.must(code, "flavors")
		s.must(failed, "doctor")
		s.must(exitOK, "flavors", "--insecure-http")
		s.must(exitUsage, "flavors", "--insecure-http=false")
		e := s.script("rollout.sh", "app", "app:1", "app:0")
		require.Equal(t, code, e.code, e.stderr)
	}
	s := newSession(t)
	s.env["SVC_INSECURE_HTTP"] = "yes"
	require.Contains(t, s.must(exitUsage, "flavors").stderr, "SVC_INSECURE_HTTP must be 1, true, 0 or false")
	s.must(exitOK, "flavors", "--insecure-http=false")
	e := s.script("rollout.sh", "app", "app:1", "app:0")
	require.Equal(t, exitUsage, e.code, e.stderr)
	require.Contains(t, s.must(exitFailed, "doctor").stdout, "set SVC_INSECURE_HTTP to 1, true, 0 or false")
	s.env["SVC_INSECURE_HTTP"], s.env["SVC_BASE_URL"] = "", "http://service.example"
	for _, args := range [][]string{{"doctor"}, {"flavors"}} {
		e := s.run(args...)
		require.Contains(t, e.stdout+e.stderr, "--insecure-http")
		require.Contains(t, e.stdout+e.stderr, "SVC_INSECURE_HTTP=true")
	}
}
