package apart_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/apart"
)

func TestRun(t *testing.T) {
	failed := errors.New("failed")
	end := func(f func() error) apart.End {
		ends := make(chan apart.End, 1)
		go apart.Run(f, func(e apart.End) { ends <- e })
		return <-ends
	}
	good, bad := end(func() error { return nil }), end(func() error { return failed })
	require.NoError(t, good.Here())
	require.NoError(t, good.Err("it"))
	require.Equal(t, failed, bad.Here())
	require.Equal(t, failed, bad.Err("it"))

	panicked := end(func() error { panic(failed) })
	require.EqualError(t, panicked.Err("it"), "it panicked: failed")
	require.PanicsWithValue(t, failed, func() { _ = panicked.Here() })

	exited := end(func() error { runtime.Goexit(); return nil })
	require.EqualError(t, exited.Err("it"), "it ended its goroutine")
	again := end(exited.Here)
	require.EqualError(t, again.Err("it"), "it ended its goroutine")
}
