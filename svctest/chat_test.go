package svctest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

const chatPath = "/inference-api/v1/inference_service/svc-1"

func TestChat(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.AddEndpoint(svctest.Endpoint{Name: "llm", Instances: 1})
		require.Equal(t, 200, send(t, srv, "GET", chatPath, "").Status)
		models := send(t, srv, "GET", chatPath+"/v1/models", "").JSON()["data"].([]any)
		require.Equal(t, "llm", models[0].(map[string]any)["id"])

		r := send(t, srv, "POST", chatPath+"/v1/chat/completions",
			`{"model":"llm","temperature":0,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"hi there"}]}]}`)
		require.Equal(t, 200, r.Status, r.Body)
		choice := r.JSON()["choices"].([]any)[0].(map[string]any)
		require.Equal(t, map[string]any{"role": "assistant", "content": "You said: hi there"}, choice["message"])
		require.Equal(t, map[string]any{"prompt_tokens": 4.0, "completion_tokens": 4.0, "total_tokens": 8.0}, r.JSON()["usage"])

		for body, want := range map[string]int{
			`{"model":"other","messages":[{"role":"user","content":"x"}]}`: 404,
			`{"model":"llm","messages":[]}`:                                400,
			`{"model":"llm","messages":[{"role":"user","content":1}]}`:     400,
			`{`: 400,
		} {
			refused := send(t, srv, "POST", chatPath+"/v1/chat/completions", body)
			require.Equal(t, want, refused.Status, body)
			require.Contains(t, refused.Body, `{"error":{"message":"`)
		}
		require.Equal(t, 404, send(t, srv, "GET", chatPath+"/v1/embeddings", "").Status)
		srv.SetStatus("svc-1", svctest.StatusInitializing)
		require.Equal(t, 503, send(t, srv, "GET", chatPath+"/v1/models", "").Status)
	}, svctest.WithChat(""))
}

func TestChatStream(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *svctest.Server) {
		srv.AddEndpoint(svctest.Endpoint{Instances: 1})
		start := time.Now()
		r := send(t, srv, "POST", chatPath+"/v1/chat/completions", `{"model":"m-1","stream":true,"messages":[{"role":"user","content":"a \"b\""}]}`)
		require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
		events := strings.Split(strings.TrimSuffix(r.Body, "\n\n"), "\n\n")
		require.Len(t, events, 1+4+1+1)
		require.Equal(t, "data: [DONE]", events[6])
		require.Contains(t, events[0], `"delta":{"role":"assistant","content":""},"finish_reason":null`)
		require.Contains(t, events[4], `"delta":{"content":" \"b\""}`)
		require.Contains(t, events[5], `"delta":{},"finish_reason":"stop"`)
		require.Less(t, time.Since(start), time.Minute)
	}, svctest.WithChat("m-1"))
}
