package svc_test

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
	"example.com/svc/svctest"
)

func TestOnPollTellsOfEveryLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{wtIs("initializing"), wtCode(503), {err: errReset}, wtIs("scaling"), wtIs("available")}}
		var polls []svc.Poll
		start := time.Now()
		opts := &svc.WaitOptions{OnPoll: func(p svc.Poll) {
			require.Len(t, s.requests("GET"), p.Number, "told before the next look")
			require.Equal(t, time.Since(start), p.Elapsed)
			polls = append(polls, p)
		}}
		service, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", opts)
		require.NoError(t, err)
		require.Len(t, polls, 5)
		gaps := s.gaps()
		for i, p := range polls {
			require.Equal(t, "svc-1", p.ID)
			require.Equal(t, i+1, p.Number)
			require.Equal(t, []string{"initializing", "", "", "scaling", "available"}[i], p.Status)
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

func TestOnPollTellsOfTheLastLook(t *testing.T) {
	for name, tt := range map[string]struct {
		last reply
		want error
	}{
		"failed":        {wtIs("unavailable"), svc.ErrUnavailable},
		"refused":       {wtCode(403), svc.ErrForbidden},
		"out of time":   {wtIs("initializing"), context.DeadlineExceeded},
		"still failing": {wtCode(500), context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &byMethod{get: []reply{wtIs("initializing"), tt.last}}
				var polls []svc.Poll
				opts := &svc.WaitOptions{MinInterval: time.Second, MaxInterval: time.Second, OnPoll: func(p svc.Poll) { polls = append(polls, p) }}
				_, err := s.services(t).WaitUntilAvailable(wtWithin(t, 5*time.Second), "svc-1", opts)
				require.ErrorIs(t, err, tt.want)
				require.Len(t, s.requests("GET"), len(polls))
				for i, gap := range s.gaps() {
					require.Equal(t, gap, polls[i].Next)
				}
				require.Zero(t, polls[len(polls)-1].Next, "there is no next look")
				require.Equal(t, tt.last.status != 0, polls[len(polls)-1].Err != nil)
			})
		})
	}
}

// OnPoll runs in the goroutine that waits: what it does there happens there.
func TestOnPollRunsInTheCallersGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := wtInitializing().services(t)
		opts := &svc.WaitOptions{OnPoll: func(svc.Poll) { panic("enough") }}
		require.PanicsWithValue(t, "enough", func() { _, _ = services.WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", opts) })
	})
}

func TestWaitErrorHasTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{
			wtIs("initializing"), wtIs("initializing"), wtCode(500), wtIs("initializing"), wtIs("scaling"), wtIs("initializing"), wtIs("unavailable"),
		}}
		_, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
		looks := s.requests("GET")
		require.Equal(t, []svc.StatusChange{
			{Status: "initializing", At: looks[0].When}, {Status: "scaling", At: looks[4].When},
			{Status: "initializing", At: looks[5].When}, {Status: "unavailable", At: looks[6].When},
		}, errorAs[*svc.WaitError](t, err).History)
	})
}

func TestWaitErrorHistoryIsBounded(t *testing.T) {
	const changes = 500
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{}
		for i := range changes {
			s.get = append(s.get, wtIs(fmt.Sprintf("phase %d", i)))
		}
		_, err := s.services(t).WaitUntilAvailable(wtWithin(t, 3*time.Hour), "svc-1", wtEvery(time.Second))
		e := errorAs[*svc.WaitError](t, err)
		require.Len(t, e.History, 64)
		for i, change := range e.History {
			require.Equal(t, fmt.Sprintf("phase %d", changes-64+i), change.Status)
		}
		require.Less(t, len(e.Error()), 300)
	})
}

func TestWaitLivesThroughWhatMayPass(t *testing.T) {
	late := reply{body: wtRecord("available", 1), after: time.Minute} // more than an attempt may take
	for name, step := range map[string]reply{
		"408": wtCode(408), "425": wtCode(425), "429": wtCode(429), "500": wtCode(500), "502": wtCode(502), "503": wtCode(503),
		"504": wtCode(504), "520": wtCode(520), "lost": {err: errReset}, "cut": {body: wtRecord("available", 1), cut: true}, "late": late,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &byMethod{get: append(append([]reply{wtIs("initializing")}, wtTimes(20, step)...), wtIs("available"))}
				_, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
				require.NoError(t, err)
				require.Len(t, s.requests("GET"), 22, "one attempt per look")
			})
		})
	}
}

func TestWaitEndsAtOnceWithWhatWillNotPass(t *testing.T) {
	for status, want := range map[int]error{
		401: svc.ErrUnauthorized, 403: svc.ErrForbidden, 404: svc.ErrNotFound, 410: svc.ErrNotFound,
		302: svc.ErrRedirect, 400: nil, 405: nil, 409: svc.ErrConflict, 501: svc.ErrServer,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &byMethod{get: []reply{wtIs("initializing"), wtCode(status), wtCode(status), wtIs("available")}}
				last, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
				if want == svc.ErrNotFound { //nolint:errorlint // of this table: proven by a second poll
					require.Len(t, s.requests("GET"), 3)
				} else {
					require.Len(t, s.requests("GET"), 2)
				}
				if want != nil {
					require.ErrorIs(t, err, want)
				}
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				var answer *svc.Error
				require.ErrorAs(t, err, &answer)
				require.Equal(t, status, answer.StatusCode)
				e := errorAs[*svc.WaitError](t, err)
				require.Same(t, answer, e.Err)
				require.NoError(t, e.LastErr, "that would tell it twice")
				require.Equal(t, 1, strings.Count(err.Error(), fmt.Sprintf("scripted %d", status)))
				require.Equal(t, svc.InferenceServiceStatusInitializing, last.Status)
			})
		})
	}
}

// What fails on this side, before anything is sent, is no trouble of the service.
func TestWaitEndsWithoutAToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, locked := wtInitializing(), errors.New("the vault is locked")
		source := svc.WithTokenSource(func(context.Context) (string, error) { return "", locked })
		_, err := s.services(t, source).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
		require.ErrorIs(t, err, locked)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, errorAs[*svc.WaitError](t, err).Polls)
		require.Empty(t, s.seen)
	})
}

func TestWaitRefusesWhatCannotBeAnID(t *testing.T) {
	s := wtInitializing()
	for _, id := range []string{"", " ", "..", "a/b", "a\nb"} {
		_, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), id, nil)
		require.ErrorAs(t, err, new(*svc.ValidationError), "%q", id)
		require.ErrorAs(t, s.services(t).WaitUntilDeleted(wtWithin(t, time.Hour), id, nil), new(*svc.ValidationError), "%q", id)
	}
	require.Empty(t, s.seen)
}

func TestWaitUntilDeleted(t *testing.T) {
	gone := reply{body: wtRecord("stopped", 0, `"is_deleted":true`)}
	page := reply{status: 404, body: "<html>404 page not found</html>"}
	five := wtTimes(5, page)
	for name, tt := range map[string]struct {
		get   []reply
		want  error
		looks int
	}{
		"not found":              {[]reply{wtCode(404)}, nil, 2},
		"gone":                   {[]reply{wtIs("available"), wtCode(410)}, nil, 3},
		"the record says so":     {[]reply{wtIs("available"), gone}, nil, 2},
		"whatever its status":    {[]reply{wtIs("unavailable"), wtIs("stopped"), wtIs("deleting"), wtCode(404)}, nil, 5},
		"shaky":                  {[]reply{wtCode(503), {err: errReset}, {body: "<html>"}, wtCode(429), wtCode(404)}, nil, 6},
		"a proxy's 404":          {append(five, wtIs("available"), page, wtCode(404)), nil, 9},
		"a proxy's 404 for good": {append(five, page, wtCode(404)), svc.ErrNotFound, 6}, // but no success
		"unauthorized":           {[]reply{wtIs("available"), wtCode(401)}, svc.ErrUnauthorized, 2},
		"forbidden is not gone":  {[]reply{wtCode(403)}, svc.ErrForbidden, 1},
		"a failure is not gone":  {[]reply{wtCode(500)}, context.DeadlineExceeded, 0},
		"it does not go":         {[]reply{wtIs("available")}, context.DeadlineExceeded, 0},
		"stopped is not deleted": {[]reply{wtIs("stopped")}, context.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &byMethod{get: tt.get}
				var last svc.Poll
				err := s.services(t).WaitUntilDeleted(wtWithin(t, time.Hour), "svc-1", &svc.WaitOptions{NotFoundGrace: -1, OnPoll: func(p svc.Poll) { last = p }})
				require.ErrorIs(t, err, tt.want)
				require.Zero(t, last.Next)
				if tt.want == nil {
					require.NoError(t, last.Err, "that it is gone is good news")
					require.Contains(t, []string{"deleted", "stopped"}, last.Status)
				}
				if tt.looks > 0 {
					require.Len(t, s.requests("GET"), tt.looks)
				}
				require.Empty(t, s.requests("DELETE"), "it only looks")
				if tt.want != nil {
					require.Equal(t, "deleted", errorAs[*svc.WaitError](t, err).Want)
				}
			})
		})
	}
}

// A service may bill for an endpoint until it is really gone.
func TestWaitUntilDeletedWaitsForTheRealEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(svctest.WithDeleteTime(10 * time.Minute))
		id := srv.AddEndpoint(svctest.Endpoint{Instances: 3})
		services := srv.Client().InferenceServices
		require.NoError(t, services.Delete(t.Context(), id))
		require.Equal(t, 3, srv.RunningInstances())
		require.NoError(t, services.WaitUntilDeleted(wtWithin(t, time.Hour), id, nil))
		require.Zero(t, srv.RunningInstances())
	})
}

func TestWaitForAConditionOfYourOwn(t *testing.T) {
	odd := []reply{
		wtIs("initializing"), wtIs("unavailable"), wtIs("stopped"), wtCode(503), wtIs("available"),
		{body: wtRecord("available", 1, `"is_deleted":true`)}, {body: wtRecord("available", 7)}, wtIs("available"),
	}
	seven := func(s *svc.InferenceService) (bool, error) { return s.ResourceMetadata.TargetInstanceNumber == 7, nil }
	synctest.Test(t, func(t *testing.T) { // nothing but the function ends it
		s := &byMethod{get: odd}
		probed := &svc.WaitOptions{Probe: func(context.Context, string) error { return errors.New("not asked") }}
		service, err := s.services(t).Wait(wtWithin(t, time.Hour), "svc-1", seven, probed)
		require.NoError(t, err)
		require.EqualValues(t, 7, service.ResourceMetadata.TargetInstanceNumber)
		require.Len(t, s.requests("GET"), 7)
	})
	synctest.Test(t, func(t *testing.T) { // its error does
		s := &byMethod{get: odd}
		full := errors.New("no room left")
		last, err := s.services(t).Wait(wtWithin(t, time.Hour), "svc-1", func(s *svc.InferenceService) (bool, error) {
			if s.Status == svc.InferenceServiceStatusStopped {
				return false, full
			}
			return false, nil
		}, nil)
		require.ErrorIs(t, err, full)
		require.ErrorContains(t, err, "no room left")
		require.Equal(t, svc.InferenceServiceStatusStopped, last.Status)
		e := errorAs[*svc.WaitError](t, err)
		require.Same(t, full, e.Err)
		require.Equal(t, 3, e.Polls)
		require.Len(t, s.requests("GET"), 3)
	})
	synctest.Test(t, func(t *testing.T) { // even one that looks as if it might pass
		s := &byMethod{get: odd}
		_, err := s.services(t).Wait(wtWithin(t, time.Hour), "svc-1", func(*svc.InferenceService) (bool, error) {
			return false, &svc.Error{StatusCode: 503}
		}, nil)
		require.ErrorIs(t, err, svc.ErrServer)
		require.Len(t, s.requests("GET"), 1)
	})
	synctest.Test(t, func(t *testing.T) { // and there has to be one
		s := &byMethod{get: odd}
		_, err := s.services(t).Wait(wtWithin(t, time.Hour), "svc-1", nil, nil)
		require.ErrorAs(t, err, new(*svc.ValidationError))
		require.Empty(t, s.seen)
	})
	synctest.Test(t, func(t *testing.T) { // and the lost token
		s := &byMethod{get: []reply{wtCode(401)}}
		_, err := s.services(t).Wait(wtWithin(t, time.Hour), "svc-1", seven, nil)
		require.ErrorIs(t, err, svc.ErrUnauthorized)
	})
}

func TestWaitErrorReadsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{wtIs("initializing"), wtCode(503)}}
		_, err := s.services(t).WaitUntilAvailable(wtWithin(t, 90*time.Second), "svc-1", wtEvery(time.Minute))
		require.EqualError(t, err, `svc: waiting for svc-1 to be available: context deadline exceeded (last status "initializing"; 3 polls in 1m30s); `+
			`the last poll failed: 503 Service Unavailable: scripted 503 (id svc-1)`)
	})
	synctest.Test(t, func(t *testing.T) {
		s := &byMethod{get: []reply{wtCode(401)}}
		_, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
		require.EqualError(t, err, `svc: waiting for svc-1 to be available: 401 Unauthorized: scripted 401 (id svc-1) (never read; 1 poll in 0s)`)
	})
}

// What a service says about a status may echo the token, or be a whole log.
func TestWaitErrorTextIsSafeAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		info := `registry refused ` + testToken + `\n` + strings.Repeat("log line ", 1<<16)
		s := &byMethod{get: []reply{{body: wtRecord("unavailable", 1, `"status_info":"`+info+`"`)}}}
		_, err := s.services(t).WaitUntilAvailable(wtWithin(t, time.Hour), "svc-1", nil)
		require.ErrorIs(t, err, svc.ErrUnavailable)
		for _, verb := range []string{"%v", "%+v", "%s", "%q"} {
			text := fmt.Sprintf(verb, err)
			require.Contains(t, text, "registry refused")
			require.NotContains(t, text, testToken)
			require.NotContains(t, text, "\n")
			require.Less(t, len(text), 1000)
		}
	})
}
