package svctest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// serveChat serves a request to an endpoint with a model: see WithChat.
func (s *Server) serveChat(w http.ResponseWriter, x *exchange, model string) {
	switch x.r.Method + " " + x.rest {
	case "GET /":
		s.write(w, response{value: map[string]string{"service_id": x.param}}, x.rec.RequestID)
	case "GET /v1/models":
		entry := ordered{{"id", model}, {"object", "model"}, {"created", s.now().Unix()}, {"owned_by", "svctest"}}
		s.write(w, response{value: ordered{{"object", "list"}, {"data", []any{entry}}}}, x.rec.RequestID)
	case "POST /v1/chat/completions":
		s.complete(w, x, model)
	default:
		s.refuseChat(w, x, http.StatusNotFound, "there is no route for %s %s", x.r.Method, x.rest)
	}
}

// refuseChat sends an error in the form of OpenAI's API.
func (s *Server) refuseChat(w http.ResponseWriter, x *exchange, status int, format string, args ...any) {
	s.write(w, response{status: status, value: ordered{{"error", ordered{
		{"message", fmt.Sprintf(format, args...)}, {"type", "invalid_request_error"}, {"code", status},
	}}}}, x.rec.RequestID)
}

type chatRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string      `json:"role"`
		Content chatContent `json:"content"`
	} `json:"messages"`
}

// chatContent is the text of a message, given as a string or in parts.
type chatContent string

func (c *chatContent) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*string)(c)) == nil {
		return nil
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	for _, p := range parts {
		*c += chatContent(p.Text)
	}
	return nil
}

// complete serves a chat completion. The reply repeats the last message.
func (s *Server) complete(w http.ResponseWriter, x *exchange, model string) {
	var req chatRequest
	body, err := io.ReadAll(io.LimitReader(x.r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler) // the caller has left
	}
	switch err := json.Unmarshal(body, &req); {
	case err != nil:
		s.refuseChat(w, x, http.StatusBadRequest, "the body is not a chat completion request: %v", err)
		return
	case req.Model != model:
		s.refuseChat(w, x, http.StatusNotFound, "the model %q does not exist; the model is %q", req.Model, model)
		return
	case len(req.Messages) == 0:
		s.refuseChat(w, x, http.StatusBadRequest, "messages must not be empty")
		return
	}
	last := string(req.Messages[len(req.Messages)-1].Content)
	words := strings.Fields("You said: " + last)
	head := func(object string) ordered {
		return ordered{{"id", "chatcmpl-" + x.rec.RequestID}, {"object", object}, {"created", s.now().Unix()}, {"model", model}}
	}
	if req.Stream {
		stream(w, head("chat.completion.chunk"), words)
		return
	}
	prompt := 0
	for _, m := range req.Messages {
		prompt += len(strings.Fields(string(m.Content)))
	}
	s.write(w, response{value: append(head("chat.completion"), ordered{
		{"choices", []any{ordered{
			{"index", 0},
			{"message", ordered{{"role", "assistant"}, {"content", strings.Join(words, " ")}}},
			{"finish_reason", "stop"},
		}}},
		{"usage", ordered{{"prompt_tokens", prompt}, {"completion_tokens", len(words)}, {"total_tokens", prompt + len(words)}}},
	}...)}, x.rec.RequestID)
}

// stream sends words as server-sent events, one event per word.
func stream(w http.ResponseWriter, head ordered, words []string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	event := func(delta ordered, finish any) {
		choice := ordered{{"index", 0}, {"delta", delta}, {"finish_reason", finish}}
		chunk := append(head[:len(head):len(head)], field{"choices", []any{choice}})
		_, _ = fmt.Fprintf(w, "data: %s\n\n", encode(chunk)) // fails only if the caller has left
		_ = http.NewResponseController(w).Flush()
	}
	event(ordered{{"role", "assistant"}, {"content", ""}}, nil)
	for i, word := range words {
		if i > 0 {
			word = " " + word
		}
		event(ordered{{"content", word}}, nil)
	}
	event(ordered{}, "stop")
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}
