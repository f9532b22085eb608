package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// writerFunc is a function that serves as an [io.Writer].
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// fake starts a fake that the program uses like the real service. The test fails if an endpoint
// is still running at its end.
func fake(t *testing.T, opts ...svctest.Option) *svctest.Server {
	srv := svctest.NewServer(append([]svctest.Option{svctest.WithDeployTime(10 * time.Millisecond)}, opts...)...)
	t.Cleanup(srv.Close)
	svctest.NoLeaks(t, srv)
	t.Setenv("SVC_BASE_URL", srv.URL())
	t.Setenv("SVC_API_TOKEN", srv.Token())
	t.Setenv("SVC_INFERENCE_URL", srv.InferenceURL())
	t.Setenv("OPENAI_API_KEY", "sk-openai-SECRET")
	t.Setenv("OPENAI_BASE_URL", "https://api.invalid")
	t.Setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: sk-openai-SECRET")
	t.Setenv("OPENAI_ORG_ID", "org-SECRET")
	return srv
}

func TestReplyIsStreamedAndTheEndpointDeleted(t *testing.T) {
	srv := fake(t, svctest.WithChat("m"))
	t.Setenv("CHAT_API_KEY", "sk-chat-1")
	var out, log bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-image", "registry.example/chat:1", "-model", "m", "-prompt", "hello there"}, &out, &log), log.String())
	require.Equal(t, "You said: hello there\n", out.String())
	require.Contains(t, log.String(), "available")
	require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints))
	chats := 0
	for _, r := range srv.Requests() {
		require.NotContains(t, fmt.Sprint(r.Header), "SECRET", "the environment of OpenAI is for OpenAI")
		if r.Route == svctest.RouteInference {
			chats++
			require.Equal(t, "Bearer sk-chat-1", r.Header.Get("Authorization"))
		}
	}
	require.Equal(t, 2, chats, "the probe and the completion")
}

// TestEndpointIsDeletedOnEveryWayOut lets each step fail. The fake checks that nothing runs at
// the end.
func TestEndpointIsDeletedOnEveryWayOut(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	half := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // lists the model, and stops in the middle of a reply
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m"}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"half"}}]}`+"\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	for name, tt := range map[string]struct {
		server svctest.Option
		fault  func(*svctest.Server)
		out    io.Writer
		code   int
		text   string
	}{
		"another model":               {server: svctest.WithChat("other"), code: 1, text: `does not serve "m"; it serves 1 models: "other"`},
		"the deployment fails":        {server: svctest.WithStatusPath("initializing", "unavailable"), code: 1, text: "unavailable"},
		"the reply cannot be written": {server: svctest.WithChat("m"), out: writerFunc(func([]byte) (int, error) { return 0, errors.New("broken pipe") }), code: 1, text: "broken pipe"},
		"Ctrl-C in the middle of a reply": {server: svctest.WithInferenceHandler(half), code: 130, text: "canceled", out: writerFunc(func(p []byte) (int, error) {
			interrupt()
			return len(p), nil
		})},
		"the server fails": {server: svctest.WithChat("m"), code: 1, text: "chat: ", fault: func(srv *svctest.Server) {
			srv.Fault("POST", svctest.RouteInference, svctest.Fault{Status: 400, Body: `{"error":{"message":"too long"}}`, Times: -1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			srv := fake(t, tt.server)
			if tt.fault != nil {
				tt.fault(srv)
			}
			ctx := t.Context()
			if tt.code == 130 {
				ctx = interrupted
			}
			out := tt.out
			if out == nil {
				out = io.Discard
			}
			var log bytes.Buffer
			code := run(ctx, []string{"-image", "registry.example/chat:1", "-model", "m"}, out, &log)
			require.Equal(t, tt.code, code, log.String())
			require.Contains(t, log.String(), tt.text)
			require.NotContains(t, log.String(), srv.Token())
		})
	}
}

func TestExitCodeTellsWhetherAnEndpointMayRun(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	for want, err := range map[int]error{
		1: &svc.DeployError{Cleanup: svc.CleanupDeleted}, 4: fmt.Errorf("use: %w", &svc.DeployError{Cleanup: svc.CleanupAccepted}),
	} {
		require.Equal(t, want, exitCode(t.Context(), err))
	}
	require.Equal(t, 4, exitCode(interrupted, &svc.OutcomeUnknownError{}))
	require.Equal(t, 130, exitCode(interrupted, &svc.DeployError{Cleanup: svc.CleanupDeleted}))
}

func TestUsage(t *testing.T) {
	for args, code := range map[string]int{"-h": 0, "-max-price cheap": 2, "extra": 2, "": 2, "-image x -max-price 0.000001": 1} {
		fake(t)
		require.Equal(t, code, run(t.Context(), strings.Fields(args), io.Discard, io.Discard), args)
	}
}

// TestServerOfSomebodyElse uses a server with an API like OpenAI's at OPENAI_COMPATIBLE_URL, in
// place of the model of the fake. OPENAI_COMPATIBLE_MODEL is the model that it lists. For
// example, "npx @dwmkerr/mock-llm" serves gpt-5.2 at http://localhost:6556.
func TestServerOfSomebodyElse(t *testing.T) {
	address, err := url.Parse(os.Getenv("OPENAI_COMPATIBLE_URL"))
	require.NoError(t, err)
	if address.Host == "" {
		t.Skip("OPENAI_COMPATIBLE_URL is not set")
	}
	fake(t, svctest.WithInferenceHandler(httputil.NewSingleHostReverseProxy(address)))
	var out, log bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-image", "x", "-model", os.Getenv("OPENAI_COMPATIBLE_MODEL"), "-prompt", "hello there"}, &out, &log), log.String())
	require.NotEmpty(t, strings.TrimSpace(out.String()))
	t.Log(out.String())
}
