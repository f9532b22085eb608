package faults_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

var errStop = errors.New("the user pressed stop")

// When ctx ends, the call ends at once, in whatever state it is. The error has the ctx
// error and its cause.
func TestEndOfContext_B06(t *testing.T) {
	asked := testkit.Reply{Status: 503, Body: `{"message":"down"}`, Header: map[string]string{"Retry-After": "25"}}
	tokens := []svc.Option{svc.WithTokenSource(func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })}
	limits := []svc.Option{svc.WithRateLimiter(testkit.Limiter(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))}
	short := []svc.Option{testkit.Tries(5, time.Second)}
	for name, tt := range map[string]struct {
		op       testkit.Operation
		replies  []testkit.Reply
		opts     []svc.Option
		attempts int
		last     int  // status of the last response; 0: there was none
		unknown  bool // the outcome is unknown
	}{
		"get, in flight":              {testkit.OpGet, []testkit.Reply{{After: testkit.Ages}}, nil, 1, 0, false},
		"get, within the answer":      {testkit.OpGet, []testkit.Reply{{Status: 200, Body: "{", Stall: true}}, nil, 1, 0, false},
		"get, within an error":        {testkit.OpGet, []testkit.Reply{{Status: 404, Body: "{", Stall: true}}, nil, 1, 404, false},
		"get, after an answer":        {testkit.OpGet, []testkit.Reply{asked}, nil, 1, 503, false},
		"get, after a lost answer":    {testkit.OpGet, []testkit.Reply{testkit.Lost}, nil, 1, 0, false},
		"get, after a cut answer":     {testkit.OpGet, []testkit.Reply{testkit.CutShort}, nil, 1, 0, false},
		"get, after a refusal":        {testkit.OpGet, []testkit.Reply{testkit.Refused}, nil, 1, 0, false},
		"get, after no answer":        {testkit.OpGet, []testkit.Reply{{After: testkit.Ages}}, []svc.Option{svc.WithTimeout(time.Second)}, 1, 0, false},
		"get, second in flight":       {testkit.OpGet, []testkit.Reply{testkit.Lost, {After: testkit.Ages}}, short, 2, 0, false},
		"delete, in flight":           {testkit.OpDelete, []testkit.Reply{{After: testkit.Ages}}, nil, 1, 0, false},
		"delete, after a lost answer": {testkit.OpDelete, []testkit.Reply{testkit.Lost}, nil, 1, 0, false},
		"update, after an answer":     {testkit.OpUpdate, []testkit.Reply{asked}, nil, 1, 503, false},
		"create, in flight":           {testkit.OpCreate, []testkit.Reply{{After: testkit.Ages}}, nil, 1, 0, true},
		"create, within the answer":   {testkit.OpCreate, []testkit.Reply{{Status: 201, Body: `{"service_id":"svc-1"`, Stall: true}}, nil, 1, 201, true},
		"create, busy":                {testkit.OpCreate, []testkit.Reply{{Status: 429}}, nil, 1, 429, false},
		"create, after a refusal":     {testkit.OpCreate, []testkit.Reply{testkit.Refused}, nil, 1, 0, false},
		// A transport that is not from net/http cannot prove that nothing was sent.
		"create, before it is sent":   {testkit.OpCreate, []testkit.Reply{{After: testkit.Ages, Unsent: true}}, nil, 1, 0, true},
		"create, second in flight":    {testkit.OpCreate, []testkit.Reply{{Status: 429}, {After: testkit.Ages}}, short, 2, 0, true},
		"get, held by the limiter":    {testkit.OpGet, nil, limits, 0, 0, false},
		"create, held by the limiter": {testkit.OpCreate, nil, limits, 0, 0, false},
		"get, waiting for a token":    {testkit.OpGet, nil, tokens, 0, 0, false},
		"create, waiting for a token": {testkit.OpCreate, nil, tokens, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			for end, makeCtx := range map[error]func(ctx context.Context, d time.Duration) (context.Context, func()){
				context.Canceled: func(ctx context.Context, d time.Duration) (context.Context, func()) {
					ctx, cancel := context.WithCancelCause(ctx)
					time.AfterFunc(d, func() { cancel(errStop) })
					return ctx, func() { cancel(nil) }
				},
				// With a visible deadline the call would end earlier, so the deadline is
				// hidden.
				context.DeadlineExceeded: func(ctx context.Context, d time.Duration) (context.Context, func()) {
					ctx, cancel := context.WithTimeoutCause(ctx, d, errStop)
					return noDeadline{ctx}, cancel
				},
			} {
				synctest.Test(t, func(t *testing.T) {
					const patience = 1200 * time.Millisecond
					opts := append([]svc.Option{svc.WithRetry(svc.RetryPolicy{MinDelay: 5 * time.Second})}, tt.opts...)
					s := testkit.Play(t, tt.replies...)
					ctx, cancel := makeCtx(t.Context(), patience)
					defer cancel()
					start := time.Now()
					var resp svc.Response
					err := tt.op.Do(ctx, s.Client(opts...), svc.WithResponse(&resp))
					require.Equal(t, patience, time.Since(start))
					if tt.last == 404 { // the status 404 is enough, even if the body does not arrive
						require.ErrorIs(t, err, svc.ErrNotFound)
						return
					}
					require.ErrorIs(t, err, end)
					require.ErrorIs(t, err, errStop)
					require.NotErrorIs(t, err, svc.ErrTimeout)
					require.Equal(t, tt.unknown, errors.Is(err, svc.ErrOutcomeUnknown), "%v", err)
					e := testkit.ErrorAs[*svc.TransportError](t, err)
					require.Equal(t, tt.attempts, e.Attempts)
					require.Equal(t, tt.attempts, resp.Attempts)
					require.Len(t, s.Seen(), tt.attempts)
					if tt.last < 400 {
						require.Nil(t, e.Last)
						return
					}
					require.Equal(t, tt.last, resp.StatusCode)
					require.Equal(t, tt.last, testkit.ErrorAs[*svc.Error](t, err).StatusCode)
					_, told, _ := strings.Cut(e.Last.Error(), "}: ")
					require.ErrorContains(t, err, end.Error()+": "+errStop.Error()+", while waiting to try again after "+told)
				})
			}
		})
	}
}

type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// A call whose ctx has ended sends nothing.
func TestContextEndedBefore_B06(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	late, cancelLate := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancelLate()
	asked := 0
	source := svc.WithTokenSource(func(context.Context) (string, error) { asked++; return testkit.Token, nil })
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		for _, op := range testkit.Operations {
			err := op.Do(ctx, testkit.Play(t).Client(source))
			require.ErrorIs(t, err, want)
			require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.Equal(t, ctx == cancelled, errors.Is(err, errStop))
			require.Zero(t, testkit.ErrorAs[*svc.TransportError](t, err).Attempts, "nothing was sent")
		}
	}
	require.Zero(t, asked)
}

// The timeout of an attempt and the end of ctx give different errors.
func TestTimeouts(t *testing.T) {
	const s = time.Second
	silent, stalled := testkit.Reply{After: testkit.Ages}, testkit.Reply{Status: 200, Body: "{", Stall: true}
	limit := func(d time.Duration) []svc.Option { return []svc.Option{svc.WithTimeout(d)} }
	for name, tt := range map[string]struct {
		opts    []svc.Option
		hc      time.Duration // Timeout of the caller's http.Client
		ctx     time.Duration
		reply   testkit.Reply
		want    error
		elapsed time.Duration
		tries   int
	}{
		"default":                        {nil, 0, 0, silent, svc.ErrTimeout, 61 * s, 2},
		"zero is the default":            {append(limit(s), limit(0)...), 0, 0, silent, svc.ErrTimeout, 61 * s, 2},
		"set":                            {limit(10 * s), 0, 0, silent, svc.ErrTimeout, 21 * s, 2},
		"within the answer":              {limit(10 * s), 0, 0, stalled, svc.ErrTimeout, 21 * s, 2},
		"longer than the default":        {limit(90 * s), 0, 0, silent, svc.ErrTimeout, 181 * s, 2},
		"the client's is shorter":        {limit(10 * s), 3 * s, 0, silent, svc.ErrTimeout, 7 * s, 2},
		"the client's is longer":         {limit(10 * s), 60 * s, 0, silent, svc.ErrTimeout, 21 * s, 2},
		"ctx ends first":                 {nil, 0, 5 * s, silent, context.DeadlineExceeded, 5 * s, 1},
		"ctx ends within the answer":     {nil, 0, 5 * s, stalled, context.DeadlineExceeded, 5 * s, 1},
		"ctx ends the second attempt":    {limit(10 * s), 0, 15 * s, silent, context.DeadlineExceeded, 15 * s, 2},
		"ctx leaves no time for another": {limit(10 * s), 0, 11 * s, silent, svc.ErrTimeout, 10 * s, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.ctx > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.ctx)
					defer cancel()
				}
				service := testkit.Loop(t, tt.reply)
				hc := svc.WithHTTPClient(&http.Client{Transport: service, Timeout: tt.hc})
				start := time.Now()
				err := testkit.OpGet.Do(ctx, testkit.ClientAt(t, "https://api.test", append(tt.opts, hc, testkit.Tries(2, s))...))
				require.Equal(t, tt.elapsed, time.Since(start))
				require.Len(t, service.Seen(), tt.tries)
				require.Equal(t, tt.want == svc.ErrTimeout, errors.Is(err, svc.ErrTimeout), "%v", err)
				require.Equal(t, tt.want == context.DeadlineExceeded, errors.Is(err, context.DeadlineExceeded), "%v", err)
				require.NotErrorIs(t, err, context.Canceled)
				var timeout net.Error
				require.ErrorAs(t, err, &timeout)
				require.True(t, timeout.Timeout())
			})
		})
	}
}

// The timeout is for one attempt. A call with slow responses and delays may take longer.
func TestTimeoutIsOfOneAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, good := testkit.Status(503), testkit.OpGet.OK
		slow.After, good.After = 9*time.Second, 9*time.Second
		s := testkit.Play(t, slow, slow, good)
		require.NoError(t, testkit.OpGet.Do(t.Context(), s.Client(svc.WithTimeout(10*time.Second), testkit.Tries(3, 20*time.Second))))
	})
}

// Before there is a connection, nothing can have been created. This holds for whatever
// ends the wait for the connection.
func TestCreateBeforeThereIsAConnection(t *testing.T) {
	for name, dial := range map[string]func(ctx context.Context) (net.Conn, error){
		"dialling": func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"handshake": func(context.Context) (net.Conn, error) { // the other side never sends anything
			conn, other := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, other) }()
			return conn, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
				defer tr.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				err := testkit.OpCreate.Do(ctx, testkit.ClientOn(t, tr))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)

				err = testkit.OpCreate.Do(t.Context(), testkit.ClientOn(t, tr, svc.WithTimeout(time.Second), testkit.Tries(3, time.Second)))
				require.ErrorIs(t, err, svc.ErrTimeout)
				require.NotErrorIs(t, err, svc.ErrOutcomeUnknown)
				require.Equal(t, 3, testkit.ErrorAs[*svc.TransportError](t, err).Attempts)
			})
		})
	}
}
