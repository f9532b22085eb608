package main

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// start starts a fake with 25 jobs of each kind, and sets the environment so that the program
// uses it.
func start(t *testing.T, opts ...svctest.Option) *svctest.Server {
	t.Helper()
	srv := svctest.NewServer(append([]svctest.Option{svctest.WithMediaContents([]byte("media"))}, opts...)...)
	t.Cleanup(srv.Close)
	srv.AddVideoJobs(25)
	srv.AddImageJobs(25)
	t.Setenv("SVC_BASE_URL", srv.URL())
	t.Setenv("SVC_API_TOKEN", srv.Token())
	t.Setenv("SVC_FAKE", "")
	return srv
}

func runIt(t *testing.T, srv *svctest.Server, terminal bool, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	code = run(t.Context(), args, &out, &log, terminal)
	if srv != nil {
		require.NotContains(t, out.String()+log.String(), srv.Token())
	}
	require.NotContains(t, out.String()+log.String(), "Signature")
	return code, out.String(), log.String()
}

func TestDownloadsWhatJobsHaveMade(t *testing.T) {
	srv := start(t)
	for kind, route := range map[string]string{"video": svctest.RouteVideoJobs, "image": svctest.RouteImageJobs} {
		dir := t.TempDir()
		code, stdout, stderr := runIt(t, srv, false, "-kind", kind, "-dir", dir)
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "succeed  1 output\n")
		require.Empty(t, stderr)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, 12)
		for _, f := range files {
			data, err := os.ReadFile(filepath.Join(dir, f.Name()))
			require.NoError(t, err)
			require.Equal(t, "media", string(data))
		}
		require.Equal(t, 2, srv.RequestCount("GET", route), "two pages of ten have twelve jobs")

		srv.ResetRequests()
		code, _, _ = runIt(t, srv, false, "-kind", kind, "-dir", dir, "-limit", "10")
		require.Zero(t, code)
		require.Equal(t, 1, srv.RequestCount("GET", route))
		code, stdout, _ = runIt(t, srv, false, "-kind", kind, "-dir", dir, "-limit", "0")
		require.Zero(t, code)
		require.Equal(t, 25, strings.Count(stdout, "succeed"))
	}
}

func TestAnUnfinishedJobHasNothing(t *testing.T) {
	srv := start(t)
	for _, job := range srv.Jobs() {
		srv.SetJobStatus(job.ID, svctest.JobInitializing)
	}
	code, stdout, _ := runIt(t, srv, false, "-dir", t.TempDir(), "-limit", "1")
	require.Zero(t, code)
	require.Contains(t, stdout, "initializing  0 outputs")
	require.Zero(t, srv.RequestCount("GET", svctest.RouteStorage))
}

func TestRetired(t *testing.T) {
	srv := start(t, svctest.WithJobsRetired(404))
	code, stdout, stderr := runIt(t, srv, false, "-dir", t.TempDir())
	require.Equal(t, 3, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "the legacy job API is retired")
	require.Contains(t, stderr, "newer API")

	t.Setenv("SVC_BASE_URL", "")
	code, _, stderr = runIt(t, nil, false, "-dir", t.TempDir(), "-fake", "-retired")
	require.Equal(t, 3, code, stderr)
}

// TestAFolderOfItsOwn: without -dir, each run makes a new temporary folder.
func TestAFolderOfItsOwn(t *testing.T) {
	srv := start(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp) // Unix
	t.Setenv("TMP", temp)    // Windows
	for i := range 2 {
		code, stdout, stderr := runIt(t, srv, false, "-limit", "2")
		require.Zero(t, code, stderr)
		folders, err := filepath.Glob(filepath.Join(temp, "legacyjobs-*"))
		require.NoError(t, err)
		require.Len(t, folders, i+1)
		told := strings.TrimSpace(strings.TrimPrefix(stderr, "the files go to "))
		require.Contains(t, folders, told)
		files, err := os.ReadDir(told)
		require.NoError(t, err)
		require.Len(t, files, 2)
		require.Contains(t, stdout, filepath.Join(told, files[0].Name()))
	}

	srv.Fault("GET", svctest.RouteVideoJobs, svctest.Fault{Status: 403})
	code, _, _ := runIt(t, srv, false)
	require.Equal(t, 1, code)
	folders, err := filepath.Glob(filepath.Join(temp, "legacyjobs-*"))
	require.NoError(t, err)
	require.Len(t, folders, 2, "no file, no folder")
}

func TestFake(t *testing.T) {
	for _, name := range []string{"SVC_BASE_URL", "SVC_API_TOKEN"} {
		t.Setenv(name, "")
	}
	for _, fake := range []string{"", "1"} {
		t.Setenv("SVC_FAKE", fake)
		code, stdout, stderr := runIt(t, nil, false, "-dir", t.TempDir(), "-limit", "1")
		require.Zero(t, code, stderr)
		require.Contains(t, stdout, "1048576 bytes")
	}
	t.Setenv("SVC_FAKE", "")
	t.Setenv("SVC_BASE_URL", "https://api.test") // with an address the fake is not used
	code, _, stderr := runIt(t, nil, false)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "SVC_API_TOKEN")
}

// TestExpiredLink: the program reads the job again to get a new link.
func TestExpiredLink(t *testing.T) {
	expired := svctest.Fault{Status: 403, Body: "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"}
	srv := start(t)
	srv.Fault("GET", svctest.RouteStorage, expired)
	code, stdout, stderr := runIt(t, srv, false, "-dir", t.TempDir(), "-limit", "1")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "5 bytes")
	require.Equal(t, 1, srv.RequestCount("GET", svctest.RouteVideoJob))

	expired.Times = -1
	srv.Fault("GET", svctest.RouteStorage, expired)
	code, _, stderr = runIt(t, srv, false, "-dir", t.TempDir(), "-limit", "1")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "expired")
}

func TestAListThatBreaksOffIsAFailure(t *testing.T) {
	srv := start(t)
	srv.Fault("GET", svctest.RouteVideoJobs, svctest.Fault{}, svctest.Fault{Status: 403})
	code, _, stderr := runIt(t, srv, false, "-dir", t.TempDir())
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "page 2")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 130, run(ctx, []string{"-dir", t.TempDir()}, new(bytes.Buffer), new(bytes.Buffer), false))
}

func TestBarOnATerminal(t *testing.T) {
	srv := start(t, svctest.WithMediaContents(make([]byte, 128<<10)))
	srv.Fault("GET", svctest.RouteStorage, svctest.Fault{Rate: 512 << 10}) // slow enough that the bar is updated more than once
	code, _, stderr := runIt(t, srv, true, "-dir", t.TempDir(), "-limit", "1")
	require.Zero(t, code)
	require.Contains(t, stderr, "\r")
}

func TestFileNameStaysInItsFolder(t *testing.T) {
	job, out := &svc.Job{JobID: "../../etc"}, svc.JobOutput{ID: `x\..\y`, MediaURL: "https://storage.example/a/b.mp4?sig=1"}
	require.Equal(t, "_etc-x_y.mp4", fileName(job, out))
	out.MediaURL = svc.SignedURL("https://storage.example/" + url.PathEscape("a./../b"))
	require.NotContains(t, fileName(job, out), "/")
}

func TestUsage(t *testing.T) {
	srv := start(t)
	for _, args := range [][]string{{"-kind", "sound"}, {"-nope"}, {"-limit", "x"}, {"-retired"}, {"image"}} {
		code, _, stderr := runIt(t, srv, false, args...)
		require.Equal(t, 2, code)
		require.NotEmpty(t, stderr)
	}
	code, _, stderr := runIt(t, srv, false, "-help")
	require.Zero(t, code)
	require.Contains(t, stderr, "3 the API is retired")

	t.Setenv("SVC_API_TOKEN", "")
	code, _, stderr = runIt(t, srv, false)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "token")
	require.Zero(t, srv.RequestCount("*", svctest.RouteAny))
}
