package testkit

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"example.com/svc"
)

// JobService is a transport that plays a service with a list of jobs, in memory. It works
// inside a synctest bubble, where its latency takes no real time.
type JobService struct {
	Latency time.Duration
	Page    func(number, size int) (status int, body []byte) // makes the response; number and size are 0 if the request has none

	mu       sync.Mutex
	asked    []string // the queries of all requests, in the order of arrival
	inFlight int
	Most     int // the largest number of requests that were in flight at the same time
}

// RoundTrip returns the page that the request asks for.
func (s *JobService) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, req.URL.RawQuery)
	s.inFlight++
	s.Most = max(s.Most, s.inFlight)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
	}()
	if err := pause(req, s.Latency); err != nil {
		return nil, err
	}
	number, _ := strconv.Atoi(req.URL.Query().Get("page"))
	size, _ := strconv.Atoi(req.URL.Query().Get("page_size"))
	status, body := s.Page(number, size)
	return respond(req, status, body), nil
}

// Requests returns the queries of the requests so far.
func (s *JobService) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

// UnderWay returns the number of requests without a response so far.
func (s *JobService) UnderWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

// Client returns a client that sends its requests to the service.
func (s *JobService) Client(t testing.TB, opts ...svc.Option) *svc.Client {
	t.Helper()
	return ClientOn(t, s, opts...)
}

// OneJob returns a service that responds to every request with 200 and body.
func OneJob(body string) *JobService {
	return &JobService{Page: func(int, int) (int, []byte) { return 200, []byte(body) }}
}
