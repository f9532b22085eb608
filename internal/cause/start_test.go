package cause_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/cause"
)

func TestStartPassesOnWhatEndsTheGoroutine(t *testing.T) {
	errMine := errors.New("mine")
	v, err := (<-cause.Start(func() (int, error) { return 7, errMine }))()
	require.Equal(t, 7, v)
	require.Equal(t, errMine, err)
	require.PanicsWithValue(t, "p", func() { _, _ = (<-cause.Start(func() (int, error) { panic("p") }))() })

	ended := make(chan bool, 1)
	go func() {
		goesOn := false
		defer func() { ended <- !goesOn }()
		_, _ = (<-cause.Start(func() (int, error) { runtime.Goexit(); return 0, nil }))()
		goesOn = true
	}()
	require.True(t, <-ended, "by runtime.Goexit")
}
