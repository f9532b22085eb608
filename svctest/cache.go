package svctest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cache describes a cache between the callers and the service, for [WithCache].
type Cache struct {
	// TTL is how long a stored response is served. Zero means that there is no cache.
	TTL time.Duration
	// IgnoreNoCache makes the cache serve a stored response even if the request has
	// "Cache-Control: no-cache".
	IgnoreNoCache bool
	// HideAge leaves out the Age header of a stored response.
	HideAge bool
}

// WithCache puts a cache in front of the service. It stores the responses to GET requests with the
// statuses 200, 404 and 410, separately for each token. A later request for the same path and
// query gets the stored response, with its Date and X-Request-Id, and an Age header in whole
// seconds. An update or a delete does not change what is stored. A request that the cache serves
// does not reach the service: it is not recorded, and no fault applies to it. By default, there is
// no cache.
func WithCache(c Cache) Option {
	return func(cfg *config) { cfg.cache = c }
}

type cached struct {
	capture
	at time.Time
}

func (s *Server) throughCache(w http.ResponseWriter, x *exchange) {
	key := x.r.RequestURI + " " + x.r.Header.Get("Authorization")
	fresh := !s.cfg.cache.IgnoreNoCache && strings.Contains(x.r.Header.Get("Cache-Control"), "no-cache")
	s.mu.Lock()
	stored := s.cache[key]
	s.mu.Unlock()
	if stored != nil && !fresh {
		if age := s.now().Sub(stored.at); age < s.cfg.cache.TTL {
			if !s.cfg.cache.HideAge {
				w.Header().Set("Age", strconv.Itoa(int(age.Seconds())))
			}
			stored.replay(w)
			return
		}
	}
	tee := &teeWriter{ResponseWriter: w, stored: cached{at: s.now()}}
	s.serve(tee, x)
	if slices.Contains([]int{http.StatusOK, http.StatusNotFound, http.StatusGone}, tee.stored.status) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cache[key] = &tee.stored
	}
}

// teeWriter stores a response while it is sent.
type teeWriter struct {
	http.ResponseWriter
	stored cached
}

func (t *teeWriter) WriteHeader(status int) {
	if t.stored.status == 0 {
		t.stored.header, t.stored.status = t.Header().Clone(), status
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *teeWriter) Write(p []byte) (int, error) {
	if t.stored.status == 0 {
		t.WriteHeader(http.StatusOK)
	}
	_, _ = t.stored.Write(p)
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush the response.
func (t *teeWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
