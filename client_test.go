package svc_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/ledger"
)

// The ledger compares base URLs as text. So NewClient turns every spelling of a base URL
// into the same text.
func TestSpellingsOfABaseURL(t *testing.T) {
	for given, want := range map[string]string{
		"HTTPS://Host.Test:443/Api/": "https://host.test/Api", "http://LocalHost:80": "http://localhost", "https://h:80": "https://h:80", "https://[::1]:443": "https://[::1]",
	} {
		client := testkit.ClientAt(t, given, svc.WithLedger(ledger.Memory()), svc.WithHTTPClient(&http.Client{Transport: testkit.Play(t, testkit.OpCreate.OK)}))
		require.NoError(t, testkit.OpCreate.Do(t.Context(), client))
		entries, err := client.Ledger.Entries(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, entries[0].BaseURL)
	}
}

func TestBaseURL_B43(t *testing.T) {
	for given, want := range map[string]string{ // want "": NewClient refuses the URL
		"https://h":                     "/v1/inference-service/svc-1",
		"https://h/":                    "/v1/inference-service/svc-1",
		"https://h//":                   "/v1/inference-service/svc-1",
		"https://h/api/svc":             "/api/svc/v1/inference-service/svc-1",
		"https://h/api/svc/":            "/api/svc/v1/inference-service/svc-1",
		"  https://h/api \n":            "/api/v1/inference-service/svc-1",
		"HTTPS://H/api":                 "/api/v1/inference-service/svc-1",
		"https://h:8443/api":            "/api/v1/inference-service/svc-1",
		"https://h/a%2Fb/c%20d":         "/a%2Fb/c%20d/v1/inference-service/svc-1",
		"https://[::1]:8443/api":        "/api/v1/inference-service/svc-1",
		"http://[::1]:8080/x":           "/x/v1/inference-service/svc-1",
		"https://h/é":                   "/%C3%A9/v1/inference-service/svc-1",
		"":                              "",
		"   ":                           "",
		"h":                             "",
		"h:8080":                        "",
		"/api":                          "",
		"//h/api":                       "",
		"https:/h":                      "",
		"https://":                      "",
		"https://:8080":                 "",
		"https:h":                       "",
		"ftp://h":                       "",
		"file:///etc":                   "",
		"https://h/p?q=1":               "",
		"https://h/p?":                  "",
		"https://h/p#f":                 "",
		"https://h/p#":                  "",
		"https://user:pw@h":             "",
		"https://user@h":                "",
		"https://@h":                    "",
		"https://h/a//b":                "",
		"https://h/a/../b":              "",
		"https://h/a/%2e%2e/b":          "",
		"https://h/./b":                 "",
		"https://h/a%zz":                "",
		"https://h\x00":                 "",
		"https://h /a":                  "",
		"https://h:port":                "",
		testkit.Token:                   "",
		"https://h/?t=" + testkit.Token: "",
	} {
		t.Run(given, func(t *testing.T) {
			s := testkit.Play(t)
			client, err := svc.NewClient(given, svc.WithToken(testkit.Token), svc.WithHTTPClient(&http.Client{Transport: s}))
			if want == "" {
				require.Error(t, err)
				require.Nil(t, client)
				require.NotContains(t, err.Error(), testkit.Token)
				require.NotContains(t, err.Error(), "pw")
				return
			}
			require.NoError(t, err)
			s.Replies = []testkit.Reply{testkit.OpGet.OK}
			require.NoError(t, testkit.OpGet.Do(t.Context(), client))
			require.Equal(t, want, s.Seen()[0].Path)
		})
	}
}

func TestPlainHTTP_B44(t *testing.T) {
	for given, allowed := range map[string]bool{
		"http://127.0.0.1:8080":        true,
		"http://127.8.9.10":            true,
		"http://localhost:8080":        true,
		"http://LOCALHOST":             true,
		"http://[::1]":                 true,
		"http://[::ffff:127.0.0.1]":    true,
		"http://example.invalid":       false,
		"http://10.0.0.1":              false,
		"http://0.0.0.0":               false,
		"http://[::]":                  false,
		"http://[fe80::1]":             false,
		"http://localhost.example.com": false,
		"http://127.0.0.1.example.com": false,
		"http://127.1":                 false,
		"http://2130706433":            false,
		"HTTP://example.invalid":       false,
		"https://example.invalid":      true,
	} {
		client, err := svc.NewClient(given, svc.WithToken(testkit.Token))
		require.Equal(t, allowed, err == nil, "%s: %v", given, err)
		if err != nil {
			require.Nil(t, client)
			require.NotContains(t, err.Error(), testkit.Token)
			require.ErrorContains(t, err, "WithInsecureHTTP")
		}
		_, err = svc.NewClient(given, svc.WithInsecureHTTP(), svc.WithToken(testkit.Token))
		require.NoError(t, err)
	}
}

func TestTokens_B45(t *testing.T) {
	for given, want := range map[string]string{ // want "": NewClient refuses the token
		"t":                "t",
		"t\n":              "t",
		" t ":              "t",
		"\tt\r\n":          "t",
		"Bearer t":         "t",
		"bearer  t\n":      "t",
		"a.b-c_d~e+f/g=":   "a.b-c_d~e+f/g=",
		"Bearer":           "",
		"Bearer ":          "",
		"":                 "",
		" \n":              "",
		"a b":              "",
		"a\nb":             "",
		"a\r\nX-Evil: 1":   "",
		"a\x00b":           "",
		"a\x7fb":           "",
		"hush\u200bhush":   "",
		"hush\u00e9":       "",
		"\ufeffhush":       "",
		"Bearer hush hush": "",
	} {
		s := testkit.Play(t)
		client, err := svc.NewClient("https://h", svc.WithToken(given), svc.WithHTTPClient(&http.Client{Transport: s}))
		t.Setenv("SVC_BASE_URL", "https://h")
		t.Setenv("SVC_API_TOKEN", strings.ReplaceAll(given, "\x00", "\x01"))
		_, envErr := svc.NewClientFromEnv()
		rotating := testkit.ClientOn(t, s, svc.WithTokenSource(func(context.Context) (string, error) { return given, nil }))
		if want == "" {
			require.Error(t, err, "%q", given)
			require.Error(t, envErr, "%q", given)
			callErr := testkit.OpGet.Do(t.Context(), rotating)
			require.Error(t, callErr, "%q", given)
			for _, err := range []error{err, envErr, callErr} {
				require.NotContains(t, fmt.Sprintf("%+v %q", err, err), "hush")
			}
			if strings.Trim(given, " \n") == "" {
				require.ErrorIs(t, err, svc.ErrNoToken)
			}
			require.Empty(t, s.Seen())
			continue
		}
		require.NoError(t, err)
		require.NoError(t, envErr)
		s.Replies = []testkit.Reply{testkit.OpGet.OK, testkit.OpGet.OK}
		require.NoError(t, testkit.OpGet.Do(t.Context(), client))
		require.NoError(t, testkit.OpGet.Do(t.Context(), rotating))
		for _, r := range s.Seen() {
			require.Equal(t, []string{"Bearer " + want}, r.Header["Authorization"])
		}
	}
}

func TestNewClient_RefusesBadOptions(t *testing.T) {
	for name, opt := range map[string]svc.Option{
		"negative timeout":        svc.WithTimeout(-1),
		"negative attempts":       svc.WithRetry(svc.RetryPolicy{MaxAttempts: -1}),
		"negative shortest delay": svc.WithRetry(svc.RetryPolicy{MinDelay: -1}),
		"negative longest delay":  svc.WithRetry(svc.RetryPolicy{MaxDelay: -1}),
		"longest below shortest":  svc.WithRetry(svc.RetryPolicy{MinDelay: 2, MaxDelay: 1}),
		"no token source":         svc.WithTokenSource(nil),
		"user agent of two lines": svc.WithUserAgent("a\r\nX-Evil: 1"),
		"inference URL":           svc.WithInferenceURL("nowhere"),
		"empty inference URL":     svc.WithInferenceURL(""),
	} {
		t.Run(name, func(t *testing.T) {
			client, err := svc.NewClient("https://h", svc.WithToken(testkit.Token), opt)
			require.Error(t, err)
			require.Nil(t, client)
		})
	}
	_, err := svc.NewClient("https://h", nil, svc.WithToken(testkit.Token), nil, svc.WithHTTPClient(nil), svc.WithLogger(nil),
		svc.WithAttemptHook(nil), svc.WithRateLimiter(nil), svc.WithRetry(svc.RetryPolicy{}), svc.WithTimeout(0), svc.WithUserAgent(""))
	require.NoError(t, err)
}

// A client without a token sends no request that needs a token.
func TestNoToken(t *testing.T) {
	s := testkit.Play(t)
	client, err := svc.NewClient("https://h", svc.WithHTTPClient(&http.Client{Transport: s}))
	require.NoError(t, err)
	for _, op := range testkit.Operations {
		err := op.Do(t.Context(), client)
		require.ErrorIs(t, err, svc.ErrNoToken)
		require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
		require.Zero(t, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)
	}
	require.ErrorIs(t, client.Do(t.Context(), "GET", "/v2/x", nil, nil), svc.ErrNoToken)
}

func TestNewClientFromEnv(t *testing.T) {
	const other = "another-token-SECRET"
	for name, tt := range map[string]struct {
		env  map[string]string
		opts []svc.Option
		want string // the token that is sent; "" if NewClientFromEnv fails
	}{
		"all set":                   {map[string]string{"SVC_BASE_URL": "https://h/p", "SVC_API_TOKEN": testkit.Token, "SVC_INFERENCE_URL": "https://i"}, nil, testkit.Token},
		"no inference URL":          {map[string]string{"SVC_BASE_URL": "https://h/p", "SVC_API_TOKEN": testkit.Token}, nil, testkit.Token},
		"token of an option":        {map[string]string{"SVC_BASE_URL": "https://h/p"}, []svc.Option{svc.WithToken(other)}, other},
		"option wins":               {map[string]string{"SVC_BASE_URL": "https://h/p", "SVC_API_TOKEN": testkit.Token}, []svc.Option{svc.WithToken(other)}, other},
		"option wins over nonsense": {map[string]string{"SVC_BASE_URL": "https://h/p", "SVC_API_TOKEN": "a\nb", "SVC_INFERENCE_URL": "?"}, []svc.Option{svc.WithToken(other), svc.WithInferenceURL("https://i")}, other},
		"option is wrong":           {map[string]string{"SVC_BASE_URL": "https://h/p", "SVC_API_TOKEN": testkit.Token}, []svc.Option{svc.WithToken("")}, ""},
		"no token":                  {map[string]string{"SVC_BASE_URL": "https://h/p"}, nil, ""},
		"blank token":               {map[string]string{"SVC_BASE_URL": "https://h/p", "SVC_API_TOKEN": " \n"}, nil, ""},
		"no base URL":               {map[string]string{"SVC_API_TOKEN": testkit.Token}, nil, ""},
		"blank base URL":            {map[string]string{"SVC_BASE_URL": " ", "SVC_API_TOKEN": testkit.Token}, nil, ""},
		"bad base URL":              {map[string]string{"SVC_BASE_URL": "h", "SVC_API_TOKEN": testkit.Token}, nil, ""},
		"mixed up":                  {map[string]string{"SVC_BASE_URL": testkit.Token, "SVC_API_TOKEN": "https://h"}, nil, ""},
		"bad inference URL":         {map[string]string{"SVC_BASE_URL": "https://h/p", "SVC_API_TOKEN": testkit.Token, "SVC_INFERENCE_URL": "i"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, key := range []string{"SVC_BASE_URL", "SVC_API_TOKEN", "SVC_INFERENCE_URL"} {
				if value, ok := tt.env[key]; ok {
					t.Setenv(key, value)
				} else {
					t.Setenv(key, "") // Setenv restores the old value at the end of the test
					require.NoError(t, os.Unsetenv(key))
				}
			}
			s := testkit.Play(t)
			client, err := svc.NewClientFromEnv(append(tt.opts, svc.WithHTTPClient(&http.Client{Transport: s}))...)
			if tt.want == "" {
				require.Error(t, err)
				require.NotContains(t, err.Error(), testkit.Token)
				if name == "no token" || name == "blank token" {
					require.ErrorIs(t, err, svc.ErrNoToken)
					require.ErrorContains(t, err, "SVC_API_TOKEN")
				}
				return
			}
			require.NoError(t, err)
			s.Replies = []testkit.Reply{testkit.OpGet.OK}
			require.NoError(t, testkit.OpGet.Do(t.Context(), client))
			require.Equal(t, "/p"+testkit.OpGet.Path, s.Seen()[0].Path)
			require.Equal(t, "Bearer "+tt.want, s.Seen()[0].Header.Get("Authorization"))
			url, err := client.InferenceServices.URL("svc-1")
			require.Equal(t, name != "all set" && name != "option wins over nonsense", err != nil)
			if err == nil {
				require.Equal(t, "https://i/inference-api/v1/inference_service/svc-1", url)
			}
		})
	}
}

func TestUserAgent(t *testing.T) {
	sdk := fmt.Sprintf("svc-go/%s (%s; %s/%s)", svc.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for product, want := range map[string]string{"": sdk, "mytool/1.2": "mytool/1.2 " + sdk, "  mytool/1.2 ": "mytool/1.2 " + sdk} {
		s := testkit.Play(t, testkit.OpGet.OK)
		require.NoError(t, testkit.OpGet.Do(t.Context(), s.Client(svc.WithUserAgent(product))))
		require.Equal(t, []string{want}, s.Seen()[0].Header["User-Agent"])
	}
}

// Clients share no state, and they do not change http.DefaultClient, the default
// transport or the http.Client that they are given.
func TestClientsAreIndependent_B21(t *testing.T) {
	testkit.NoGoroutineLeft(t)
	globalClient, globalTransport := *http.DefaultClient, http.DefaultTransport
	globalSettings := fmt.Sprintf("%+v", http.DefaultTransport.(*http.Transport).TLSHandshakeTimeout)
	shared := &http.Client{Timeout: time.Hour}
	before := *shared
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			token, prefix := fmt.Sprintf("token-%d", i), fmt.Sprintf("/p%d", i)
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != "Bearer "+token || !strings.HasPrefix(r.URL.Path, prefix+"/v1/") {
					w.WriteHeader(400)
				}
				if i%2 == 1 {
					<-r.Context().Done() // this client's timeout is shorter
				}
				_, _ = w.Write([]byte(testkit.ServiceJSON))
			}))
			defer srv.Close()
			opts := []svc.Option{svc.WithToken(token), svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}), svc.WithHTTPClient(shared)}
			if i%2 == 1 {
				opts = append(opts, svc.WithTimeout(time.Duration(i)*time.Millisecond))
			}
			client, err := svc.NewClient(srv.URL+prefix, opts...)
			if !errorFree(t, err) {
				return
			}
			defer client.CloseIdleConnections()
			for range 3 {
				err := testkit.OpGet.Do(t.Context(), client)
				if i%2 == 0 {
					errorFree(t, err)
				} else if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("within %dms", i)) {
					t.Errorf("client %d: want its own time limit: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, before, *shared)
	require.Equal(t, globalClient, *http.DefaultClient)
	require.Same(t, globalTransport, http.DefaultTransport)
	require.Equal(t, globalSettings, fmt.Sprintf("%+v", http.DefaultTransport.(*http.Transport).TLSHandshakeTimeout))
}

func errorFree(t *testing.T, err error) bool {
	if err != nil {
		t.Errorf("unexpected: %v", err)
	}
	return err == nil
}
