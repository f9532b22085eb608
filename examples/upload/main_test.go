package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/svctest"
)

// session runs the program against a fake in memory.
type session struct {
	t        *testing.T
	srv      *svctest.Server
	terminal bool
	stdin    io.Reader
	cancel   time.Duration // time from the start until Ctrl-C; 0: never
}

func inBubble(t *testing.T, test func(*testing.T, *session), opts ...svctest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		srv := svctest.NewInMemory(opts...)
		t.Cleanup(srv.Close)
		t.Setenv("SVC_BASE_URL", srv.URL())
		t.Setenv("SVC_API_TOKEN", srv.Token())
		t.Setenv("SVC_FAKE", "")
		test(t, &session{t: t, srv: srv})
	})
}

func (s *session) run(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, log bytes.Buffer
	program := &tool{
		stdin: s.stdin, stdout: &out, stderr: &log, terminal: s.terminal,
		options: []svc.Option{svc.WithHTTPClient(s.srv.HTTPClient())},
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	if s.cancel > 0 {
		defer time.AfterFunc(s.cancel, cancel).Stop()
	}
	code = program.run(ctx, append([]string{"upload"}, args...))

	secrets := []string{s.srv.Token()}
	for _, r := range s.srv.Requests() {
		if signature := r.Query.Get("X-Amz-Signature"); signature != "" {
			secrets = append(secrets, signature, url.QueryEscape(signature))
		}
	}
	for _, secret := range secrets {
		require.NotContains(s.t, out.String()+log.String(), secret)
	}
	return code, out.String(), log.String()
}

// contents makes a file of random bytes.
func contents(t *testing.T, size int) (path string, data []byte) {
	t.Helper()
	data = make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(data)
	path = filepath.Join(t.TempDir(), "data.jsonl")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path, data
}

func TestUploadAndDownload(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		path, data := contents(t, 1<<20)
		code, stdout, stderr := s.run(path)
		require.Zero(t, code, stderr)
		require.Equal(t, "file-1\n", stdout)
		require.Contains(t, stderr, "uploading: 100 % of 1048576 bytes")
		require.Equal(t, "data.jsonl", s.srv.Files()[0].Name)
		require.Equal(t, "fine-tune", s.srv.Files()[0].Purpose)
		got, _ := s.srv.FileContents("file-1")
		require.True(t, bytes.Equal(data, got))

		back := filepath.Join(t.TempDir(), "back")
		code, stdout, stderr = s.run("download", "file-1", back)
		require.Zero(t, code, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "downloaded 1048576 bytes")
		got, err := os.ReadFile(back)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))

		code, stdout, _ = s.run("download", "file-1", "-")
		require.Zero(t, code)
		require.True(t, stdout == string(data))
	})
}

func TestUploadFromStandardInput(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		data := strings.Repeat("line\n", 50_000) // more than the library buffers in memory
		s.stdin = struct{ io.Reader }{strings.NewReader(data)}
		code, stdout, stderr := s.run("--name", "piped.jsonl", "-")
		require.Zero(t, code, stderr)
		require.Equal(t, "file-1\n", stdout)
		require.Equal(t, "piped.jsonl", s.srv.Files()[0].Name)
		got, _ := s.srv.FileContents("file-1")
		require.True(t, data == string(got))
	})
}

func TestUploadGoesOnWithTheSameRecord(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		path, data := contents(t, 1000)
		s.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 403})
		code, stdout, stderr := s.run(path)
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "upload --id file-1 "+path)

		s.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 403})
		code, _, stderr = s.run("--id", "file-1", path)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "upload --id file-1 "+path, "the advice is the same after the second failure")

		code, stdout, stderr = s.run("--id", "file-1", path)
		require.Zero(t, code, stderr)
		require.Equal(t, "file-1\n", stdout)
		require.Len(t, s.srv.Files(), 1, "one record")
		got, _ := s.srv.FileContents("file-1")
		require.Equal(t, data, got)
	})
}

func TestUploadWhenTheResponseIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		path, _ := contents(t, 1000)
		s.srv.Fault("POST", svctest.RouteFiles, svctest.DropAfterEffect())
		code, stdout, stderr := s.run(path)
		require.Equal(t, 4, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "upload --id file-1 "+path)

		s.srv.Fault("POST", svctest.RouteFiles, svctest.Fault{Status: 502})
		code, _, stderr = s.run("--name", "another", path)
		require.Equal(t, 4, code, "the outcome was unknown")
		require.Contains(t, stderr, "no record has that name")
		require.Equal(t, 2, s.srv.RequestCount("POST", svctest.RouteFiles), "none was repeated")

		s.srv.Fault("POST", svctest.RouteFiles, svctest.DropAfterEffect())
		s.srv.Fault("GET", svctest.RouteFiles, svctest.Fault{Status: 403})
		code, _, stderr = s.run("--name", "third", path)
		require.Equal(t, 4, code)
		require.Contains(t, stderr, "the list of files cannot be read")

		s.srv.Fault("POST", svctest.RouteFiles, svctest.Fault{AfterEffect: true, Delay: time.Hour})
		s.cancel = time.Second
		code, _, stderr = s.run("--name", "fourth", path)
		require.Equal(t, 4, code, "the unknown outcome matters more than the interrupt")
		require.Contains(t, stderr, "a record has that name")

		s.cancel = 0
		s.srv.Fault("POST", svctest.RouteFiles, svctest.Fault{Status: 400})
		code, _, _ = s.run(path)
		require.Equal(t, 1, code, "there is no record")
		code, stdout, _ = s.run("--help")
		require.Zero(t, code)
		require.Contains(t, stdout, "\n     4    the outcome of the register call is unknown")
	})
}

func TestList(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		code, stdout, stderr := s.run("list")
		require.Zero(t, code, stderr)
		require.Equal(t, "ID  CREATED  PURPOSE  NAME\n", stdout)

		s.srv.AddFile("data set.jsonl", "fine-tune", nil)
		s.srv.AddFile("odd\x1b[2J\nfile-9", "batch", nil)
		code, stdout, stderr = s.run("list")
		require.Zero(t, code, stderr)
		require.Empty(t, stderr)
		require.Equal(t, "ID      CREATED               PURPOSE    NAME\n"+
			"file-1  2000-01-01T00:00:00Z  fine-tune  data set.jsonl\n"+
			"file-2  2000-01-01T00:00:00Z  batch      \"odd\\x1b[2J\\nfile-9\"\n", stdout)

		s.srv.Fault("GET", svctest.RouteFiles, svctest.Fault{Status: 403})
		code, stdout, stderr = s.run("list")
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "403")

		s.srv.Fault("GET", svctest.RouteFiles, svctest.Fault{Body: `[{"id":"f","file_name":"x","purpose":"p","created_at":null}]`})
		_, stdout, stderr = s.run("list")
		require.Regexp(t, `\nf +- +p +x\n$`, stdout, stderr)
	})
}

func TestDownloadFailureKeepsTheOldFile(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.srv.AddFile("a", "fine-tune", make([]byte, 1000))
		s.srv.Fault("GET", svctest.RouteStorage, svctest.Fault{TruncateAfter: -1, Times: -1})
		dir := t.TempDir()
		path := filepath.Join(dir, "old")
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		code, _, stderr := s.run("download", "file-1", path)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "as it was before")
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, left, 1)
		old, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "old", string(old))

		code, _, stderr = s.run("download", "file-1", filepath.Join(dir, "new"))
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "new was not written")
		require.NotContains(t, stderr, "as it was before", "there was nothing before")

		code, _, stderr = s.run("download", "file-9", path)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "there is no file file-9")
		require.NotContains(t, stderr, "repeat", "it would fail again")
	})
}

func TestUploadToARecordThatDoesNotExist(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		path, _ := contents(t, 1000)
		code, stdout, stderr := s.run("--id", "nope", path)
		require.Equal(t, 1, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "there is no record nope")
		require.NotContains(t, stderr, "upload --id", "that record does not exist")
	})
}

func TestInsecureHTTP(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		address := "http" + strings.TrimPrefix(s.srv.URL(), "https")
		code, _, stderr := s.run("download", "--base-url", address, "file-1", "-")
		require.Equal(t, 2, code)
		require.Contains(t, stderr, "--insecure-http")
		code, _, _ = s.run("download", "--base-url", address, "--insecure-http", "file-1", "-")
		require.NotEqual(t, 2, code)
		require.Equal(t, 1, s.srv.RequestCount("GET", svctest.RouteFileLink))
	})
}

func TestInterrupt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		path, _ := contents(t, 1<<20)
		s.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Rate: 1 << 10, Times: -1})
		s.cancel = time.Second
		code, _, stderr := s.run(path)
		require.Equal(t, 130, code, stderr)
		require.Contains(t, stderr, "upload --id file-1")
	})
}

func TestBar(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		s.terminal = true
		path, _ := contents(t, 1<<20)
		s.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Rate: 1 << 18})
		code, _, stderr := s.run(path)
		require.Zero(t, code, stderr)
		require.Contains(t, stderr, "\r")
		require.Contains(t, stderr, "uploading 100%")
		require.Contains(t, stderr, "\nuploaded 1048576 bytes\n")

		path, _ = contents(t, 0)
		code, _, stderr = s.run(path)
		require.Zero(t, code, stderr)
		require.Contains(t, stderr, "uploaded 0 bytes\n")
	})
}

// TestBarStartsOver: the bar starts over when a second attempt sends the contents again.
func TestBarStartsOver(t *testing.T) {
	var out bytes.Buffer
	b := newBar(&out, true, "uploading")
	b.progress(50, 100)
	b.progress(100, 100)
	require.Contains(t, out.String(), "uploading 100%")
	out.Reset()
	b.progress(20, 100)
	require.Contains(t, out.String(), "\ruploading  20%")
}

func TestUsage(t *testing.T) {
	inBubble(t, func(t *testing.T, s *session) {
		for name, args := range map[string][]string{
			"nothing":            {},
			"two files":          {"a", "b"},
			"no such file":       {filepath.Join(t.TempDir(), "none")},
			"nameless":           {"-"},
			"no such flag":       {"--nope"},
			"download what":      {"download"},
			"download to where":  {"download", "file-1"},
			"list what":          {"list", "file-1"},
			"address over http":  {"download", "--base-url", "http://service.example", "file-1", "-"},
			"address of nothing": {"download", "--base-url", "", "file-1", "-"},
		} {
			code, stdout, stderr := s.run(args...)
			require.Equal(t, 2, code, "%s: %s", name, stderr)
			require.Empty(t, stdout, name)
		}
		require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
	})
}

func TestFakeNeedsNoEnvironment(t *testing.T) {
	t.Setenv("SVC_BASE_URL", "")
	t.Setenv("SVC_API_TOKEN", "")
	path, _ := contents(t, 1000)
	var stdout, stderr bytes.Buffer
	program := &tool{stdout: &stdout, stderr: &stderr}
	require.Zero(t, program.run(t.Context(), []string{"upload", "--fake", path}), stderr.String())
	require.Equal(t, "file-2\n", stdout.String())
}
