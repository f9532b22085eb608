package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/errno"
	"example.com/svc/internal/testkit"
)

// A delete whose response is "not found" has succeeded only if an earlier attempt may
// have taken effect.
func TestDeleteThatFindsNothing(t *testing.T) {
	gone, busy, done := testkit.Status(404), testkit.Status(429), testkit.OpDelete.OK
	page := testkit.Reply{Status: 404, Body: "<html>nginx</html>"}
	for name, tt := range map[string]struct {
		replies []testkit.Reply
		want    error
	}{
		"at first":                     {[]testkit.Reply{gone}, svc.ErrNotFound},
		"gone at first":                {[]testkit.Reply{testkit.Status(410)}, svc.ErrNotFound},
		"after a lost answer":          {[]testkit.Reply{testkit.Lost, gone}, nil},
		"gone after a lost answer":     {[]testkit.Reply{testkit.Lost, testkit.Status(410)}, nil},
		"after a cut answer":           {[]testkit.Reply{testkit.CutShort, gone}, nil},
		"after no answer":              {[]testkit.Reply{{After: testkit.Ages}, gone}, nil},
		"after a gateway's timeout":    {[]testkit.Reply{testkit.Status(504), gone}, nil},
		"after a bad gateway":          {[]testkit.Reply{testkit.Status(502), gone}, nil},
		"after a refusal":              {[]testkit.Reply{testkit.Status(503), gone}, svc.ErrNotFound},
		"after a server error":         {[]testkit.Reply{testkit.Status(500), gone}, svc.ErrNotFound},
		"after a refused connection":   {[]testkit.Reply{testkit.Refused, gone}, svc.ErrNotFound},
		"after too many requests":      {[]testkit.Reply{busy, gone}, svc.ErrNotFound},
		"lost, then refused":           {[]testkit.Reply{testkit.Lost, testkit.Refused, gone}, nil},
		"refused, then lost":           {[]testkit.Reply{testkit.Refused, testkit.Lost, gone}, nil},
		"lost, then not allowed":       {[]testkit.Reply{testkit.Lost, testkit.Status(403)}, svc.ErrForbidden},
		"lost, then a proxy's page":    {[]testkit.Reply{testkit.Lost, page}, svc.ErrNotFound}, // the proxy does not know whether the record is deleted
		"lost, then done":              {[]testkit.Reply{testkit.Lost, done}, nil},
		"lost, then conflict":          {[]testkit.Reply{testkit.Lost, testkit.Status(409)}, svc.ErrConflict},
		"lost to the end":              {[]testkit.Reply{testkit.Lost, testkit.Lost, testkit.Lost, testkit.Lost, testkit.Lost}, errno.ConnReset},
		"server errors to the end":     {[]testkit.Reply{testkit.Status(500), testkit.Status(502), testkit.Status(503), testkit.Status(504), testkit.Status(500)}, svc.ErrServer},
		"refused to the end":           {[]testkit.Reply{testkit.Refused, testkit.Refused, testkit.Refused, testkit.Refused, testkit.Refused}, errno.ConnRefused},
		"too many requests to the end": {[]testkit.Reply{busy, busy, busy, busy, busy}, svc.ErrRateLimited},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testkit.Play(t, tt.replies...)
				require.ErrorIs(t, testkit.OpDelete.Do(t.Context(), s.Client()), tt.want)
			})
		})
	}
	for _, op := range []testkit.Operation{testkit.OpGet, testkit.OpUpdate} {
		t.Run(op.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testkit.Play(t, testkit.Lost, gone)
				require.ErrorIs(t, op.Do(t.Context(), s.Client()), svc.ErrNotFound)
			})
		})
	}
}

// In that case the body of the 404 is not decoded into the caller's value.
func TestDeleteThatFindsNothingReadsNothing(t *testing.T) {
	for name, body := range map[string]string{
		"an error": `{"error":{"code":"not_found"},"id":"x"}`, "a message": `{"message":"none","id":"x"}`, "text": "not found", "nothing": "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				none := testkit.Reply{Status: 404, Body: body}
				require.NoError(t, testkit.OpDelete.Do(t.Context(), testkit.Play(t, testkit.Lost, none).Client()))
				out := map[string]any{"mine": true}
				require.NoError(t, testkit.Play(t, testkit.Lost, none).Client().Do(t.Context(), "DELETE", "/v2/x", nil, &out))
				require.Equal(t, map[string]any{"mine": true}, out)
				raw := json.RawMessage("mine")
				require.NoError(t, testkit.Play(t, testkit.Lost, none).Client().Do(t.Context(), "DELETE", "/v2/x", nil, &raw))
				require.Equal(t, "mine", string(raw))
				require.NoError(t, testkit.Play(t, testkit.Lost, none).Client().Do(t.Context(), "DELETE", "/v2/x", nil, nil))
			})
		})
	}
}

// Every attempt sends the same request, including the body.
func TestAttemptsAreAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, op := range testkit.Operations {
			s := testkit.Play(t, testkit.Status(429), testkit.Status(429), op.OK)
			require.NoError(t, op.Do(t.Context(), s.Client(), svc.WithHeader("X-Mine", "1"), svc.WithQuery("q", "a b")))
			all := s.Seen()
			for _, r := range all[1:] {
				r.At, r.When = all[0].At, all[0].When
				require.Equal(t, all[0], r)
			}
		}
	})
}

func TestMaxAttempts(t *testing.T) {
	policy := func(n int) svc.Option { return svc.WithRetry(svc.RetryPolicy{MaxAttempts: n}) }
	for name, tt := range map[string]struct {
		opts []svc.Option
		call []svc.RequestOption
		want int
	}{
		"default":                   {nil, nil, 5},
		"policy without a number":   {[]svc.Option{svc.WithRetry(svc.RetryPolicy{MinDelay: 1})}, nil, 5},
		"no retries":                {[]svc.Option{policy(1)}, nil, 1},
		"three":                     {[]svc.Option{policy(3)}, nil, 3},
		"no retries for a call":     {nil, []svc.RequestOption{svc.WithMaxAttempts(1)}, 1},
		"more for a call":           {[]svc.Option{policy(1)}, []svc.RequestOption{svc.WithMaxAttempts(7)}, 7},
		"the last option wins":      {[]svc.Option{policy(3), policy(2)}, nil, 2},
		"the last of a call's wins": {nil, []svc.RequestOption{svc.WithMaxAttempts(7), svc.WithMaxAttempts(2)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, f := range []testkit.Reply{testkit.Status(503), testkit.Lost} {
					s := testkit.Loop(t, f)
					var resp svc.Response
					err := testkit.OpGet.Do(t.Context(), s.Client(tt.opts...), append(tt.call, svc.WithResponse(&resp))...)
					require.Len(t, s.Seen(), tt.want)
					require.Equal(t, tt.want, resp.Attempts)
					if f.Status != 0 {
						require.Equal(t, tt.want, testkit.ErrorAs[*svc.Error](t, err).Attempts)
					} else {
						require.Equal(t, tt.want, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)
					}
					if tt.want > 1 {
						require.ErrorContains(t, err, fmt.Sprintf("%d attempts)", tt.want))
					}
				}
			})
		})
	}
}

// After the last attempt, the error holds the last response, the last network error, or
// the end of ctx.
func TestLastResponseIsKept_B03(t *testing.T) {
	t.Run("answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := testkit.Loop(t, testkit.Reply{Status: 503, Body: `{"message":"down for maintenance"}`, Header: map[string]string{"X-Request-Id": "req-7"}})
			err := testkit.OpGet.Do(t.Context(), s.Client())
			e := testkit.ErrorAs[*svc.Error](t, fmt.Errorf("wrapped: %w", err))
			require.Equal(t, 503, e.StatusCode)
			require.Equal(t, "down for maintenance", e.Message)
			require.Equal(t, "req-7", e.RequestID)
			require.Equal(t, 5, e.Attempts)
			require.JSONEq(t, `{"message":"down for maintenance"}`, string(e.Body))
			require.Equal(t, "svc: GET /v1/inference-service/{service_id}: 503 Service Unavailable: down for maintenance (id svc-1, request req-7, 5 attempts)", err.Error())
			require.ErrorIs(t, err, svc.ErrServer)
		})
	})
	t.Run("closed port", func(t *testing.T) {
		client := testkit.ClientAt(t, "http://"+testkit.ClosedPort, testkit.Tries(2, time.Millisecond))
		for _, op := range testkit.Operations {
			err := op.Do(t.Context(), client)
			require.ErrorIs(t, err, errno.ConnRefused)
			require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.NotErrorIs(t, err, context.Canceled)
			require.Equal(t, 2, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			require.ErrorIs(t, testkit.OpGet.Do(ctx, testkit.Loop(t, testkit.Reply{After: testkit.Ages}).Client()), context.Canceled)
		})
	})
}
