package cause_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/cause"
)

func TestOfALivingContext(t *testing.T) {
	require.NoError(t, cause.Of(context.Background()))
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	require.NoError(t, cause.Of(ctx))
}

func TestOfNamesTheKindAndTheCause(t *testing.T) {
	own := errors.New("shutting down")
	cancelled := func(err error) context.Context {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(err)
		return ctx
	}
	plain, cancel := context.WithCancel(context.Background())
	cancel()
	child, stop := context.WithTimeout(cancelled(own), time.Hour)
	defer stop()
	for name, tt := range map[string]struct {
		ctx  context.Context
		text string
		own  bool
	}{
		"no cause":     {plain, "context canceled", false},
		"nil cause":    {cancelled(nil), "context canceled", false},
		"a cause":      {cancelled(own), "context canceled: shutting down", true},
		"of a parent":  {child, "context canceled: shutting down", true},
		"kept apart":   {context.WithoutCancel(cancelled(own)), "", false},
		"cancel twice": {cancelled(context.Canceled), "context canceled", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := cause.Of(tt.ctx)
			if tt.text == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.text)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, tt.own, errors.Is(err, own))
		})
	}
}

func TestOfADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tooSlow := &slow{}
		caused, stop := context.WithTimeoutCause(t.Context(), time.Second, tooSlow)
		defer stop()
		require.NoError(t, cause.Of(caused))
		time.Sleep(2 * time.Second)
		require.Equal(t, context.DeadlineExceeded, cause.Of(plain))
		err := cause.Of(caused)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorAs(t, err, &tooSlow)
		require.EqualError(t, err, "context deadline exceeded: too slow")
	})
}

// slow is an error of a type that cannot be compared.
type slow []int

func (slow) Error() string { return "too slow" }

func TestOfACauseThatCannotBeCompared(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(slow{1})
	err := cause.Of(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorAs(t, err, new(slow))
}

func TestHas(t *testing.T) {
	err := fmt.Errorf("outer: %w", errors.Join(errors.New("other"), &os.PathError{Err: io.EOF}))
	require.True(t, cause.Has[*os.PathError](err))
	require.False(t, cause.Has[*os.SyscallError](err))
	require.False(t, cause.Has[*os.PathError](nil))
}

func TestJoin(t *testing.T) {
	require.NoError(t, cause.Join(nil, nil))
	require.Equal(t, io.EOF, cause.Join(nil, io.EOF))
	require.Equal(t, io.EOF, cause.Join(io.EOF, nil))
	errs := []error{io.EOF, errors.New("other")}
	require.EqualError(t, cause.Join(errs...), "EOF; other")
	for range 1000 {
		errs = append(errs, os.ErrClosed)
	}
	all := cause.Join(errs...)
	require.ErrorIs(t, all, os.ErrClosed)
	require.True(t, strings.HasSuffix(all.Error(), "; and 992 more"), all.Error())
}

func TestAloneIsNoDeadlineOfTheCaller(t *testing.T) {
	late := errors.New("late")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause.Alone{Err: late})
		defer cancel()
		require.NoError(t, cause.Of(ctx))
		time.Sleep(time.Minute)
		<-ctx.Done()
		require.Equal(t, late, cause.Of(ctx))

		sooner, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ctx, cancel = context.WithTimeoutCause(sooner, time.Minute, cause.Alone{Err: late})
		defer cancel()
		<-ctx.Done()
		require.ErrorIs(t, cause.Of(ctx), context.DeadlineExceeded)
		require.NotErrorIs(t, cause.Of(ctx), late)
	})
}
