package svc_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// jobService is an in-memory service with a list of jobs: it works inside a
// synctest bubble, where its latency costs no time.
type jobService struct {
	latency time.Duration
	page    func(number, size int) (status int, body []byte) // number and size are 0 where the request has none

	mu       sync.Mutex
	asked    []string // the queries, in the order of arrival
	inFlight int
	most     int // requests in flight at a time
}

func (s *jobService) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, req.URL.RawQuery)
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
	}()
	if s.latency > 0 {
		timer := time.NewTimer(s.latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	number, _ := strconv.Atoi(req.URL.Query().Get("page"))
	size, _ := strconv.Atoi(req.URL.Query().Get("page_size"))
	status, body := s.page(number, size)
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: req,
	}, nil
}

// requests returns the queries so far.
func (s *jobService) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.asked...)
}

func (s *jobService) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlight
}

func (s *jobService) client(t testing.TB, opts ...svc.Option) *svc.Client {
	t.Helper()
	opts = append([]svc.Option{svc.WithToken("token"), svc.WithHTTPClient(&http.Client{Transport: s})}, opts...)
	client, err := svc.NewClient("https://api.test", opts...)
	require.NoError(t, err)
	return client
}

// jobID is the id of the i-th job, beginning with 1.
func jobID(i int) string { return fmt.Sprintf("job-%05d", i) }

func jobIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = jobID(i + 1)
	}
	return ids
}

// jobList is a page of jobs. A negative total is left out.
func jobList(total int, ids ...string) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	if total >= 0 {
		fmt.Fprintf(&b, `"total_count":%d,`, total)
	}
	b.WriteString(`"job_list":[`)
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"job_id":%q,"status":"succeed","outputs":[]}`, id)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// cutJobs is what page number of ids holds.
func cutJobs(ids []string, number, size int) []string {
	from := min((max(number, 1)-1)*size, len(ids))
	return ids[from:min(from+size, len(ids))]
}

// jobsInPages serves ids in pages of at most size, with a truthful total.
func jobsInPages(ids []string, size int) *jobService {
	return &jobService{page: func(number, asked int) (int, []byte) {
		if asked <= 0 || asked > size {
			asked = size
		}
		return 200, jobList(len(ids), cutJobs(ids, number, asked)...)
	}}
}

// collectJobs ranges over a list to its end.
func collectJobs(list func(func(*svc.Job, error) bool)) (ids []string, err error) {
	for job, err := range list {
		if err != nil {
			return ids, err
		}
		ids = append(ids, job.JobID)
	}
	return ids, nil
}
