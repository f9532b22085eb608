package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// TestSoak runs many workers against a service that fails at random. Each worker creates,
// uses and deletes endpoints, files and jobs. At the end, every instance that still runs
// must have been reported in an error, and memory, goroutines and connections must not
// have grown.
//
// It takes a second. SVC_SOAK=10m makes it run for ten minutes.
func TestSoak(t *testing.T) {
	length := time.Second
	if text := os.Getenv("SVC_SOAK"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	srv := svctest.NewServer(
		svctest.WithDeployTime(20*time.Millisecond), svctest.WithJobTime(20*time.Millisecond),
		svctest.WithFlavors(svctest.Flavor{ID: "flavor-1", DisplayName: "GPU A", Stock: 1 << 20}),
		svctest.WithRecordLimit(0, 0), svctest.WithDiscardContents(),
	)
	defer srv.Close()
	client, err := svc.NewClient(srv.URL(), svc.WithToken(srv.Token()),
		svc.WithRetry(svc.RetryPolicy{MinDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond}))
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	s := &soak{client: client, srv: srv}
	before := runtime.NumGoroutine()

	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var workers sync.WaitGroup
	workers.Go(func() { s.trouble(ctx) })
	const crowd = 64
	for i := range crowd {
		workers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				s.life(t, fmt.Sprintf("worker %d, life %d", i, n))
			}
		})
	}
	var heaps []uint64
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(length / 10):
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			heaps = append(heaps, m.HeapAlloc)
			t.Logf("%d lives, %d unknown outcomes, %d other failures; heap %.1f MiB, %d goroutines",
				s.lives.Load(), s.unknown.Load(), s.failures.Load(), float64(m.HeapAlloc)/(1<<20), runtime.NumGoroutine())
		}
	}
	workers.Wait()
	srv.ClearFaults()
	t.Logf("in all: %d lives, %d unknown outcomes, %d other failures", s.lives.Load(), s.unknown.Load(), s.failures.Load())
	require.Positive(t, s.lives.Load())

	// Every endpoint that still runs was reported: its create had an unknown outcome, or
	// its cleanup failed.
	reported := map[string]bool{}
	for _, name := range s.reported {
		reported[name] = true
	}
	for _, e := range srv.Endpoints() {
		require.True(t, !e.Billed || reported[e.Name], "%s (%s) still runs, but no error reported it", e.ID, e.Name)
	}
	client.CloseIdleConnections()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+crowd/8 }, 20*time.Second, 10*time.Millisecond, "goroutines are left")
	if n := len(heaps); n >= 8 && length >= time.Minute {
		t.Logf("heap: %.1f MiB early, %.1f MiB late", float64(heaps[1])/(1<<20), float64(heaps[n-1])/(1<<20))
	}
}

type soak struct {
	client                   *svc.Client
	srv                      *svctest.Server
	lives, unknown, failures atomic.Int64

	mu       sync.Mutex
	reported []string // names of the endpoints that may still run, according to errors
}

// life creates, uses and deletes one endpoint, one file and one job.
func (s *soak) life(t *testing.T, name string) {
	ctx := context.Background()
	wait := svc.WaitOptions{MinInterval: 5 * time.Millisecond, MaxInterval: 20 * time.Millisecond}
	service, err := s.client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
		Name:             name,
		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 1},
	}, &svc.DeployOptions{WaitOptions: wait, DeleteOnFailure: true})
	if s.failed(err, name) {
		return
	}
	_, err = s.client.InferenceServices.ScaleAndWait(ctx, service.ServiceID, 2, &wait)
	s.failed(err, "")
	if err := s.client.InferenceServices.Delete(ctx, service.ServiceID); err != nil {
		s.failed(err, name)
		s.report(name)
	}

	contents := bytes.Repeat([]byte(name), 1+rand.IntN(5000))
	upload, err := s.client.Files.Upload(ctx, svc.UploadRequest{
		FileName: name, Purpose: svc.FilePurposeFineTune, Body: bytes.NewReader(contents),
		UploadOptions: svc.UploadOptions{DeleteOnFailure: true},
	})
	if !s.failed(err, "") {
		if upload.Bytes != int64(len(contents)) {
			t.Errorf("%d of %d bytes were uploaded", upload.Bytes, len(contents))
		}
		s.failed(s.client.Files.Delete(ctx, upload.FileID), "")
	}

	job, err := s.client.VideoJobs.Create(ctx, svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: name}})
	if !s.failed(err, "") {
		job, err = s.client.VideoJobs.Wait(ctx, job.JobID, &wait)
		if !s.failed(err, "") {
			var media bytes.Buffer
			_, err = s.client.Files.DownloadURL(ctx, job.Outputs[0].MediaURL, &media, nil)
			s.failed(err, "")
			s.failed(s.client.VideoJobs.Delete(ctx, job.JobID), "")
		}
	}
	s.lives.Add(1)
}

// failed counts an error, and records the name of an endpoint that may still run.
func (s *soak) failed(err error, name string) bool {
	if err == nil {
		return false
	}
	deploy, created := errors.AsType[*svc.DeployError](err)
	if errors.Is(err, svc.ErrOutcomeUnknown) {
		s.unknown.Add(1)
	} else {
		s.failures.Add(1)
	}
	if name != "" && (!created && errors.Is(err, svc.ErrOutcomeUnknown) || created && !(deploy.Cleanup == svc.CleanupDeleted)) {
		s.report(name)
	}
	return true
}

func (s *soak) report(name string) {
	s.mu.Lock()
	s.reported = append(s.reported, name)
	s.mu.Unlock()
}

// trouble makes the service fail at random times, in different ways.
func (s *soak) trouble(ctx context.Context) {
	faults := []svctest.Fault{
		svctest.ServiceUnavailable(1), svctest.RateLimited("0"), svctest.DropBeforeEffect(), svctest.DropAfterEffect(),
		svctest.GatewayErrorAfterEffect(), svctest.Slow(5 * time.Millisecond), {TruncateBody: true}, {Status: 500},
	}
	for ctx.Err() == nil {
		if s.srv.PendingFaults() < 8 {
			s.srv.Fault("*", svctest.RouteAny, faults[rand.IntN(len(faults))])
		}
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}
