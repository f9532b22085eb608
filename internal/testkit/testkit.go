// Package testkit provides the helpers that the suites under test/ and the tests of the root
// share: scripted services, their records, clients for them, and a search for secrets in
// printed values.
package testkit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
)

// InChild runs the test t again in a child process, with env added to the environment. It
// returns true in the child. In the parent it returns false after the test has passed in
// the child. Use it for settings that a process reads only once, such as its proxy.
func InChild(t *testing.T, env ...string) (child bool) {
	if os.Getenv("SVC_TEST_CHILD") == t.Name() {
		return true
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), "SVC_TEST_CHILD="+t.Name()), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return false
}

// Shorter returns the usual size of a test, or the size under -short. The race detector runs
// with -short: it makes pure functions slow, and finds nothing in them.
func Shorter(usual, short int) int {
	if testing.Short() {
		return short
	}
	return usual
}

// WriterFunc is a function that serves as an [io.Writer].
type WriterFunc func(p []byte) (int, error)

// Write calls the function.
func (f WriterFunc) Write(p []byte) (int, error) { return f(p) }

// Abort ends the HTTP handler that calls it, and cuts the connection.
func Abort() { panic(http.ErrAbortHandler) }

// RoundTripFunc is a function that serves as an [http.RoundTripper]. It needs no network,
// so it works with the virtual time of synctest.
type RoundTripFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f RoundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Contents returns n bytes that look random, and are the same in every run. They have no
// pattern, so a comparison notices bytes that are in the wrong place.
func Contents(n int) []byte {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// Ages is a time longer than any test waits.
const Ages = 1000 * time.Hour

// ReadFunc is a function that serves as an [io.Reader].
type ReadFunc func(p []byte) (int, error)

// Read calls the function.
func (f ReadFunc) Read(p []byte) (int, error) { return f(p) }

// ErrorAs returns the first error of type T in the tree of err. The test fails if there is
// none.
func ErrorAs[T error](t testing.TB, err error) T {
	t.Helper()
	e, ok := errors.AsType[T](err)
	require.Truef(t, ok, "no %T in the tree of the error: %v", e, err)
	return e
}

// NoGoroutineLeft fails the test if the test leaves goroutines behind: if 20 s after its
// end more goroutines run than at the time of this call.
func NoGoroutineLeft(t testing.TB) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 64<<10)
				t.Errorf("%d goroutines before the test, %d after it:\n%s", before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
				return
			}
		}
	})
}

// One returns 1 for true and 0 for false.
func One(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ClosedPort is an address at which nothing listens: the system never gives port 1 to a server of a
// test, as it may with a port that was open before.
const ClosedPort = "127.0.0.1:1"

// Price parses a price.
func Price(t *testing.T, text string) svc.Price {
	t.Helper()
	p, err := svc.ParsePrice(text)
	require.NoError(t, err)
	return p
}

// Record has a field for each special type of package svc, with a JSON name that the
// service uses.
type Record struct {
	Status    svc.InferenceServiceStatus `json:"status"`
	Payment   svc.PaymentType            `json:"payment_type"`
	Scale     svc.ScaleType              `json:"scale_type"`
	Purpose   svc.FilePurpose            `json:"purpose"`
	Instances svc.Int                    `json:"target_instance_number"`
	Price     svc.Price                  `json:"usd_price_unit"`
	CreatedAt svc.Time                   `json:"created_at"`
	DeletedAt *svc.Time                  `json:"deleted_at"`
	Link      svc.SignedURL              `json:"presigned_url"`
}

// Decode decodes JSON into a T.
func Decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// Encode returns v as JSON.
func Encode(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	require.NoError(t, err)
	return string(b)
}

// Within returns a context that ends after d.
func Within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// CancelAfter returns a context that is cancelled after d, with this cause.
func CancelAfter(t testing.TB, d time.Duration, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(d, func() { cancel(cause) })
	t.Cleanup(func() { timer.Stop(); cancel(nil) })
	return ctx
}

// Every returns options for a wait that polls about every d.
func Every(d time.Duration) *svc.WaitOptions {
	return &svc.WaitOptions{MinInterval: d, MaxInterval: d}
}

// RequireRedirect fails the test unless err is a redirect that was not followed.
func RequireRedirect(t testing.TB, err error) {
	t.Helper()
	status := ErrorAs[*svc.Error](t, err).StatusCode
	require.True(t, status >= 300 && status < 400, "%d: %v", status, err)
	require.ErrorContains(t, err, "the redirect is not followed")
}
