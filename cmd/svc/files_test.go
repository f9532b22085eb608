package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc/svctest"
)

// contents makes a file of random bytes in the folder where the program runs.
func (s *session) contents(size int) (file string, data []byte, sum string) {
	s.t.Helper()
	data = make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(data)
	file = filepath.Join(s.env["HOME"], "data.jsonl")
	require.NoError(s.t, os.WriteFile(file, data, 0o600))
	h := sha256.Sum256(data)
	return file, data, hex.EncodeToString(h[:])
}

func TestUploadAndDownload(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file, data, sum := s.contents(1 << 20)
	e := s.must(exitOK, "files", "upload", "data.jsonl")
	require.Equal(t, "file-1\n", e.stdout)
	require.Contains(t, e.stderr, "uploading data.jsonl: 100 % of 1.0 MB")
	require.Contains(t, e.stderr, sum)
	require.Equal(t, "data.jsonl", s.srv.Files()[0].Name)
	require.Equal(t, "fine-tune", s.srv.Files()[0].Purpose)
	got, _ := s.srv.FileContents("file-1")
	require.True(t, bytes.Equal(data, got))
	doc := s.must(exitOK, "files", "upload", "-o", "json", "--name", "second", "data.jsonl").doc(t)
	require.Equal(t, []any{sum, "file-2", "second", float64(len(data))}, []any{doc["sha256"], doc["file_id"], doc["name"], doc["bytes"]})

	e = s.must(exitUsage, "files", "download", "file-1")
	require.Contains(t, e.stderr, "data.jsonl exists: --force overwrites it")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	require.Equal(t, "data.jsonl\n", s.must(exitOK, "files", "download", "file-1", "--force", "--sha256", strings.ToUpper(sum)).stdout)
	back, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, back))
	e = s.must(exitOK, "files", "download", "file-1", "-", "-q")
	require.True(t, e.stdout == string(data))
	require.Empty(t, e.stderr)
}

func TestUploadFromAPipe(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	_, data, sum := s.contents(300_000) // more than the library buffers in memory
	cmd := s.command("files", "upload", "--name", "piped.jsonl", "-")
	cmd.Stdin = struct{ io.Reader }{bytes.NewReader(data)}
	e := s.finish(cmd)
	require.Equal(t, "file-1\n", e.stdout, e.stderr)
	require.Contains(t, e.stderr, sum)
	got, _ := s.srv.FileContents("file-1")
	require.True(t, bytes.Equal(data, got))

	fifo := filepath.Join(s.env["HOME"], "fifo")
	makeFifo(t, fifo)
	go func() { _ = os.WriteFile(fifo, data, 0) }()
	require.Contains(t, s.must(exitOK, "files", "upload", fifo).stderr, sum)
}

// TestEmptyInputIsRefused: "produce | svc files upload" must not store nothing when produce fails.
func TestEmptyInputIsRefused(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.contents(0)
	for _, args := range [][]string{{"--name", "x", "-"}, {"data.jsonl"}} {
		upload := append([]string{"files", "upload"}, args...)
		require.Contains(t, s.must(exitUsage, upload...).stderr, "--allow-empty")
		require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
	}
	s.must(exitOK, "files", "upload", "--allow-empty", "--name", "x", "-")
	s.must(exitOK, "files", "upload", "--allow-empty", "data.jsonl")
	require.Len(t, s.srv.Files(), 2)
}

func TestUploadGoesOnWithTheSameRecord(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	_, data, _ := s.contents(1000)
	for _, args := range [][]string{{"data.jsonl"}, {"--id", "file-1", "data.jsonl"}} {
		s.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 403})
		e := s.must(exitFailed, append([]string{"files", "upload"}, args...)...)
		require.Empty(t, e.stdout)
		require.Contains(t, e.stderr, "svc files upload --id file-1 data.jsonl")
	}
	require.Equal(t, "file-1\n", s.must(exitOK, "files", "upload", "--id", "file-1", "data.jsonl", "-o", "name").stdout)
	require.Len(t, s.srv.Files(), 1, "one record")
	got, _ := s.srv.FileContents("file-1")
	require.Equal(t, data, got)
	require.Contains(t, s.must(exitNotFound, "files", "upload", "--id", "nope", "data.jsonl").stderr, "There is no record nope.")
}

// TestUploadWhenTheResponseIsLost: nothing is sent twice, and the list of files shows what to do.
func TestUploadWhenTheResponseIsLost(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.contents(1000)
	s.srv.Fault("POST", svctest.RouteFiles, svctest.DropAfterEffect())
	e := s.must(exitFailed, "files", "upload", "data.jsonl", "-o", "json")
	require.Regexp(t, `Records named "data.jsonl" that may be of this upload, by their time, the newest first: file-1 \([^ ]+Z\)\.\n.*: svc files upload --id ID data.jsonl\n`, e.stderr)
	require.NotContains(t, e.stderr, "endpoint")
	require.Equal(t, false, e.doc(t)["may_be_running"], "a file is not billed as an endpoint is")

	s.srv.Fault("POST", svctest.RouteFiles, svctest.Fault{Status: 502})
	require.Contains(t, s.must(exitFailed, "files", "upload", "--name", "another", "data.jsonl").stderr, "you can repeat the upload")
	require.Equal(t, 2, s.srv.RequestCount("POST", svctest.RouteFiles), "none was repeated")

	s.srv.Fault("POST", svctest.RouteFiles, svctest.DropAfterEffect())
	s.srv.Fault("GET", svctest.RouteFiles, svctest.Fault{Status: 403})
	require.Contains(t, s.must(exitFailed, "files", "upload", "--name", "third", "data.jsonl").stderr, "The list of files cannot be read")
}

// TestUploadAdviceKeepsTheFlags: what is printed uploads the same.
func TestUploadAdviceKeepsTheFlags(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "no data"), nil, 0o600))
	for i, line := range []string{"files upload --allow-empty --content-type text/csv", "files upload --allow-empty"} {
		s.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Status: 403})
		e := s.must(exitFailed, append(strings.Fields(line), "no data")...)
		again := fmt.Sprintf("%s --id file-%d 'no data'", line, i+1)
		require.Contains(t, e.stderr, "To upload to it again: svc "+again+"\n")
		s.must(exitOK, append(strings.Fields(strings.TrimSuffix(again, " 'no data'")), "no data")...)
	}
}

// TestWhatIsMissingHasNoName: -o name prints the IDs of what was found.
func TestWhatIsMissingHasNoName(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	id := s.srv.AddFile("name", "fine-tune", []byte("x"))
	for _, line := range []string{"files link", "files download", "get"} {
		require.Empty(t, s.must(exitNotFound, append(strings.Fields(line), "file-9", "-o", "name")...).stdout, line)
	}
	require.Equal(t, id+"\n", s.must(exitOK, "files", "link", id, "-o", "name").stdout)
	require.Equal(t, id+"\n", s.must(exitOK, "files", "download", id, "-o", "name").stdout)
	s.srv.Fault("GET", svctest.RouteStorage, svctest.Fault{Status: 404, Body: "no such key"})
	e := s.must(exitNotFound, "files", "download", id, "other")
	require.Contains(t, e.stderr, "The service has the record, and its storage has no contents")
	require.NotContains(t, e.stderr, "SVC_BASE_URL")
	s.srv.Fault("GET", svctest.RouteFileLink, svctest.Fault{Body: `{"presigned_url":"ftp://storage/x"}`})
	e = s.must(exitFailed, "files", "download", id, "other", "-o", "json")
	require.Equal(t, "unexpected_response", e.doc(t)["error_kind"])
	require.NotContains(t, e.stderr, "--help")
}

// TestUploadAdviceNamesNoOlderRecord: its contents would be replaced.
func TestUploadAdviceNamesNoOlderRecord(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	_, data, _ := s.contents(1000)
	upload := func() string { return s.must(exitFailed, "files", "upload", "data.jsonl").stderr }
	s.srv.SetField(s.srv.AddFile("data.jsonl", "fine-tune", data), "created_at", time.Now().Add(-time.Hour).Unix())
	s.srv.Fault("POST", svctest.RouteFiles, svctest.Fault{Status: 502})
	require.Contains(t, upload(), `No record named "data.jsonl" was created by this command: you can repeat the upload.`)

	s.srv.Fault("POST", svctest.RouteFiles, svctest.DropAfterEffect())
	said := upload()
	require.Regexp(t, `the newest first: file-2 \([^)]*\)\.\n.* since its contents are replaced: svc files upload --id ID data.jsonl\n`, said)
	require.NotContains(t, said, "file-1")

	s.srv.AddFile("data.jsonl", "fine-tune", data) // of another program, at that moment
	s.srv.Fault("POST", svctest.RouteFiles, svctest.DropAfterEffect())
	said = upload()
	require.Regexp(t, `the newest first: file-4 \([^)]*\), file-3 \([^)]*\)(, file-2 .*)?\.\n`, said)
	require.Contains(t, said, "svc files upload --id ID data.jsonl\n")
	require.NotContains(t, said, "file-1 ")
}

// TestDownloadNeverOverwrites: neither after a failure, nor with a wrong SHA-256, nor a file
// that appears during the download.
func TestDownloadNeverOverwrites(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	_, data, sum := s.contents(1000)
	s.srv.AddFile("../bad", "fine-tune", data)
	s.srv.AddFile("good", "fine-tune", data)
	wrong := strings.Repeat("0", 64)
	require.Contains(t, s.must(exitFailed, "files", "download", "file-2", "--sha256", wrong).stderr, "good was not written")
	require.Contains(t, s.must(exitFailed, "files", "download", "file-2", "data.jsonl", "--force", "--sha256", wrong).stderr, sum)
	require.Contains(t, s.must(exitUsage, "files", "download", "file-1").stderr, "cannot be the name of a file")
	require.Contains(t, s.must(exitFailed, "files", "download", "file-2", "-", "--sha256", wrong).stderr, "expected SHA-256")
	s.must(exitUsage, "files", "download", "file-2", "--sha256", "abc")
	s.must(exitUsage, "files", "download", "file-2", "-", "-o", "json")
	s.must(exitUsage, "files", "download", "file-2", "no/such/folder/x")
	require.Contains(t, s.must(exitNotFound, "files", "download", "file-9").stderr, "no such file")
	s.srv.Fault("GET", svctest.RouteStorage, svctest.Fault{Status: 403, Times: -1})
	s.must(exitFailed, "files", "download", "file-2", "data.jsonl", "--force")
	s.srv.ClearFaults()

	s.srv.Fault("GET", svctest.RouteStorage, svctest.Fault{Delay: 3 * time.Second})
	cmd := s.command("files", "download", "file-2", "late")
	s.start(cmd)
	eventually(t, "the download begins", func() bool {
		return s.srv.RequestCount("GET", svctest.RouteStorage) > 8 || exists(s, ".svc-download-*")
	})
	require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "late"), []byte("mine"), 0o600))
	require.Error(t, cmd.Wait())
	kept, err := os.ReadFile(filepath.Join(s.env["HOME"], "late"))
	require.NoError(t, err)
	require.Equal(t, "mine", string(kept))

	left, err := os.ReadDir(s.env["HOME"])
	require.NoError(t, err)
	require.Len(t, left, 2, "no temporary files: %v", left)
	kept, err = os.ReadFile(filepath.Join(s.env["HOME"], "data.jsonl"))
	require.NoError(t, err)
	require.Equal(t, data, kept)
}

func exists(s *session, pattern string) bool {
	found, _ := filepath.Glob(filepath.Join(s.env["HOME"], pattern))
	return len(found) > 0
}

func TestFilesLs(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.Equal(t, []any{}, s.must(exitOK, "files", "ls", "-o", "json").doc(t)["files"])
	s.srv.AddFile("data set.jsonl", "fine-tune", nil)
	s.srv.AddFile("odd\x1b[2J\nfile-9", "batch", nil)
	require.Regexp(t, `^ID +CREATED +PURPOSE +BYTES +NAME\n`+
		`file-1  \d{4}-\d\d-\d\dT\S+Z  fine-tune  -      data set.jsonl\n`+
		"file-2  \\S+  batch      -      odd\uFFFD\\[2J\uFFFDfile-9\n$", s.must(exitOK, "files", "ls").stdout)
	require.Equal(t, "file-1\nfile-2\n", s.must(exitOK, "files", "ls", "-o", "name").stdout)
	s.srv.Fault("GET", "/v1/public-files", svctest.Fault{Body: `[{"id":"p","file_name":"x","purpose":"p","created_at":null,"token":0,"length":0,"bytes":7,"description":""}]`})
	require.Regexp(t, `\np +- +p +7 +x\n$`, s.must(exitOK, "files", "ls", "--public").stdout)
	s.srv.Fault("GET", svctest.RouteFiles, svctest.Fault{Status: 403})
	require.Equal(t, "forbidden", s.must(exitRefused, "files", "ls", "-o", "json").doc(t)["error_kind"])
}

func TestFilesRmAndLink(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddFile("a", "fine-tune", []byte("contents"))
	link := strings.TrimSpace(s.must(exitOK, "files", "link", "file-1").stdout)
	resp, err := http.Get(link)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "contents", string(body))
	e := s.must(exitNotFound, "files", "rm", "file-9", "file-1", "file-8", "file-1")
	require.Regexp(t, `(?m)^file-1 +deleted\nfile-8 +not found\nfile-9 +not found$`, e.stdout, "each once")
	require.Regexp(t, `no such file .id file-8,.*; .*no such file .id file-9,`, e.stderr, "each reason")
	require.True(t, s.srv.Files()[0].Deleted)
	s.must(exitNotFound, "files", "link", "file-1")
}

// TestInterruptedUpload: the record is named, so that the upload can go on.
func TestInterruptedUpload(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.contents(8 << 20)
	s.srv.Fault("PUT", svctest.RouteStorage, svctest.Fault{Rate: 1 << 10, Times: -1})
	cmd := s.command("files", "upload", "data.jsonl", "--progress", "none")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	s.start(cmd)
	eventually(t, "the upload begins", func() bool { return s.srv.RequestCount("PUT", svctest.RouteStorage) > 0 })
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, exitInterrupted, cmd.ProcessState.ExitCode(), stderr.String())
	require.Contains(t, stderr.String(), "svc files upload --id file-1 data.jsonl")
}

// TestUploadToARecordKeepsItsName: the service cannot rename a record, so nothing claims that it did.
func TestUploadToARecordKeepsItsName(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddFile("first", "batch", []byte("old"))
	s.contents(1000)
	for _, flag := range []string{"--name", "--purpose"} {
		require.Contains(t, s.must(exitUsage, "files", "upload", "data.jsonl", "--id", "file-1", flag, "new").stderr, "for a new record")
	}
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
	e := s.must(exitOK, "files", "upload", "data.jsonl", "--id", "file-1", "-o", "json")
	require.Equal(t, "first", e.doc(t)["name"])
	require.Contains(t, e.stderr, "uploading file-1: 100 %")
}

// TestFoldersAreNoFiles: nothing is sent for a folder in place of a file, and nothing replaces one.
func TestFoldersAreNoFiles(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.srv.AddFile("a", "batch", []byte("contents"))
	require.NoError(t, os.Mkdir(filepath.Join(s.env["HOME"], "folder"), 0o700))
	require.NoError(t, os.Symlink("folder", filepath.Join(s.env["HOME"], "link")))
	for _, folder := range []string{".", "folder", "link"} {
		for _, args := range [][]string{{"upload", folder}, {"download", "file-1", folder}, {"download", "file-1", folder, "--force"}} {
			require.Contains(t, s.must(exitUsage, append([]string{"files"}, args...)...).stderr, folder+" is a folder")
		}
	}
	require.Zero(t, s.srv.RequestCount("*", svctest.RouteAny))
	s.must(exitUsage, "files", "upload", "none")
}

// TestDownloadWhoseReaderGoesAway says how much it has written, and does not say that it has downloaded all.
func TestDownloadWhoseReaderGoesAway(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.contents(20 << 20)
	s.must(exitOK, "files", "upload", "data.jsonl")
	const gone = `(?m)^(svc: )?the reader of standard output has closed it after \S+ \wB of 21\.0 MB: the rest was not downloaded`
	e := s.finish(s.shell("svc files download file-1 - | head -c 10 >/dev/null"))
	require.Equal(t, exitOK, e.code, e.stderr)
	require.Regexp(t, gone+"$", e.stderr)
	require.NotContains(t, e.stderr, "SHA-256")
	e = s.finish(s.shell("svc files download file-1 - --sha256 " + strings.Repeat("a", 64) + " | head -c 10 >/dev/null"))
	require.Equal(t, exitFailed, e.code, e.stderr)
	require.Regexp(t, gone+", and the SHA-256 was not checked$", e.stderr)
	e = s.finish(s.shell("svc files ls | head -n 1; svc files ls --public | true; svc flavors | head -n 1"))
	require.Equal(t, exitOK, e.code, e.stderr)
	require.Empty(t, e.stderr)
}

// TestLinkThatTheStorageRefuses: the token is not sent to the storage, so no text doubts it.
func TestLinkThatTheStorageRefuses(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.NoError(t, os.WriteFile(filepath.Join(s.env["HOME"], "in"), []byte("text"), 0o600))
	s.must(exitOK, "files", "upload", "in")
	refused := svctest.Fault{Status: 403, Body: "<Error><Code>SignatureDoesNotMatch</Code></Error>", Times: -1}
	s.srv.Fault("PUT", svctest.RouteStorage, refused)
	s.srv.Fault("GET", svctest.RouteStorage, refused)
	for _, line := range []string{"files upload in", "files upload --id file-1 in", "files download file-1 out"} {
		e := s.must(exitFailed, append(strings.Fields(line), "-o", "json")...)
		require.Equal(t, "refused", e.doc(t)["error_kind"], line)
		require.Contains(t, e.stderr, "SignatureDoesNotMatch", line)
		require.NotContains(t, e.stderr, "token", line)
	}
}
