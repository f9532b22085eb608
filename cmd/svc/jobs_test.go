package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddVideoJobs(12)
	image := s.srv.AddJob(svctest.Job{Kind: svctest.JobImage, Name: "cat", Outputs: []svctest.JobOutput{{}, {}}})
	failed := s.srv.AddJob(svctest.Job{Kind: svctest.JobImage, Status: "failed"})
	require.Equal(t, 12, strings.Count(s.must(exitOK, "jobs", "ls", "-o", "name").stdout, "\n"))
	require.Equal(t, 3, strings.Count(s.must(exitOK, "jobs", "ls", "--limit", "3", "-o", "name").stdout, "\n"))
	require.Regexp(t, `^ID +STATUS +CREATED +OUTPUTS +NAME\n`+image+` +succeed +\S+Z +2 +cat\n`, s.must(exitOK, "jobs", "ls", "--kind", "image").stdout)
	doc := s.must(exitOK, "jobs", "get", image, "--kind", "image", "-o", "json").doc(t)
	require.Equal(t, "succeed", doc["status"])
	require.Len(t, doc["outputs"], 2)

	e := s.must(exitOK, "jobs", "download", image, "pictures", "--kind", "image")
	files := strings.Fields(e.stdout)
	require.Len(t, files, 2)
	for _, f := range files {
		require.True(t, strings.HasPrefix(f, "pictures/"+image+"-"), f)
		info, err := os.Stat(filepath.Join(s.env["HOME"], f))
		require.NoError(t, err)
		require.NotZero(t, info.Size())
	}
	require.Contains(t, s.must(exitUsage, "jobs", "download", image, "pictures", "--kind", "image").stderr, "--force overwrites")
	require.Len(t, s.must(exitOK, "jobs", "download", image, "pictures", "--kind", "image", "--force", "-o", "json").doc(t)["outputs"], 2)
	require.Contains(t, s.must(exitFailed, "jobs", "download", failed, "--kind", "image").stderr, "has no outputs")

	e = s.must(exitNotFound, "jobs", "get", "job-99")
	require.Contains(t, e.stderr, "no such video job")
	require.NotContains(t, e.stderr, "endpoint")
	s.srv.Fault("GET", svctest.RouteImageJobs, svctest.Fault{Status: 404, Body: `{"message":"not found"}`})
	e = s.must(exitNotFound, "jobs", "ls", "--kind", "image")
	require.Contains(t, e.stderr, "does not find the list of image jobs")
	require.NotContains(t, e.stderr, "Check the ID")
	s.must(exitUsage, "jobs", "ls", "--kind", "sound")
	s.must(exitUsage, "jobs", "ls", "--limit", "-1")
}

// TestExpiredURLOfAJob: the job is read again for a new URL.
func TestExpiredURLOfAJob(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddVideoJobs(1)
	s.srv.Fault("GET", svctest.RouteStorage, svctest.Fault{Status: 403, Body: "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"})
	s.must(exitOK, "jobs", "download", "job-1")
	require.Equal(t, 2, s.srv.RequestCount("GET", svctest.RouteVideoJob))
}

func TestRetiredJobs(t *testing.T) {
	t.Parallel()
	s := newSession(t, svctest.WithJobsRetired(http.StatusGone))
	e := s.must(exitFailed, "jobs", "ls", "-o", "json")
	require.Equal(t, "retired", e.doc(t)["error_kind"])
	require.Contains(t, e.stderr, "has retired the job API")
}
