package wire_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// With the hook, calls, attempts, retries and failures can be counted exactly.
func TestAttemptsCanBeCounted_C23(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []svc.Attempt
		hook := svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) { got = append(got, a) })
		s := testkit.Play(t, testkit.Status(503), testkit.Reply{Status: 307, Header: map[string]string{"Location": "/elsewhere"}}, testkit.Lost, testkit.OpGet.OK,
			testkit.Refused, testkit.Refused, testkit.Status(404), testkit.OpCreate.OK)
		client := s.Client(hook, testkit.Tries(3, 2*time.Second))
		require.NoError(t, testkit.OpGet.Do(t.Context(), client))
		require.Error(t, testkit.OpUpdate.Do(t.Context(), client, svc.WithMaxAttempts(2)))
		require.Error(t, testkit.OpDelete.Do(t.Context(), client))
		require.NoError(t, testkit.OpCreate.Do(t.Context(), client))

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
			client := testkit.Loop(t, testkit.Status(503)).Client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
				if !a.Retry {
					last++
				}
			}))
			for range 40 {
				require.Error(t, testkit.OpGet.Do(t.Context(), client))
			}
			require.Equal(t, 40, last, "each call must have exactly one last attempt")
		})
	})
	t.Run("calls of many callers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			calls := map[uint64]int{}
			client := testkit.Loop(t, testkit.OpGet.OK).Client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) {
				mu.Lock()
				defer mu.Unlock()
				calls[a.Call]++
			}))
			var callers sync.WaitGroup
			for range 50 {
				callers.Go(func() { _ = testkit.OpGet.Do(t.Context(), client) })
			}
			callers.Wait()
			require.Len(t, calls, 50)
		})
	})
	t.Run("an id that is a secret", func(t *testing.T) {
		var got svc.Attempt
		client := testkit.Play(t, testkit.Status(404)).Client(svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) { got = a }))
		_, err := client.InferenceServices.Get(t.Context(), testkit.Token)
		require.Error(t, err)
		require.NotContains(t, got.ID, testkit.Token)
	})
}
