package conformance

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// silent lists the methods that send no request.
var silent = []string{
	"Client.CloseIdleConnections", "InferenceServiceClient.URL",
}

// Every exported method must be in the table methods, so that a new method is not
// forgotten.
func TestEveryMethodIsDriven(t *testing.T) {
	var all []string
	for _, v := range []any{&svc.Client{}, &svc.FlavorClient{}, &svc.InferenceServiceClient{}, &svc.VideoJobClient{}, &svc.ImageJobClient{}, &svc.FileClient{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			if name := typ.Elem().Name() + "." + typ.Method(i).Name; !slices.Contains(silent, name) {
				all = append(all, name)
			}
		}
	}
	require.ElementsMatch(t, all, slices.Collect(maps.Keys(methods)))
}

// Every request of every method, and every response to it, matches the description.
// Together the methods use all operations.
func TestMethods(t *testing.T) {
	doc := load(t)
	closeRecords(doc)
	covered := map[string]int{}
	for name, drive := range methods {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &validator{router: router(t, doc, "https://svc.test/api/svc")}
				drive(newWorld(t, v))
				require.NotZero(t, len(v.covered))
				for op, n := range v.covered {
					covered[op] += n
				}
			})
		})
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(operations)), slices.Collect(maps.Keys(covered)))
}

// Responses with records in states that TestMethods does not reach match the description.
func TestRecordsInOtherStates(t *testing.T) {
	doc := load(t)
	closeRecords(doc)
	synctest.Test(t, func(t *testing.T) {
		v := &validator{router: router(t, doc, "https://svc.test/api/svc")}
		w := newWorld(t, v, svctest.WithDeleteTime(1e9), svctest.WithStaleReads(1e9), svctest.WithSeparateStorage())
		for _, status := range []string{svctest.StatusInitializing, svctest.StatusAvailable, svctest.StatusStopped, svctest.StatusUnavailable} {
			w.srv.SetStatus(w.endpoint, status)
			s, err := w.InferenceServices.Get(w.ctx, w.endpoint)
			require.NoError(t, err)
			require.Equal(t, status, string(s.Status))
		}
		w.srv.SetStatusInfo(w.endpoint, "image not found")
		w.no(w.InferenceServices.Scale(w.ctx, w.endpoint, 2))
		w.no(w.InferenceServices.Get(w.ctx, w.endpoint)) // a stale read
		w.no(w.InferenceServices.Delete(w.ctx, w.endpoint))
		w.no(w.InferenceServices.Get(w.ctx, w.endpoint)) // is_deleted is set, and the record is still readable

		w.no(w.VideoJobs.List(w.ctx, &svc.ListJobsOptions{Page: 99}))
		job, err := w.ImageJobs.Create(w.ctx, fullImage)
		require.NoError(t, err)
		job, err = w.ImageJobs.Wait(w.ctx, job.JobID, nil)
		require.NoError(t, err)
		require.Len(t, job.Outputs, 3)

		w.no(w.Files.Delete(w.ctx, w.fileID))
		list, err := w.Files.List(w.ctx)
		require.NoError(t, err)
		require.Empty(t, list)
	})
	synctest.Test(t, func(t *testing.T) { // a service without flavors
		v := &validator{router: router(t, doc, "https://svc.test/api/svc")}
		w := newWorld(t, v, svctest.WithFlavors())
		flavors, err := w.Flavors.List(w.ctx)
		require.NoError(t, err)
		require.Empty(t, flavors)
	})
}

func TestSeededJobs(t *testing.T) {
	doc := load(t)
	closeRecords(doc)
	synctest.Test(t, func(t *testing.T) {
		v := &validator{router: router(t, doc, "https://svc.test/api/svc")}
		w := newWorld(t, v)
		later := time.Now().Add(time.Minute)
		for _, j := range []svctest.Job{
			{Name: "old", Description: "from last year", CreatedAt: later.AddDate(-1, 0, 0)},
			{Status: "failed"},
			{Status: "failed", FinishedAt: later, Outputs: []svctest.JobOutput{{}}},
			{Outputs: []svctest.JobOutput{}},
			{Outputs: []svctest.JobOutput{{MediaURL: "https://cdn.test/1.mp4", ThumbnailURL: "https://cdn.test/1.png"}}},
		} {
			w.no(w.VideoJobs.Get(w.ctx, w.srv.AddJob(j)))
			j.Kind, j.Outputs = svctest.JobImage, j.Outputs[:0:0] // an output of an image job has no thumbnail
			w.no(w.ImageJobs.Get(w.ctx, w.srv.AddJob(j)))
		}
		for range 2 {
			w.no(w.VideoJobs.List(w.ctx, nil))
			w.no(w.ImageJobs.List(w.ctx, nil))
			time.Sleep(time.Minute)
		}
	})
}

// A delete may take effect later, or not at all.
func TestDeletions(t *testing.T) {
	doc := load(t)
	closeRecords(doc)
	synctest.Test(t, func(t *testing.T) {
		v := &validator{router: router(t, doc, "https://svc.test/api/svc")}
		w := newWorld(t, v, svctest.WithCreateVisibilityDelay(5*time.Second), svctest.WithDeleteTime(5*time.Second))
		w.srv.Fault("DELETE", svctest.RouteEndpoint, svctest.AcceptedWithoutEffect())
		w.no(w.InferenceServices.Delete(w.ctx, w.endpoint))
		w.no(w.InferenceServices.Get(w.ctx, w.endpoint))
		w.no(w.InferenceServices.DeleteAndWait(w.ctx, w.endpoint, nil))
		service, err := w.InferenceServices.Deploy(w.ctx, fullService, nil)
		require.NoError(t, err)
		w.no(w.InferenceServices.DeleteAndWait(w.ctx, service.ServiceID, nil))
		require.Zero(t, w.srv.RunningInstances())
	})
}

// An ID is sent as one segment of the path, whatever characters it has.
func TestIDs(t *testing.T) {
	doc := load(t)
	for _, id := range []string{"x y", "x#y", "x?y=1", "x%2Fy", "x%y", "x;y,z&w", "服务", "x+y", "a.b", "...", `"`, strings.Repeat("x", 300)} {
		t.Run(id[:min(len(id), 10)], func(t *testing.T) {
			v := &validator{router: router(t, doc, "https://svc.test/api/svc")}
			w := newWorld(t, v)
			for _, err := range []error{
				second(w.InferenceServices.Get(w.ctx, id)),
				second(w.InferenceServices.Scale(w.ctx, id, 1)),
				w.InferenceServices.Delete(w.ctx, id),
				second(w.VideoJobs.Get(w.ctx, id)),
				w.VideoJobs.Delete(w.ctx, id),
				second(w.ImageJobs.Get(w.ctx, id)),
				w.ImageJobs.Delete(w.ctx, id),
				second(w.Files.Get(w.ctx, id)),
				w.Files.Delete(w.ctx, id),
				second(w.Files.PresignedURL(w.ctx, id)),
			} {
				require.ErrorIs(t, err, svc.ErrNotFound)
			}
			require.Len(t, v.params, 10)
			for _, params := range v.params {
				for name, value := range params {
					require.Equal(t, id, value, name)
				}
			}
			require.Len(t, v.refused, 10)
		})
	}
}

func second[T any](_ T, err error) error { return err }
