package waits_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

func TestOnPollTellsOfEveryPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("initializing"), testkit.Fails(503), {Err: testkit.ErrReset}, testkit.EndpointIs("scaling"), testkit.EndpointIs("available")}}
		var polls []svc.Poll
		start := time.Now()
		opts := &svc.WaitOptions{OnPoll: func(p svc.Poll) {
			require.Len(t, s.Requests("GET"), p.Number, "OnPoll must be called before the next poll")
			require.Equal(t, time.Since(start), p.Elapsed)
			polls = append(polls, p)
		}}
		service, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", opts)
		require.NoError(t, err)
		require.Len(t, polls, 5)
		gaps := s.Gaps()
		for i, p := range polls {
			require.Equal(t, "svc-1", p.ID)
			require.Equal(t, i+1, p.Number)
			require.Equal(t, []string{"initializing", "", "", "scaling", "available"}[i], p.Status)
			require.Equal(t, i == 0 || i > 2, p.Changed)
			require.Equal(t, p.Status == "", p.Err != nil)
			require.Equal(t, p.Status == "", p.Service == nil)
			if i < len(gaps) {
				require.Equal(t, gaps[i], p.Next)
			}
		}
		require.ErrorIs(t, polls[1].Err, svc.ErrServer)
		require.Same(t, service, polls[4].Service)
		require.Zero(t, polls[4].Next)
	})
}

func TestOnPollTellsOfTheLastPoll(t *testing.T) {
	for name, tt := range map[string]struct {
		last testkit.Reply
		want error
	}{
		"failed":        {testkit.EndpointIs("unavailable"), svc.ErrUnavailable},
		"out of time":   {testkit.EndpointIs("initializing"), context.DeadlineExceeded},
		"still failing": {testkit.Fails(500), context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("initializing"), tt.last}}
				var polls []svc.Poll
				opts := &svc.WaitOptions{MinInterval: time.Second, MaxInterval: time.Second, OnPoll: func(p svc.Poll) { polls = append(polls, p) }}
				_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, 5*time.Second), "svc-1", opts)
				require.ErrorIs(t, err, tt.want)
				require.Len(t, s.Requests("GET"), len(polls))
				for i, gap := range s.Gaps() {
					require.Equal(t, gap, polls[i].Next)
				}
				require.Zero(t, polls[len(polls)-1].Next, "there is no next poll")
				require.Equal(t, tt.last.Status != 0, polls[len(polls)-1].Err != nil)
			})
		})
	}
}

// OnPoll is called in the goroutine of the wait. So a panic in it reaches the caller.
func TestOnPollRunsInTheCallersGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := alwaysInitializing().Services(t)
		opts := &svc.WaitOptions{OnPoll: func(svc.Poll) { panic("enough") }}
		require.PanicsWithValue(t, "enough", func() { _, _ = services.WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", opts) })
	})
}

func TestWaitErrorHasTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{
			testkit.EndpointIs("initializing"), testkit.EndpointIs("initializing"), testkit.Fails(500), testkit.EndpointIs("initializing"), testkit.EndpointIs("scaling"), testkit.EndpointIs("initializing"), testkit.EndpointIs("unavailable"),
		}}
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
		polls := s.Requests("GET")
		require.Equal(t, []svc.StatusChange{
			{Status: "initializing", At: polls[0].When}, {Status: "scaling", At: polls[4].When},
			{Status: "initializing", At: polls[5].When}, {Status: "unavailable", At: polls[6].When},
		}, testkit.ErrorAs[*svc.WaitError](t, err).History)
	})
}

func TestWaitErrorHistoryIsBounded(t *testing.T) {
	const changes = 500
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{}
		for i := range changes {
			s.Get = append(s.Get, testkit.EndpointIs(fmt.Sprintf("phase %d", i)))
		}
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, 3*time.Hour), "svc-1", testkit.Every(time.Second))
		e := testkit.ErrorAs[*svc.WaitError](t, err)
		require.Len(t, e.History, 64)
		for i, change := range e.History {
			require.Equal(t, fmt.Sprintf("phase %d", changes-64+i), change.Status)
		}
		require.Less(t, len(e.Error()), 300)
	})
}

func TestWaitToleratesWhatMayPass(t *testing.T) {
	late := testkit.Reply{Body: testkit.EndpointJSON("available", 1), After: time.Minute} // longer than the timeout of an attempt
	for name, step := range map[string]testkit.Reply{
		"408": testkit.Fails(408), "425": testkit.Fails(425), "429": testkit.Fails(429), "500": testkit.Fails(500), "502": testkit.Fails(502), "503": testkit.Fails(503),
		"504": testkit.Fails(504), "520": testkit.Fails(520), "lost": {Err: testkit.ErrReset}, "cut": {Body: testkit.EndpointJSON("available", 1), Cut: true}, "late": late,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: append(append([]testkit.Reply{testkit.EndpointIs("initializing")}, testkit.Times(20, step)...), testkit.EndpointIs("available"))}
				_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
				require.NoError(t, err)
				require.Len(t, s.Requests("GET"), 22, "one attempt per poll")
			})
		})
	}
}

// A gateway may send a refusal for a moment. So after a first record, a refusal must still be
// there 10 s later. As the first response that this client gets, it ends the wait at once.
func TestWaitEndsWithWhatWillNotPass(t *testing.T) {
	for status, want := range map[int]error{
		401: svc.ErrUnauthorized, 403: svc.ErrForbidden, 404: svc.ErrNotFound, 410: svc.ErrNotFound,
		302: nil, 400: nil, 405: nil, 409: svc.ErrConflict, 423: nil,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("initializing"), testkit.Fails(status)}}
				last, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
				require.InDelta(t, 12, testkit.ErrorAs[*svc.WaitError](t, err).Elapsed.Seconds(), 4)
				if want != svc.ErrNotFound {
					first := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(status)}}
					_, atOnce := first.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
					require.Zero(t, testkit.ErrorAs[*svc.WaitError](t, atOnce).Elapsed)
				}
				if want != nil {
					require.ErrorIs(t, err, want)
				}
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				var answer *svc.Error
				require.ErrorAs(t, err, &answer)
				require.Equal(t, status, answer.StatusCode)
				e := testkit.ErrorAs[*svc.WaitError](t, err)
				require.Same(t, answer, e.Err)
				require.NoError(t, e.LastErr, "LastErr would repeat Err")
				require.Equal(t, 1, strings.Count(err.Error(), fmt.Sprintf("scripted %d", status)))
				require.Equal(t, svc.InferenceServiceStatusInitializing, last.Status)
			})
		})
	}
}

func TestWaitRefusesWhatCannotBeAnID(t *testing.T) {
	s := alwaysInitializing()
	for _, id := range []string{"", " ", "..", "a/b", "a\nb"} {
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), id, nil)
		require.ErrorAs(t, err, new(*svc.ValidationError), "%q", id)
		require.ErrorAs(t, s.Services(t).WaitUntilDeleted(testkit.Within(t, time.Hour), id, nil), new(*svc.ValidationError), "%q", id)
	}
	require.Empty(t, s.Seen)
}

func TestWaitUntilDeleted(t *testing.T) {
	gone := testkit.Reply{Body: testkit.EndpointJSON("stopped", 0, `"is_deleted":true`)}
	page := testkit.Reply{Status: 404, Body: "<html>404 page not found</html>"}
	five, known := testkit.Times(5, page), testkit.EndpointIs("available")
	for name, tt := range map[string]struct {
		get   []testkit.Reply
		want  error
		polls int
	}{
		"not found":              {[]testkit.Reply{testkit.Fails(404)}, svc.ErrNotFound, 0}, // nobody knows this ID
		"gone":                   {[]testkit.Reply{known, testkit.Fails(410)}, nil, 0},
		"the record says so":     {[]testkit.Reply{testkit.EndpointIs("available"), gone}, nil, 2},
		"whatever its status":    {[]testkit.Reply{testkit.EndpointIs("unavailable"), testkit.EndpointIs("stopped"), testkit.EndpointIs("deleting"), testkit.Fails(404)}, nil, 0},
		"shaky":                  {[]testkit.Reply{known, testkit.Fails(503), {Err: testkit.ErrReset}, {Body: "<html>"}, testkit.Fails(429), testkit.Fails(404)}, nil, 0},
		"a proxy's 404":          {append(five, testkit.EndpointIs("available"), page, testkit.Fails(404)), nil, 0},
		"a proxy's 404 for good": {append([]testkit.Reply{known}, page), nil, 0}, // a proof, after a minute
		"unauthorized":           {[]testkit.Reply{testkit.EndpointIs("available"), testkit.Fails(401)}, svc.ErrUnauthorized, 0},
		"forbidden is not gone":  {[]testkit.Reply{testkit.Fails(403)}, svc.ErrForbidden, 1},
		"a failure is not gone":  {[]testkit.Reply{testkit.Fails(500)}, context.DeadlineExceeded, 0},
		"it does not go":         {[]testkit.Reply{testkit.EndpointIs("available")}, context.DeadlineExceeded, 0},
		"stopped is not deleted": {[]testkit.Reply{testkit.EndpointIs("stopped")}, context.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &testkit.ByMethod{Get: tt.get}
				var last svc.Poll
				err := s.Services(t).WaitUntilDeleted(testkit.Within(t, time.Hour), "svc-1", &svc.WaitOptions{NotFoundGrace: -1, OnPoll: func(p svc.Poll) { last = p }})
				require.ErrorIs(t, err, tt.want)
				require.Zero(t, last.Next)
				if tt.want == nil {
					require.NoError(t, last.Err, "for this wait, not found is no error")
					require.Contains(t, []string{"deleted", "stopped"}, last.Status)
				}
				if tt.polls > 0 {
					require.Len(t, s.Requests("GET"), tt.polls)
				}
				require.Empty(t, s.Requests("DELETE"), "the wait must only poll")
				if tt.want != nil {
					require.Equal(t, "deleted", testkit.ErrorAs[*svc.WaitError](t, err).Want)
				}
			})
		})
	}
}

// An endpoint may be billed until it is really deleted, so the wait ends only then.
func TestWaitUntilDeletedWaitsForTheRealEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeleteTime(10 * time.Minute))
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 3})
		services := srv.Client().InferenceServices
		require.NoError(t, services.Delete(t.Context(), id))
		require.Equal(t, 3, srv.RunningInstances())
		require.NoError(t, services.WaitUntilDeleted(testkit.Within(t, time.Hour), id, nil))
		require.Zero(t, srv.RunningInstances())
	})
}

func TestWaitForAConditionOfYourOwn(t *testing.T) {
	odd := []testkit.Reply{
		testkit.EndpointIs("initializing"), testkit.EndpointIs("unavailable"), testkit.EndpointIs("stopped"), testkit.Fails(503), testkit.EndpointIs("available"),
		{Body: testkit.EndpointJSON("available", 7)}, testkit.EndpointIs("available"),
	}
	seven := func(s *svc.InferenceService) (bool, error) { return s.ResourceMetadata.TargetInstanceNumber == 7, nil }
	synctest.Test(t, func(t *testing.T) { // only the function ends the wait
		s := &testkit.ByMethod{Get: odd}
		service, err := s.Services(t).Wait(testkit.Within(t, time.Hour), "svc-1", seven, nil)
		require.NoError(t, err)
		require.EqualValues(t, 7, service.ResourceMetadata.TargetInstanceNumber)
		require.Len(t, s.Requests("GET"), 6)
	})
	synctest.Test(t, func(t *testing.T) { // an error of the function ends the wait
		s := &testkit.ByMethod{Get: odd}
		full := errors.New("no room left")
		last, err := s.Services(t).Wait(testkit.Within(t, time.Hour), "svc-1", func(s *svc.InferenceService) (bool, error) {
			if s.Status == svc.InferenceServiceStatusStopped {
				return false, full
			}
			return false, nil
		}, nil)
		require.ErrorIs(t, err, full)
		require.ErrorContains(t, err, "no room left")
		require.Equal(t, svc.InferenceServiceStatusStopped, last.Status)
		e := testkit.ErrorAs[*svc.WaitError](t, err)
		require.Same(t, full, e.Err)
		require.Equal(t, 3, e.Polls)
		require.Len(t, s.Requests("GET"), 3)
	})
	synctest.Test(t, func(t *testing.T) { // also an error that looks temporary
		s := &testkit.ByMethod{Get: odd}
		_, err := s.Services(t).Wait(testkit.Within(t, time.Hour), "svc-1", func(*svc.InferenceService) (bool, error) {
			return false, &svc.Error{StatusCode: 503}
		}, nil)
		require.ErrorIs(t, err, svc.ErrServer)
		require.Len(t, s.Requests("GET"), 1)
	})
	synctest.Test(t, func(t *testing.T) { // the function must not be nil
		s := &testkit.ByMethod{Get: odd}
		_, err := s.Services(t).Wait(testkit.Within(t, time.Hour), "svc-1", nil, nil)
		require.ErrorAs(t, err, new(*svc.ValidationError))
		require.Empty(t, s.Seen)
	})
	synctest.Test(t, func(t *testing.T) { // a refused token also ends the wait
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(401)}}
		_, err := s.Services(t).Wait(testkit.Within(t, time.Hour), "svc-1", seven, nil)
		require.ErrorIs(t, err, svc.ErrUnauthorized)
	})
}

func TestWaitErrorReadsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.EndpointIs("initializing"), testkit.Fails(503)}}
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, 90*time.Second), "svc-1", testkit.Every(time.Minute))
		require.EqualError(t, err, `svc: waiting for svc-1 to be available: context deadline exceeded; last status "initializing" after 3 polls in 1m30s; `+
			`the last poll failed: 503 Service Unavailable: scripted 503 (id svc-1)`)
	})
	synctest.Test(t, func(t *testing.T) {
		s := &testkit.ByMethod{Get: []testkit.Reply{testkit.Fails(401)}}
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
		require.EqualError(t, err, `svc: waiting for svc-1 to be available: 401 Unauthorized: scripted 401 (id svc-1); no status after 1 poll in 0s`)
	})
}

// The status_info of a service may contain the token, or be a whole log.
func TestWaitErrorTextIsSafeAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := `registry refused ` + testkit.Token + `\n` + strings.Repeat("log line ", 1<<16)
		s := &testkit.ByMethod{Get: []testkit.Reply{{Body: testkit.EndpointJSON("unavailable", 1, `"status_info":"`+info+`"`)}}}
		_, err := s.Services(t).WaitUntilAvailable(testkit.Within(t, time.Hour), "svc-1", nil)
		require.ErrorIs(t, err, svc.ErrUnavailable)
		for _, verb := range []string{"%v", "%+v", "%s", "%q"} {
			text := fmt.Sprintf(verb, err)
			require.Contains(t, text, "registry refused")
			require.NotContains(t, text, testkit.Token)
			require.NotContains(t, text, "\n")
			require.Less(t, len(text), 1000)
		}
	})
}
