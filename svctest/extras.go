package svctest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// Handle adds a route to the service, in front of its own ones, for operations that the fake does not
// have. The pattern is one of [net/http.ServeMux], without a host, such as "GET /v1/quota/{id}". It is
// below the path of [WithBasePath]. The fake checks neither the token nor the body before it calls h.
// The path of the pattern, such as "/v1/quota/{id}", is the route for [Server.Fault] and
// [Server.RequestCount]. Handle panics if the pattern is not valid or is already in use.
func (s *Server) Handle(pattern string, h http.Handler) {
	s.mux.Handle(pattern, h)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added[patternPath(pattern)] = true
}

func patternPath(pattern string) string {
	return pattern[strings.IndexByte(pattern, '/'):]
}

// addedRoute returns the route of Handle that serves r, or nil.
func (s *Server) addedRoute(r *http.Request, base string) *route {
	s.mu.Lock()
	none := len(s.added) == 0
	s.mu.Unlock()
	if none {
		return nil
	}
	var found *route
	http.StripPrefix(base, http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) {
		if _, pattern := s.mux.Handler(inner); pattern != "" {
			found = &route{template: patternPath(pattern), serve: func(_ *Server, w http.ResponseWriter, x *exchange) {
				inner.Body = x.r.Body
				x.pause()
				s.mux.ServeHTTP(w, inner)
			}}
		}
	})).ServeHTTP(newCapture(), r)
	return found
}

type extraField struct {
	path  []string
	value json.RawMessage
}

// SetField sets a field in the record with this ID: of an endpoint, a flavor, a job or a file. Every
// response with that record shows it, in lists too. It may replace a field of the record, or be a
// new one. A path such as "deploy_metadata.env" leads into an object, which is added if it is
// absent. value is encoded as JSON. The record may be created later: the IDs are the same in every
// run. SetField panics if value cannot be encoded.
func (s *Server) SetField(id, path string, value any) {
	f := extraField{strings.Split(path, "."), encode(value)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extras[id] = append(s.extras[id], f)
}

// extend returns body with the fields of SetField.
func (s *Server) extend(body []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.extras) == 0 {
		return body
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		panic("svctest: " + err.Error()) // body was encoded by this package
	}
	s.extendRecords(v)
	return encode(v)
}

// extendRecords extends v, if it is a record, and the records in the lists of v.
func (s *Server) extendRecords(v any) {
	switch v := v.(type) {
	case []any:
		for _, record := range v {
			s.extendRecords(record)
		}
	case map[string]any:
		s.extendRecords(v["flavor_list"])
		s.extendRecords(v["job_list"])
		for _, key := range []string{"service_id", "job_id", "flavor_id", "id"} {
			id, _ := v[key].(string)
			for _, f := range s.extras[id] {
				f.set(v)
			}
		}
	}
}

func (f extraField) set(record map[string]any) {
	last := len(f.path) - 1
	for _, key := range f.path[:last] {
		inner, ok := record[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			record[key] = inner
		}
		record = inner
	}
	record[f.path[last]] = f.value
}
