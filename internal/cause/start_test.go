package cause_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/cause"
)

func start(f func() (int, error)) (int, error) {
	done := make(chan func() (int, error), 1)
	cause.Start(f, done)
	return (<-done)()
}

func TestStartPassesOnWhatEndsTheGoroutine(t *testing.T) {
	errMine := errors.New("mine")
	v, err := start(func() (int, error) { return 7, errMine })
	require.Equal(t, 7, v)
	require.Equal(t, errMine, err)
	require.PanicsWithValue(t, "p", func() { _, _ = start(func() (int, error) { panic("p") }) })

	ended := make(chan bool, 1)
	go func() {
		goesOn := false
		defer func() { ended <- !goesOn }()
		_, _ = start(func() (int, error) { runtime.Goexit(); return 0, nil })
		goesOn = true
	}()
	require.True(t, <-ended, "by runtime.Goexit")
}
