package svc_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// The hook can count calls, attempts, retries and failures without guessing.
func TestC23_AttemptsCanBeCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []svc.Attempt
		hook := svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) { got = append(got, a) })
		s := play(t, status(503), reply{status: 307, header: map[string]string{"Location": "/elsewhere"}}, lost, opGet.ok,
			refused, refused, status(404), opCreate.ok)
		client := s.client(hook, tries(3, 2*time.Second))
		require.NoError(t, opGet.do(t.Context(), client))
		require.Error(t, opUpdate.do(t.Context(), client, svc.WithMaxAttempts(2)))
		require.Error(t, opDelete.do(t.Context(), client))
		require.NoError(t, opCreate.do(t.Context(), client))

		type row struct {
			id     string
			call   uint64
			number int
			retry  bool
			delay  time.Duration
		}
		var rows []row
		for _, a := range got {
			rows = append(rows, row{a.ID, a.Call, a.Number, a.Retry, a.Delay})
		}
		require.Equal(t, []row{
			{"svc-1", 1, 1, true, 2 * time.Second},
			{"svc-1", 1, 2, false, 0}, // the redirect
			{"svc-1", 1, 2, true, 2 * time.Second},
			{"svc-1", 1, 3, false, 0},
			{"svc-1", 2, 1, true, 2 * time.Second},
			{"svc-1", 2, 2, false, 0},
			{"svc-1", 3, 1, false, 0},
			{"", 4, 1, false, 0},
		}, rows)
	})
	t.Run("the last attempt of a budget", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			last := 0
			client := loop(t, status(503)).client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
				if !a.Retry {
					last++
				}
			}))
			for range 40 {
				require.Error(t, opGet.do(t.Context(), client))
			}
			require.Equal(t, 40, last, "each call has one attempt that is its last")
		})
	})
	t.Run("calls of many callers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			calls := map[uint64]int{}
			client := loop(t, opGet.ok).client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
				mu.Lock()
				defer mu.Unlock()
				calls[a.Call]++
			}))
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() { _ = opGet.do(t.Context(), client) })
			}
			callers.Wait()
			require.Len(t, calls, 50)
		})
	})
	t.Run("an id that is a secret", func(t *testing.T) {
		var got svc.Attempt
		client := play(t, status(404)).client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) { got = a }))
		_, err := client.InferenceServices.Get(t.Context(), testToken)
		require.Error(t, err)
		require.False(t, strings.Contains(got.ID, testToken))
	})
}
