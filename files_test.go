package svc_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// answers returns a service whose API gives the same response to every request.
func answers(t *testing.T, status int, contentType, body string) *testkit.FileService {
	s := testkit.NewFileService(t, nil)
	s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
	return s
}

func TestFiles_Records(t *testing.T) {
	const record = `"id":"f1","file_name":"train.jsonl","purpose":"x-new","created_at":1714558830`
	file := svc.File{ID: "f1", FileName: "train.jsonl", Purpose: "x-new"}

	got, err := answers(t, 200, "application/json", "{"+record+"}").Client(t).Files.Get(t.Context(), "f1")
	require.NoError(t, err)
	require.EqualValues(t, 1714558830, got.CreatedAt.Unix())
	got.CreatedAt = svc.Time{}
	require.Equal(t, &file, got)

	list, err := answers(t, 200, "application/json", "[{"+record+"},{"+record+"}]").Client(t).Files.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "train.jsonl", list[1].FileName)
}

func TestPublicFileNumbers_B41(t *testing.T) {
	s := answers(t, 200, "application/json", `[{"id":"p1","file_name":"corpus","purpose":"fine-tune","created_at":1714558830,
		"token":"12","length":9223372036854775807,"bytes":9007199254740993,"description":"open"}]`)
	list, err := s.Client(t).Files.ListPublic(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	p := list[0]
	require.Equal(t, "p1", p.ID)
	require.Equal(t, "corpus", p.FileName)
	require.Equal(t, svc.FilePurposeFineTune, p.Purpose)
	require.EqualValues(t, 1714558830, p.CreatedAt.Unix())
	require.EqualValues(t, 12, p.Token)
	require.EqualValues(t, math.MaxInt64, p.Length)
	require.EqualValues(t, 9007199254740993, p.Bytes)
	require.Equal(t, "open", p.Description)
}

func TestFiles_PublicListNeedsNoToken(t *testing.T) {
	s := answers(t, 200, "application/json", `[]`)
	anonymous, err := svc.NewClient(s.URL)
	require.NoError(t, err)
	defer anonymous.CloseIdleConnections()
	for _, c := range []*svc.Client{anonymous, s.Client(t)} {
		_, err = c.Files.ListPublic(t.Context())
		require.NoError(t, err)
	}
	for _, r := range s.Requests("GET") {
		require.Equal(t, "/v1/public-files", r.RequestURI)
		require.Empty(t, r.Header.Values("Authorization"))
	}
	_, err = anonymous.Files.List(t.Context())
	require.ErrorIs(t, err, svc.ErrNoToken)
	require.Len(t, s.Requests("GET"), 2, "nothing is sent without a token")
}

func TestEmptyFileLists_B36(t *testing.T) {
	for _, body := range []string{"null", "[]"} {
		list, err := answers(t, 200, "application/json", body).Client(t).Files.List(t.Context())
		require.NoError(t, err, body)
		require.Empty(t, list, body)
	}
}

func TestFiles_Routes(t *testing.T) {
	s := testkit.NewFileService(t, nil)
	c := s.Client(t)
	reg, err := c.Files.Register(t.Context(), svc.RegisterFileRequest{FileName: "a.jsonl", Purpose: svc.FilePurposeFineTune})
	require.NoError(t, err)
	require.Equal(t, "f1", reg.ID)
	require.Equal(t, string(s.Link()), string(reg.PresignedURL), "byte for byte")
	_, err = c.Files.Register(t.Context(), svc.RegisterFileRequest{FileName: "b"})
	require.NoError(t, err)
	link, err := c.Files.PresignedURL(t.Context(), "f1")
	require.NoError(t, err)
	require.Equal(t, string(s.Link()), string(link))
	require.NoError(t, c.Files.Delete(t.Context(), "f1"))

	posts := s.Requests("POST")
	require.Equal(t, "/v1/files", posts[0].RequestURI)
	require.Equal(t, "application/json", posts[0].Header.Get("Content-Type"))
	require.JSONEq(t, `{"file_name":"a.jsonl","purpose":"fine-tune"}`, posts[0].Bytes.String())
	require.JSONEq(t, `{"file_name":"b"}`, posts[1].Bytes.String(), "an unset purpose is absent")
	require.Equal(t, "/v1/files/f1/presigned_url", s.Requests("GET")[0].RequestURI)
	require.Equal(t, "/v1/files/f1", s.Requests("DELETE")[0].RequestURI)
	for _, r := range s.Seen {
		require.Equal(t, []string{"Bearer " + testkit.Token}, r.Header.Values("Authorization"))
	}

	_, err = c.Files.Register(t.Context(), svc.RegisterFileRequest{})
	require.ErrorAs(t, err, new(*svc.ValidationError))
	require.Len(t, s.Requests("POST"), 2)
}

func TestRegisterIsNotRepeated_B02(t *testing.T) {
	register := svc.RegisterFileRequest{FileName: "train.jsonl"}
	for name, answer := range map[string]func(w http.ResponseWriter){
		"a: no answer": func(http.ResponseWriter) { testkit.Abort() },
		"b: 502 HTML": func(w http.ResponseWriter) {
			w.WriteHeader(502)
			_, _ = io.WriteString(w, "<html>Bad Gateway</html>")
		},
		"c: 504":         func(w http.ResponseWriter) { w.WriteHeader(504) },
		"not a record":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>log in</html>") },
		"without a link": func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"id":"f9"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.NewFileService(t, nil)
			s.API = func(_ int, w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				answer(w)
			}
			_, err := s.Client(t).Files.Register(t.Context(), register)
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			var unknown *svc.OutcomeUnknownError
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, "train.jsonl", unknown.Name)
			if unknown.ID == "" {
				require.Contains(t, err.Error(), "may or may not have been created")
			}
			require.Contains(t, err.Error(), "List shows whether the record exists")
			require.Len(t, s.Requests("POST"), 1)
			if name == "without a link" {
				require.Equal(t, "f9", unknown.ID)
			}
		})
	}
}

func TestFilesResponsesThatAreNone_B38(t *testing.T) {
	const page = "<!doctype html><html><title>Please log in</title></html>"
	const record = `{"id":"f1","file_name":"a","purpose":"fine-tune","created_at":1}`
	get := func(s *testkit.FileService) error {
		_, err := s.Client(t).Files.Get(t.Context(), "f1")
		return err
	}
	for _, status := range []int{502, 403} {
		err := get(answers(t, status, "text/html", page))
		var e *svc.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, status, e.StatusCode)
		require.Contains(t, e.Message, "Please log in")
	}
	for body, wrong := range map[string]string{
		page:          "Please log in",
		record + page: "",
		`{}`:          "id",
		`{"id":"f2"}`: "another record",
	} {
		err := get(answers(t, 200, "text/html", body))
		var e *svc.DecodeError
		require.ErrorAs(t, err, &e, body)
		require.Equal(t, 200, e.StatusCode)
		require.Equal(t, "text/html", e.ContentType)
		require.Contains(t, err.Error(), wrong)
	}
	require.NoError(t, get(answers(t, 200, "application/json", "\xef\xbb\xbf"+record)), "a byte-order mark")

	for _, body := range []string{`{}`, `{"presigned_url":""}`, `{"presigned_url":null}`, `[]`, ``} {
		_, err := answers(t, 200, "application/json", body).Client(t).Files.PresignedURL(t.Context(), "f1")
		require.ErrorAs(t, err, new(*svc.DecodeError), body)
	}
}

func TestFileDeleteTakesAnyBody_B40(t *testing.T) {
	for _, a := range []struct {
		status int
		body   string
	}{{200, ""}, {204, ""}, {202, ""}, {200, "{}"}, {200, "deleted"}} {
		require.NoError(t, answers(t, a.status, "", a.body).Client(t).Files.Delete(t.Context(), "f1"), a)
	}
	for _, status := range []int{404, 500} {
		err := answers(t, status, "", "").Client(t).Files.Delete(t.Context(), "f1")
		var e *svc.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, status, e.StatusCode)
		require.NotErrorIs(t, err, io.EOF)
	}
	s := testkit.NewFileService(t, nil)
	s.API = func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			testkit.Abort()
		}
		w.WriteHeader(404)
	}
	require.NoError(t, s.Client(t).Files.Delete(t.Context(), "f1"), "the delete whose response was lost took effect")
}

func TestFileIDs_B42(t *testing.T) {
	calls := map[string]func(c *svc.Client, id string) error{
		"": func(c *svc.Client, id string) error { _, err := c.Files.Get(context.Background(), id); return err },
		"/presigned_url": func(c *svc.Client, id string) error {
			_, err := c.Files.PresignedURL(context.Background(), id)
			return err
		},
		"delete": func(c *svc.Client, id string) error { return c.Files.Delete(context.Background(), id) },
		"download": func(c *svc.Client, id string) error {
			_, err := c.Files.Download(context.Background(), id, io.Discard, nil)
			return err
		},
	}
	for name, call := range calls {
		for _, id := range []string{"", "  ", "..", "x/y", "x\ny"} {
			s := testkit.NewFileService(t, nil)
			require.ErrorAs(t, call(s.Client(t), id), new(*svc.ValidationError), "%s %q", name, id)
			require.Empty(t, s.Seen, "%s %q", name, id)
		}
		for _, id := range []string{"x#y", "x?y=1", "x y", "x%2Fy", "x%y", "文件"} {
			s := testkit.NewFileService(t, nil)
			_ = call(s.Client(t), id) // the call fails: the response has a record with another ID
			require.NotEmpty(t, s.Seen)
			want := "/v1/files/" + url.PathEscape(id)
			require.True(t, strings.HasPrefix(s.Seen[0].RequestURI, want), s.Seen[0].RequestURI)
			rest := strings.TrimPrefix(s.Seen[0].RequestURI, want)
			require.Contains(t, []string{"", "/presigned_url"}, rest)
		}
	}
}

func TestFiles_CancelledRegisterIsUnknown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := testkit.NewFileService(t, nil)
	release := make(chan struct{})
	s.API = func(_ int, _ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-release
	}
	defer close(release)
	_, err := s.Client(t).Files.Register(ctx, svc.RegisterFileRequest{FileName: "a"})
	require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
}
