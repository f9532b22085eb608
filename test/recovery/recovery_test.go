package recovery_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/ledger"
	"example.com/svc/svctest"
)

// TestSnippetsAreThoseOfTheDocument: each piece of Go in the document is in snippets_test.go.
func TestSnippetsAreThoseOfTheDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/recovery.md")
	require.NoError(t, err)
	code, err := os.ReadFile("snippets_test.go")
	require.NoError(t, err)
	pieces := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	require.Len(t, pieces, strings.Count(string(text), "\n## "), "each situation has one")
	for _, m := range pieces {
		indented := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(m[1], "\t$1")
		require.Contains(t, string(code), indented)
	}
}

// scene is a service and a ledger, inside a synctest bubble.
type scene struct {
	*testing.T
	srv    *svctest.Server
	store  ledger.Store
	client *svc.Client
	opts   *svc.DeployOptions
}

var request = svc.CreateInferenceServiceRequest{
	Name: "chat", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 1},
	DeployMetadata: svc.CreateDeployMetadata{ImageURL: "registry.example/chat:3", Port: 8000, GPUNum: 1},
}

func play(t *testing.T, act func(*scene), opts ...svctest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &scene{T: t, srv: svctest.NewInMemory(opts...), store: ledger.Memory(), opts: &svc.DeployOptions{Key: "chat", DeleteOnFailure: true}}
		t.Cleanup(s.srv.Close)
		s.client = s.srv.Client(svc.WithLedger(s.store))
		act(s)
	})
}

// deploy deploys as the processes before have done.
func (s *scene) deploy(lease time.Duration) {
	s.Helper()
	opts := *s.opts
	opts.Lease = lease
	_, err := s.client.InferenceServices.Deploy(s.Context(), request, &opts)
	require.NoError(s, err)
}

func (s *scene) open() (ids []string) {
	s.Helper()
	entries, err := s.client.Ledger.Entries(s.Context())
	require.NoError(s, err)
	for _, e := range entries {
		if e.Open() {
			ids = append(ids, e.ServiceID)
		}
	}
	return ids
}

// logged are the lines that f logs.
func logged(f func()) string {
	var lines strings.Builder
	log.SetOutput(&lines)
	defer log.SetOutput(os.Stderr)
	f()
	return lines.String()
}

func TestUnknownOutcome(t *testing.T) {
	play(t, func(s *scene) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		require.NoError(s, unknownWithKey(s.Context(), s.client, request, s.opts, func(mark string) string {
			endpoint := s.srv.Endpoints()[0]
			require.Contains(s, endpoint.Description, mark)
			return endpoint.ID
		}))
		require.Equal(s, []string{"svc-1"}, s.open())
	})
	play(t, func(s *scene) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.Fault{Status: 502})
		require.NoError(s, unknownWithKey(s.Context(), s.client, request, s.opts, func(string) string { return "" }))
		require.Empty(s, s.open())
	})
	play(t, func(s *scene) {
		s.srv.Fault("POST", svctest.RouteEndpoints, svctest.DropAfterEffect())
		_, err := s.client.InferenceServices.Create(s.Context(), request)
		require.ErrorIs(s, err, svc.ErrOutcomeUnknown)
		require.Regexp(s, `look for "chat", with \[svc:\w+\]`, logged(func() { require.NoError(s, unknownWithoutKey(s.Context(), s.client)) }))
	})
}

// TestKilled: a process that died in the wait is continued.
func TestKilled(t *testing.T) {
	play(t, func(s *scene) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
		defer cancel()
		_, err := s.client.InferenceServices.Deploy(ctx, request, &svc.DeployOptions{Key: "chat"})
		require.ErrorIs(s, err, context.DeadlineExceeded)
		service, err := killedDuringCreate(s.Context(), s.srv.Client(svc.WithLedger(s.store)), request, s.opts)
		require.NoError(s, err)
		require.Equal(s, "svc-1", service.ServiceID)
	}, svctest.WithDeployTime(time.Hour))
}

func TestFailedCleanup(t *testing.T) {
	play(t, func(s *scene) {
		s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Outage(5*time.Minute))
		require.NoError(s, cleanupFailed(s.Context(), s.client, request, s.opts))
		require.Zero(s, s.srv.RunningInstances())
		require.Empty(s, s.open())
	}, svctest.WithImagePullError())
}

func TestUnavailableUnderAKey(t *testing.T) {
	play(t, func(s *scene) {
		s.deploy(0)
		s.srv.SetStatus("svc-1", svctest.StatusUnavailable)
		require.NoError(s, unavailableUnderKey(s.Context(), s.client, request, s.opts))
		require.Equal(s, []string{"svc-2"}, s.open())
	})
}

func TestDeletedElsewhere(t *testing.T) {
	play(t, func(s *scene) {
		s.deploy(0)
		require.NoError(s, s.srv.Client().InferenceServices.Delete(s.Context(), "svc-1"))
		start := time.Now()
		service, err := deletedElsewhere(s.Context(), s.client, request, s.opts)
		require.NoError(s, err)
		require.Equal(s, "svc-2", service.ServiceID)
		require.Less(s, time.Since(start), 2*time.Minute)
	})
}

func TestWrongToken(t *testing.T) {
	play(t, func(s *scene) {
		s.deploy(0)
		for _, token := range []string{"token-of-another", "no-token-at-all"} {
			client := s.srv.Client(svc.WithLedger(s.store), svc.WithToken(token))
			require.ErrorContains(s, wrongToken(s.Context(), client), "check the token")
			require.Equal(s, []string{"svc-1"}, s.open(), "the entry stays open")
		}
		require.NoError(s, wrongToken(s.Context(), s.client))
	}, svctest.WithForeignToken("token-of-another"))
}

func TestWrongAddress(t *testing.T) {
	play(t, func(s *scene) {
		s.deploy(0)
		lines := logged(func() { require.NoError(s, wrongAddress(s.Context(), s.client, "https://new.example")) })
		require.Contains(s, lines, "svc-1 of the key chat is at "+s.srv.URL())
		require.Empty(s, logged(func() { require.NoError(s, wrongAddress(s.Context(), s.client, s.srv.URL())) }))
	})
}

func TestLostLedger(t *testing.T) {
	t.Setenv("SVC_BASE_URL", "https://service.example")
	t.Setenv("SVC_API_TOKEN", "token")
	path := filepath.Join(t.TempDir(), "ledger")
	require.ErrorIs(t, lostLedger(t.Context(), path), os.ErrNotExist)
	require.NoDirExists(t, path)
	_, err := ledger.Dir(path)
	require.NoError(t, err)
	require.NoError(t, lostLedger(t.Context(), path))
}

// TestLeaseAndClock: a lease that was extended is not over, whatever the clock of this machine says.
func TestLeaseAndClock(t *testing.T) {
	for _, off := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour} {
		play(t, func(s *scene) {
			s.deploy(time.Hour)
			require.NoError(s, leaseOver(s.Context(), s.client))
			time.Sleep(7 * time.Hour)
			require.Empty(s, logged(func() { require.NoError(s, wrongClock(s.Context(), s.client)) }))
			require.Equal(s, []string{"svc-1"}, s.open())
			time.Sleep(2 * time.Hour)
			s.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.Fault{Status: http.StatusBadRequest, Times: -1})
			require.Contains(s, logged(func() { require.Error(s, wrongClock(s.Context(), s.client)) }), "svc-1 of the key chat: ")
			s.srv.ClearFaults()
			require.NoError(s, wrongClock(s.Context(), s.client))
			require.Empty(s, s.open())
		}, svctest.WithClockOffset(off))
	}
}

// TestDamagedKey: what could be read of it is shown, and the endpoint can be deleted by its ID.
func TestDamagedKey(t *testing.T) {
	play(t, func(s *scene) {
		path := filepath.Join(s.TempDir(), "ledger")
		store, err := ledger.Dir(path)
		require.NoError(s, err)
		s.store, s.client = store, s.srv.Client(svc.WithLedger(store))
		s.deploy(0)
		require.NoError(s, os.WriteFile(filepath.Join(path, "chat@000002.json"), []byte("{"), 0o600))
		lines := logged(func() { require.ErrorContains(s, damaged(s.Context(), s.client), "is damaged") })
		require.Regexp(s, `look for "chat", with \[svc:\w+\] in its description`, lines)
		require.NoError(s, s.client.InferenceServices.DeleteAndWait(s.Context(), "svc-1", nil))
		require.Zero(s, s.srv.RunningInstances())
	})
}
