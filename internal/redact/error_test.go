package redact_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/internal/errno"
	"example.com/svc/internal/redact"
)

const link = "https://store.test/bucket/file?X-Amz-Signature=S1GNATURE&note=\"it's\"&x=T0K3N"

// requireNoLeak shows err in every way that a program may show it, and checks that no
// secret is visible.
func requireNoLeak(t *testing.T, err error) {
	t.Helper()
	shown := err.Error()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%90v", "%p", "%w"} {
		shown += "\n" + fmt.Sprintf(verb, err) + fmt.Sprintf(verb, []any{err}) + fmt.Sprintf(verb, struct{ e error }{err})
	}
	var out strings.Builder
	slog.New(slog.NewTextHandler(&out, nil)).Info("", "err", err)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("", "err", err)
	for _, v := range []any{err, map[string]any{"err": err}} {
		text, marshalErr := json.Marshal(v)
		require.NoError(t, marshalErr)
		out.Write(text)
	}
	shown += out.String()
	for _, secret := range []string{"S1GNATURE", "T0K3N", "it's", "s3cr3t"} {
		require.NotContains(t, shown, secret)
		require.NotContains(t, strings.ToLower(shown), fmt.Sprintf("%x", secret))
	}
}

func leaky(cause error) error {
	return fmt.Errorf("upload: %w", &url.Error{Op: "Put", URL: link, Err: cause})
}

func TestErrorWithoutSecretsStaysAsItIs(t *testing.T) {
	r := redact.New("s3cr3t")
	require.NoError(t, r.Error(nil))
	for _, err := range []error{
		io.EOF,
		context.Canceled,
		fmt.Errorf("a: %w", io.EOF),
		&url.Error{Op: "Get", URL: "https://h/p", Err: io.EOF},
		errors.Join(io.EOF, io.ErrUnexpectedEOF),
	} {
		require.Same(t, err, r.Error(err))
	}
}

func TestErrorHidesSecretsAndKeepsItsTree(t *testing.T) {
	r := redact.New("s3cr3t")
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno.ConnRefused)}
	err := r.Error(leaky(refused))
	requireNoLeak(t, err)
	require.EqualError(t, err, `upload: Put "https://store.test/bucket/file?REDACTED": dial tcp: connect: connection refused`)

	require.ErrorIs(t, err, errno.ConnRefused)
	require.NotErrorIs(t, err, errno.ConnReset)
	var opErr *net.OpError
	require.ErrorAs(t, err, &opErr)
	require.Same(t, refused, opErr)
	var netErr net.Error
	require.ErrorAs(t, err, &netErr)
	require.False(t, netErr.Timeout())
	requireNoLeak(t, netErr)
	var pathErr *os.PathError
	require.NotErrorAs(t, err, &pathErr)
	require.NoError(t, errors.Unwrap(err))
	for _, unwrapper := range []any{new(interface{ Unwrap() error }), new(interface{ Unwrap() []error })} {
		if errors.As(err, unwrapper) {
			requireNoLeak(t, err)
		}
	}

	var urlErr *url.Error
	require.ErrorAs(t, err, &urlErr)
	requireNoLeak(t, urlErr)
	require.Equal(t, "Put", urlErr.Op)
	require.Equal(t, "https://store.test/bucket/file?REDACTED", urlErr.URL)
	require.ErrorIs(t, urlErr, errno.ConnRefused)
}

func TestErrorThatIsATimeout(t *testing.T) {
	r := redact.New()
	for _, cause := range []error{context.DeadlineExceeded, os.ErrDeadlineExceeded} {
		err := fmt.Errorf("outer: %w", r.Error(leaky(cause)))
		requireNoLeak(t, err)
		require.ErrorIs(t, err, cause)
		var netErr net.Error
		require.ErrorAs(t, err, &netErr)
		require.True(t, netErr.Timeout())
		var urlErr *url.Error
		require.ErrorAs(t, err, &urlErr)
		require.True(t, urlErr.Timeout())
	}

	var netErr net.Error
	require.NotErrorAs(t, r.Error(errors.New(link)), &netErr, "the error has no network error in it")
}

func TestErrorTrees(t *testing.T) {
	r := redact.New("s3cr3t")
	secret := errors.New("no s3cr3t here")
	inner := &url.Error{Op: "Get", URL: link, Err: errors.Join(secret, io.ErrUnexpectedEOF)}
	for name, err := range map[string]error{
		"text":          fmt.Errorf("token s3cr3t: %w", io.ErrUnexpectedEOF),
		"joined":        errors.Join(context.Canceled, leaky(io.ErrUnexpectedEOF)),
		"two wrapped":   fmt.Errorf("%w and %w", secret, io.ErrUnexpectedEOF),
		"nested links":  &url.Error{Op: "Put", URL: link, Err: inner},
		"hidden inside": quiet{inner},
		"bad link":      &url.Error{Op: "parse", URL: "https://h/%zz?" + link, Err: io.ErrUnexpectedEOF},
		"odd operation": &url.Error{Op: "s3cr3t", URL: "https://h", Err: io.ErrUnexpectedEOF},
		"redacted once": fmt.Errorf("again https://h/p?x=T0K3N: %w", r.Error(leaky(io.ErrUnexpectedEOF))),
	} {
		t.Run(name, func(t *testing.T) {
			safe := r.Error(err)
			requireNoLeak(t, safe)
			require.ErrorIs(t, safe, io.ErrUnexpectedEOF)
			var urlErr *url.Error
			if errors.As(safe, &urlErr) {
				requireNoLeak(t, urlErr)
				require.ErrorIs(t, urlErr, io.ErrUnexpectedEOF)
			}
			require.Same(t, safe, r.Error(safe))
		})
	}
}

// quiet wraps an error but does not show the error's text.
type quiet struct{ err error }

func (quiet) Error() string   { return "quiet" }
func (q quiet) Unwrap() error { return q.err }

// typed is an error with a field that callers read through errors.As.
type typed struct {
	note string
	err  error
}

func (t *typed) Error() string { return "typed " + t.note }
func (t *typed) Unwrap() error { return t.err }

// chameleon is an error whose As method creates a typed with its own text.
type chameleon struct{ note string }

func (c chameleon) Error() string { return c.note }
func (c chameleon) As(target any) bool {
	if p, ok := target.(**typed); ok {
		*p = &typed{note: c.note}
		return true
	}
	return false
}

func TestErrorAsHandsOutNothingLeaky(t *testing.T) {
	r := redact.New("s3cr3t")
	var got *typed
	clean := &typed{note: "clean", err: io.EOF}
	require.ErrorAs(t, r.Error(leaky(clean)), &got)
	require.Same(t, clean, got)

	require.NotErrorAs(t, r.Error(leaky(&typed{note: "s3cr3t"})), &got)
	require.NotErrorAs(t, r.Error(&typed{err: leaky(io.EOF)}), &got, "the error below it would show the link")
	require.NotErrorAs(t, r.Error(leaky(chameleon{"s3cr3t"})), &got)
	require.ErrorAs(t, r.Error(leaky(chameleon{"harmless"})), &got)

	second := errors.Join(&typed{note: "s3cr3t"}, clean)
	require.ErrorAs(t, r.Error(second), &got, "errors.As skips the error with a secret")
	require.Same(t, clean, got)
}

func TestErrorTextIsBounded(t *testing.T) {
	r := redact.New("s3cr3t")
	long := fmt.Errorf("%s: %w", strings.Repeat("é", 1<<20), &typed{note: "kept", err: io.EOF})
	err := r.Error(long)
	require.LessOrEqual(t, len(err.Error()), 4<<10)
	require.True(t, strings.HasSuffix(err.Error(), "é…"))
	require.ErrorIs(t, err, io.EOF)
	var got *typed
	require.ErrorAs(t, err, &got)

	edge := r.Error(errors.New(strings.Repeat("x", 4<<10-7) + "s3cr3t" + strings.Repeat("y", 100)))
	require.NotContains(t, edge.Error(), "s3cr")
}
