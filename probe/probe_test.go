package probe_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/probe"
	"example.com/svc/svctest"
)

const key = "sk-probe-7d1f0c-KEY"

// reply is one response of an application. The zero Status stands for 200.
type reply struct {
	status int
	body   string
}

// wait waits for an endpoint whose application gives these responses, the last of them
// repeatedly, for at most ten minutes of virtual time. It returns how many were read.
func wait(t *testing.T, newProbe newProbe, replies ...reply) (n int, err error) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithInferenceHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			r := replies[min(n, len(replies)-1)]
			n++
			if r.status != 0 {
				w.WriteHeader(r.status)
			}
			_, _ = io.WriteString(w, r.body)
		})))
		defer srv.Close()
		_, err = srv.Client().InferenceServices.Deploy(testkit.Within(t, 10*time.Minute), testkit.Demo, &svc.DeployOptions{
			WaitOptions: svc.WaitOptions{Probe: newProbe(srv.HTTPClient())}, DeleteOnFailure: true,
		})
	})
	return n, err
}

// newProbe makes a probe that sends its requests with a client.
type newProbe func(*http.Client) func(context.Context, string) error

func get(path string, opts ...probe.Option) newProbe {
	return func(hc *http.Client) func(context.Context, string) error {
		return probe.HTTP(path, append(opts, probe.WithHTTPClient(hc))...)
	}
}

func model(name string, opts ...probe.Option) newProbe {
	return func(hc *http.Client) func(context.Context, string) error {
		return probe.Model(name, append(opts, probe.WithHTTPClient(hc))...)
	}
}

func list(ids ...string) string {
	var data []string
	for _, id := range ids {
		data = append(data, fmt.Sprintf(`{"id":%q,"object":"model","created":0,"owned_by":"x"}`, id))
	}
	return `{"object":"list","data":[` + strings.Join(data, ",") + `]}`
}

// TestProbeDecidesWhatTheWaitDoes checks each kind of response: success, "not yet", and the end
// of the wait.
func TestProbeDecidesWhatTheWaitDoes(t *testing.T) {
	const goesOn = -1 // the wait continues until ctx ends
	for name, tt := range map[string]struct {
		probe   newProbe
		replies []reply
		polls   int
		text    string // empty: success
	}{
		"2xx":                           {get("/health"), []reply{{status: 204}}, 1, ""},
		"503, then 2xx":                 {get("health"), []reply{{status: 503}, {status: 503}, {}}, 3, ""},
		"404 of a router":               {get("/health"), []reply{{status: 404, body: "no route\nhere"}}, goesOn, "GET /health: status 404: no route here"},
		"403":                           {get("/health"), []reply{{status: 403}}, goesOn, "GET /health: status 403: empty body"},
		"redirect without an address":   {get("/health"), []reply{{status: 304}}, goesOn, "a redirect that is not followed"},
		"401 three times":               {get("/health"), []reply{{status: 401}}, 3, "3 responses in a row have the status 401"},
		"401 twice":                     {get("/health"), []reply{{status: 401}, {status: 401}, {}}, 3, ""},
		"401, not in a row":             {model("m"), []reply{{status: 401}, {status: 401}, {status: 503}, {status: 401}, {status: 401}, {body: list("m")}}, 6, ""},
		"the model is listed":           {model("m"), []reply{{body: list("other", "m")}}, 1, ""},
		"the model comes late":          {model("m"), []reply{{status: 503}, {body: list()}, {body: "<html>starting</html>"}, {body: `{"data":[{"id":"m"`}, {body: list("m")}}, 5, ""},
		"another model":                 {model("m"), []reply{{body: list("M", "m:latest")}}, 1, `the application does not serve "m"; it serves 2 models: "M", "m:latest"`},
		"many other models":             {model("m"), []reply{{body: list("a", "b", "c", "d", "e", "f")}}, 1, `6 models: "a", "b", "c", "d", "e"`},
		"an empty list":                 {model("m"), []reply{{body: list()}}, goesOn, "the list has no models yet"},
		"no list":                       {model("m"), []reply{{body: `{"models":[]}`}}, goesOn, "not a list of models"},
		"401 to the list":               {model("m"), []reply{{status: 401}}, 3, "GET /v1/models: 3 responses in a row"},
		"a body without an end":         {model("m"), []reply{{body: strings.Repeat(" ", 2<<20) + list("m")}}, goesOn, "not a list of models"},
		"a model without a name":        {model(""), nil, 0, "the name of the model is empty"},
		"a header that cannot be sent":  {get("/health", probe.WithHeader("X-Key", key+"\r\n")), nil, 0, "the name or the value of a header cannot be sent"},
		"a header name that is invalid": {get("/health", probe.WithHeader(key+" x", "1")), nil, 0, "cannot be sent"},
		"the header Host":               {get("/health", probe.WithHeader("host", "x")), nil, 0, "the header Host cannot be set"},
		"a path that is invalid":        {get("/%zz?key=" + key), nil, 0, "the path or the URL of the endpoint is not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := wait(t, tt.probe, tt.replies...)
			if tt.text == "" {
				require.NoError(t, err)
				require.Equal(t, tt.polls, n)
				return
			}
			require.ErrorContains(t, err, tt.text)
			require.NotContains(t, err.Error(), key)
			require.NotContains(t, err.Error(), "\n")
			require.Equal(t, tt.polls == goesOn, errors.Is(err, context.DeadlineExceeded), "%v", err)
			if tt.polls == goesOn {
				require.Greater(t, n, 20)
			} else {
				require.Equal(t, tt.polls, n)
			}
		})
	}
}

// TestProbeServesManyWaits checks that the 401s of one endpoint do not end the wait for another.
func TestProbeServesManyWaits(t *testing.T) {
	count := map[string]int{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count[r.URL.Path]++
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer srv.Close()
	check := probe.HTTP("/x")
	for i := range 6 {
		err := check(t.Context(), srv.URL+[]string{"/a", "/b"}[i%2])
		require.Equal(t, i >= 4, strings.Contains(err.Error(), "in a row"), "%d: %v", i, err)
	}
	require.ErrorContains(t, check(t.Context(), srv.URL+"/a"), "status 401", "the next wait begins anew")
}

// TestProbeSendsItsHeadersToTheEndpointOnly follows redirects within the endpoint's host, and no
// others.
func TestProbeSendsItsHeadersToTheEndpointOnly(t *testing.T) {
	var elsewhere int
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("X-Key") != key:
			w.WriteHeader(http.StatusTeapot)
		case r.URL.Path == "/e/away":
			http.Redirect(w, r, other.URL+"/login?key="+key, http.StatusFound)
		case r.URL.Path == "/e/near":
			http.Redirect(w, r, "/e/there", http.StatusFound)
		case r.URL.Path == "/e/loop":
			http.Redirect(w, r, "/e/loop", http.StatusFound)
		}
	}))
	defer srv.Close()
	hc := &http.Client{}
	for path, text := range map[string]string{"/away": "redirect that is not followed", "/near": "", "/loop": "redirect that is not followed"} {
		err := probe.HTTP(path, probe.WithHeader("X-Key", key), probe.WithHTTPClient(hc))(t.Context(), srv.URL+"/e/")
		if text == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), key)
	}
	require.Zero(t, elsewhere)
	require.Nil(t, hc.CheckRedirect, "the client of the caller is not modified")
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("no redirects, please") }
	require.ErrorContains(t, probe.HTTP("/near", probe.WithHeader("X-Key", key), probe.WithHTTPClient(hc))(t.Context(), srv.URL+"/e"), "no redirects, please")
}

// TestProbeShowsNoSecret lets the application and the network repeat the key.
func TestProbeShowsNoSecret(t *testing.T) {
	const query = "q-51ab-QUERY"
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			_, _ = io.WriteString(w, list("model of "+r.Header.Get("Authorization")))
			return
		}
		http.Error(w, "your key "+r.Header.Get("Authorization")+" and "+r.URL.RawQuery, http.StatusForbidden)
	}))
	defer echo.Close()
	failing := &http.Client{Transport: testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("cannot send %s with %s", r.URL, r.Header.Get("Authorization"))
	})}
	auth := probe.WithHeader("Authorization", "Bearer "+key)
	for name, err := range map[string]error{
		"status":    probe.HTTP("/health?token="+query, auth)(t.Context(), echo.URL),
		"models":    probe.Model("m", auth)(t.Context(), echo.URL),
		"transport": probe.HTTP("/health?token="+query, auth, probe.WithHTTPClient(failing))(t.Context(), "https://e.test"),
	} {
		require.Error(t, err, name)
		printed := testkit.NewPrinted()
		printed.AddError(err, func(err error) { printed.Add(err, testkit.CommonFormats) })
		for _, secret := range []string{key, query} {
			printed.RequireWithout(t, testkit.NeedlesOf(secret))
		}
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	hang := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush() // the status comes, the body does not
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, probe.Model("m")(ctx, srv.URL), context.DeadlineExceeded)
	require.ErrorIs(t, probe.HTTP("/health")(ctx, srv.URL), context.DeadlineExceeded)
}
