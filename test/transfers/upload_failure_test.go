package transfers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

func TestTransfersReportAnExpiredLink_B16(t *testing.T) {
	for _, a := range []struct {
		status              int
		code, message, more string
		expired             bool
	}{
		{403, "AccessDenied", "Request has expired", "", true},
		{400, "ExpiredRequest", "too old", "", true},
		{400, "ExpiredToken", "The provided token has expired.", "", true},
		{403, "AuthenticationFailed", "Server failed to authenticate the request.",
			"<AuthenticationErrorDetail>Signature not valid in the specified time frame</AuthenticationErrorDetail>", true},
		{403, "AccessDenied", "Access Denied", "", false},
		{404, "NoSuchUpload", "expired", "", false},
	} {
		puts := 1
		if a.expired {
			puts = 2 // the second PUT uses a new URL
		}
		s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if n > puts {
				return
			}
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(a.status)
			fmt.Fprintf(w, "<?xml version='1.0'?><Error><Code>%s</Code><Message>%s</Message>%s</Error>", a.code, a.message, a.more)
		})
		c := s.Client(t)
		body := bytes.NewReader(testkit.Contents(1000))
		_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "train.jsonl", Body: body})
		require.Len(t, s.Requests("PUT"), puts)
		require.Equal(t, a.expired, errors.Is(err, svc.ErrLinkExpired), a.code)
		var e *svc.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, a.status, e.StatusCode)
		require.Equal(t, a.code, e.Code)
		require.Equal(t, a.message, e.Message)
		require.Equal(t, "{presigned_url}", e.Route)
		require.Equal(t, "PUT", e.Method)
		var up *svc.UploadError
		require.ErrorAs(t, err, &up)
		require.Equal(t, svc.UploadStagePut, up.Stage)
		require.Equal(t, "f1", up.FileID)
		require.Equal(t, "train.jsonl", up.FileName)
		require.Equal(t, string(s.Link()), string(up.Link))
		require.Contains(t, err.Error(), "call Replace")
		testkit.RequireSilent(t, err)

		link, err := c.Files.PresignedURL(t.Context(), up.FileID)
		require.NoError(t, err)
		_, err = c.Files.Put(t.Context(), link, body, nil)
		require.NoError(t, err)
		require.Equal(t, testkit.Contents(1000), s.Requests("PUT")[puts].Bytes.Bytes())
	}
}

func TestUploadRetriesLikeAPut(t *testing.T) {
	for status, want := range map[int]int{
		400: 1, 401: 1, 403: 1, 404: 1, 405: 1, 409: 1, 411: 1, 412: 1, 413: 1, 501: 1, 507: 1,
		429: 3, 500: 3, 502: 3, 503: 3, 504: 3, 0: 3,
	} {
		s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if status == 0 {
				testkit.Abort()
			}
			testkit.XMLError(w, status, "Code", "message")
		})
		c := s.Client(t, svc.WithRetry(svc.RetryPolicy{MaxAttempts: 3, MinDelay: time.Millisecond}))
		_, err := c.Files.Put(t.Context(), s.Link(), strings.NewReader("data"), nil)
		require.Error(t, err)
		require.Len(t, s.Requests("PUT"), want, status)
		for _, r := range s.Requests("PUT") {
			require.Equal(t, "data", r.Bytes.String())
		}
		var e *svc.Error
		require.Equal(t, status != 0, errors.As(err, &e), status)
		if e != nil {
			require.Equal(t, want, e.Attempts)
		}
	}
}

// Storage quotes the signed text and the signature in its errors. No text of an error, in
// any format, shows the signature or the token.
func TestTransfersHideTheSecretsOfLinks_B07(t *testing.T) {
	var log bytes.Buffer
	quote := "<Error><Code>SignatureDoesNotMatch</Code><Message>%s no match for sig&#45;77c1e2</Message><SignatureProvided>sig-77c1e2</SignatureProvided>" +
		"<CanonicalRequest>PUT\n/storage/f1\nX-Amz-Security-Token=st-9b04</CanonicalRequest><StringToSign>sig-77c1e2</StringToSign></Error>"
	var attempts []svc.Attempt
	opts := []svc.Option{
		svc.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		svc.WithAttemptHook(func(_ context.Context, a svc.Attempt) { attempts = append(attempts, a) }),
		svc.WithRetry(svc.RetryPolicy{MaxAttempts: 2, MinDelay: time.Millisecond}),
	}
	s := testkit.NewFileService(t, func(n int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Echo", r.URL.RawQuery)
		w.Header().Set("Location", r.URL.String())
		w.WriteHeader(403)
		fmt.Fprintf(w, quote, r.URL.String())
	})
	dead := svc.SignedURL("http://" + testkit.ClosedPort + "/storage/f1?" + testkit.FileQuery)
	slow := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, fmt.Errorf("gave up on %s with sig-77c1e2: %w", r.URL, context.Cause(r.Context()))
	})
	broken := s.Client(t, append(opts, svc.WithHTTPClient(&http.Client{Transport: testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("no use for sig-77c1e2 of %s", r.URL)
	})}))...)
	c, slowly := s.Client(t, opts...), s.Client(t, append(opts, svc.WithHTTPClient(&http.Client{Transport: slow}))...)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for name, try := range map[string]func() error{
		"403":     func() error { _, err := c.Files.Put(t.Context(), s.Link(), strings.NewReader("x"), nil); return err },
		"refused": func() error { _, err := c.Files.Put(t.Context(), dead, strings.NewReader("x"), nil); return err },
		"ctx":     func() error { _, err := slowly.Files.Put(ctx, s.Link(), strings.NewReader("x"), nil); return err },
		"idle": func() error {
			_, err := slowly.Files.Put(t.Context(), s.Link(), strings.NewReader("x"), &svc.UploadOptions{IdleTimeout: time.Millisecond})
			return err
		},
		"broken": func() error {
			_, err := broken.Files.Put(t.Context(), s.Link(), strings.NewReader("x"), nil)
			return err
		},
		"download broken":  func() error { _, err := broken.Files.DownloadURL(t.Context(), s.Link(), io.Discard, nil); return err },
		"download 403":     func() error { _, err := c.Files.DownloadURL(t.Context(), s.Link(), io.Discard, nil); return err },
		"download refused": func() error { _, err := c.Files.DownloadURL(t.Context(), dead, io.Discard, nil); return err },
		"download idle": func() error {
			_, err := slowly.Files.DownloadURL(t.Context(), s.Link(), io.Discard, &svc.DownloadOptions{IdleTimeout: time.Millisecond})
			return err
		},
	} {
		err := try()
		require.Error(t, err, name)
		testkit.RequireSilent(t, err)
		var e *svc.Error
		if errors.As(err, &e) {
			testkit.RequireClean(t, string(e.Body))
			testkit.RequireClean(t, e.Message)
			testkit.RequireClean(t, fmt.Sprint(e.Header))
			require.Contains(t, string(e.Body), "REDACTED")
		}
	}
	require.NotEmpty(t, attempts)
	for _, a := range attempts {
		testkit.RequireClean(t, fmt.Sprintf("%+v", a))
		if a.Err != nil {
			testkit.RequireSilent(t, a.Err)
		}
		require.Equal(t, "{presigned_url}", a.Route)
	}
	require.Contains(t, log.String(), "{presigned_url}")
	testkit.RequireClean(t, log.String())
}

// Transfers of a client without a logger write nothing to stdout or stderr.
func TestTransfersAreSilent_B07(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	out, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	defer func() { os.Stdout, os.Stderr = out, stderr }()
	s := testkit.NewFileService(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	_, err = s.Client(t).Files.Put(t.Context(), s.Link(), strings.NewReader("x"), nil)
	require.Error(t, err)
	_, err = s.Client(t).Files.DownloadURL(t.Context(), s.Link(), io.Discard, nil)
	require.Error(t, err)
	w.Close()
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Empty(t, string(text))
}

// inBubble runs f inside synctest, with a client whose transport is storage.
func inBubble(t *testing.T, storage testkit.RoundTripFunc, f func(t *testing.T, c *svc.Client, link svc.SignedURL), opts ...svc.Option) {
	synctest.Test(t, func(t *testing.T) {
		c, err := svc.NewClient("https://svc.test", append([]svc.Option{
			svc.WithToken(testkit.Token), svc.WithHTTPClient(&http.Client{Transport: storage}),
		}, opts...)...)
		require.NoError(t, err)
		f(t, c, "https://storage.test/f1?"+testkit.FileQuery)
	})
}

func silence(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// If storage takes the body and does not respond, the transfer ends after the idle time.
// A transfer that makes progress may take any time.
func TestUploadEndsWhenNoByteMoves_B18(t *testing.T) {
	once := svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1})
	for set, want := range map[time.Duration]time.Duration{0: 2 * time.Minute, 7 * time.Second: 7 * time.Second} {
		inBubble(t, silence, func(t *testing.T, c *svc.Client, link svc.SignedURL) {
			start := time.Now()
			_, err := c.Files.Put(t.Context(), link, strings.NewReader("x"), &svc.UploadOptions{IdleTimeout: set})
			require.ErrorIs(t, err, svc.ErrTimeout)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, want, time.Since(start))
		}, once)
	}
	inBubble(t, silence, func(t *testing.T, c *svc.Client, link svc.SignedURL) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Hour)
		defer cancel()
		start := time.Now()
		_, err := c.Files.Put(ctx, link, strings.NewReader("x"), &svc.UploadOptions{IdleTimeout: -1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 100*time.Hour, time.Since(start))
	}, once)
	slowly := func(r *http.Request) (*http.Response, error) {
		for buf := make([]byte, 10); ; time.Sleep(90 * time.Second) {
			if _, err := r.Body.Read(buf); err != nil {
				return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
			}
			if r.Context().Err() != nil {
				return nil, r.Context().Err()
			}
		}
	}
	inBubble(t, slowly, func(t *testing.T, c *svc.Client, link svc.SignedURL) {
		start := time.Now()
		_, err := c.Files.Put(t.Context(), link, bytes.NewReader(testkit.Contents(1000)), nil)
		require.NoError(t, err)
		require.Equal(t, 100*90*time.Second, time.Since(start), "slow, but moving")
		// A slow source does not count as idle.
		_, err = c.Files.Put(t.Context(), link, seekOnly{&slowReader{bytes.NewReader(testkit.Contents(100))}}, nil)
		require.NoError(t, err)
	}, once, svc.WithTimeout(time.Second))
}

type slowReader struct{ *bytes.Reader }

func (r *slowReader) Read(p []byte) (int, error) {
	time.Sleep(time.Hour)
	return r.Reader.Read(p[:min(len(p), 30)])
}

func TestUploadDeletesItsRecordOnFailure_B30(t *testing.T) {
	upload := func(ctx context.Context, s *testkit.FileService, del bool) (*svc.UploadError, error) {
		_, err := s.Client(t).Files.Upload(ctx, svc.UploadRequest{FileName: "a", Body: strings.NewReader("x"),
			UploadOptions: svc.UploadOptions{DeleteOnFailure: del}})
		var e *svc.UploadError
		require.ErrorAs(t, err, &e)
		testkit.RequireSilent(t, err)
		return e, err
	}
	forbidden := func(_ int, w http.ResponseWriter, _ *http.Request) { testkit.XMLError(w, 403, "AccessDenied", "no") }
	t.Run("only if wanted", func(t *testing.T) {
		s := testkit.NewFileService(t, forbidden)
		e, _ := upload(t.Context(), s, false)
		require.Equal(t, svc.CleanupNone, e.Cleanup)
		require.Empty(t, s.Requests("DELETE"))
	})
	t.Run("after ctx ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := testkit.NewFileService(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
			cancel()
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		})
		deletes := 0
		s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.Method == "DELETE" {
				if deletes++; deletes < 3 {
					w.WriteHeader(503)
					return
				}
			}
			s.Answer(w, r)
		}
		e, err := upload(ctx, s, true)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, svc.CleanupDeleted, e.Cleanup)
		require.NoError(t, e.CleanupErr)
		require.Contains(t, err.Error(), "the record was deleted")
		require.Len(t, s.Requests("DELETE"), 3)
		require.Equal(t, "/v1/files/f1", s.Requests("DELETE")[2].RequestURI)
	})
	t.Run("that fails", func(t *testing.T) {
		s := testkit.NewFileService(t, forbidden)
		s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.Method == "DELETE" {
				w.WriteHeader(500)
				return
			}
			s.Answer(w, r)
		}
		e, err := upload(t.Context(), s, true)
		require.Equal(t, svc.CleanupFailed, e.Cleanup)
		require.ErrorIs(t, e.CleanupErr, svc.ErrServer)
		require.NotErrorIs(t, err, svc.ErrServer, "the error of the cleanup is not the reason of the failure")
		require.ErrorIs(t, err, svc.ErrForbidden, "the error must keep the cause")
		require.Contains(t, err.Error(), "the record f1 exists")
		require.Contains(t, err.Error(), "deleting the record failed")
	})
	t.Run("that a proxy answers", func(t *testing.T) {
		s := testkit.NewFileService(t, forbidden)
		s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
			if r.Method == "DELETE" {
				w.WriteHeader(404)
				_, _ = io.WriteString(w, "<html><h1>404 Not Found</h1></html>")
				return
			}
			s.Answer(w, r)
		}
		e, err := upload(t.Context(), s, true)
		require.Equal(t, svc.CleanupFailed, e.Cleanup)
		require.ErrorIs(t, e.CleanupErr, svc.ErrNotFound)
		require.Contains(t, err.Error(), "the record f1 exists")
	})
	t.Run("time limit", func(t *testing.T) {
		respond := func(r *http.Request) (*http.Response, error) {
			resp := httptest.NewRecorder()
			switch {
			case r.Method == "POST":
				_, _ = resp.WriteString(`{"id":"f1","presigned_url":"https://storage.test/f1?` + testkit.FileQuery + `"}`)
			case r.Method == "PUT":
				resp.WriteHeader(403)
			default:
				return silence(r)
			}
			return resp.Result(), nil
		}
		inBubble(t, respond, func(t *testing.T, c *svc.Client, _ svc.SignedURL) {
			start := time.Now()
			_, err := c.Files.Upload(t.Context(), svc.UploadRequest{FileName: "a", Body: strings.NewReader("x"),
				UploadOptions: svc.UploadOptions{DeleteOnFailure: true}})
			var e *svc.UploadError
			require.ErrorAs(t, err, &e)
			require.Error(t, e.CleanupErr)
			require.Equal(t, 30*time.Second, time.Since(start))
		})
	})
}
