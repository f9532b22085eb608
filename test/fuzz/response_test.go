// Package fuzz_test has the fuzz tests of the public API, and their corpus.
package fuzz_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/testkit"
)

// fuzzCalls are calls that return their decoded record.
var fuzzCalls = []struct {
	method  string
	idField string // the ID field of a record that a create returns
	do      func(ctx context.Context, c *svc.Client) (record any, id string, err error)
}{
	{"GET", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		list, err := c.Flavors.List(ctx)
		return list, "", err
	}},
	{"POST", "service_id", func(ctx context.Context, c *svc.Client) (any, string, error) {
		s, err := c.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{Name: "demo"})
		if err != nil {
			return nil, "", err
		}
		return s, s.ServiceID, nil
	}},
	{"GET", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		s, err := c.InferenceServices.Get(ctx, "id-1")
		if err != nil {
			return nil, "", err
		}
		return s, s.ServiceID, nil
	}},
	{"DELETE", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		return nil, "", c.InferenceServices.Delete(ctx, "id-1")
	}},
	{"POST", "job_id", func(ctx context.Context, c *svc.Client) (any, string, error) {
		j, err := c.VideoJobs.Create(ctx, svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "demo"}})
		if err != nil {
			return nil, "", err
		}
		return j, j.JobID, nil
	}},
	{"GET", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		j, err := c.ImageJobs.Get(ctx, "id-1")
		if err != nil {
			return nil, "", err
		}
		return j, j.JobID, nil
	}},
	{"GET", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		page, err := c.VideoJobs.List(ctx, nil)
		return page, "", err
	}},
	{"POST", "id", func(ctx context.Context, c *svc.Client) (any, string, error) {
		f, err := c.Files.Register(ctx, svc.RegisterFileRequest{FileName: "demo"})
		if err != nil {
			return nil, "", err
		}
		return f, f.ID, nil
	}},
	{"GET", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		list, err := c.Files.List(ctx)
		return list, "", err
	}},
	{"GET", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		list, err := c.Files.ListPublic(ctx)
		return list, "", err
	}},
	{"GET", "", func(ctx context.Context, c *svc.Client) (any, string, error) {
		link, err := c.Files.PresignedURL(ctx, "id-1")
		return link, "", err
	}},
}

var fuzzStatuses = []int{200, 201, 204, 301, 307, 400, 401, 404, 409, 410, 422, 429, 500, 503, 521, 600, 999}

// Whatever a service responds, a call returns a record that can be used, or an error that
// says what is known.
func FuzzResponse(f *testing.F) {
	for _, body := range []string{
		testkit.ServiceJSON, "", "{}", "[]", "null", "{", `{"flavor_list":[{}]}`, `{"flavor_list":[{"flavor_id":"f","available_num":"x"}]}`,
		`{"service_id":"id-1"}`, `{"service_id":"id-1","status_info":{"status":7}}`, `{"service_id":"TOKEN"}`, `{"service_id":".."}`,
		`{"job_id":"id-1","outputs":{}}`, `{"job_id":"id-1","outputs":{"a":1}}`, `{"job_id":"id-1","outputs":[{"id":"o","media_url":"https://h/p?sig=x"}],"meta_info":{"original_request":{}}}`,
		`{"jobs":[{"job_id":"j"}],"total_count":1,"page":1}`, `{"id":"id-1","presigned_url":"https://h/p?X-Amz-Signature=TOKEN"}`,
		`[{"id":"f","file_name":"n","created_at":1714558830}]`, `{"presigned_url":"x"}`, `{"error":{"code":"c","message":"TOKEN"}}`,
		"<html>TOKEN</html>", `{"id":"err-1","message":"no"}`, "\ufeff{}", "\xff\xfe", `{"service_id":"a","service_id":"b"}`, `{"service_id":"id-1"}{`,
		`{"service_id":"id-1","name":"NaN \"","load":NaN,"resource_metadata":{"target_instance_number":-Infinity}}`,
	} {
		for i := range fuzzCalls {
			f.Add(uint8(i), uint8(0), "application/json", []byte(body))
		}
		f.Add(uint8(1), uint8(5), "text/html", []byte(body))
		f.Add(uint8(7), uint8(12), "", []byte(body))
	}
	f.Fuzz(func(t *testing.T, which, code uint8, label string, body []byte) {
		op := fuzzCalls[int(which)%len(fuzzCalls)]
		status := fuzzStatuses[int(code)%len(fuzzStatuses)]
		body = bytes.ReplaceAll(body, []byte("TOKEN"), []byte(testkit.Token))
		service := testkit.Loop(t, testkit.Reply{Status: status, Header: map[string]string{"Content-Type": label, "X-Request-Id": label}, Body: string(body)})
		client := service.Client(svc.WithRetry(svc.RetryPolicy{MaxAttempts: 1}))
		record, id, err := op.do(t.Context(), client)
		require.Len(t, service.Seen(), 1)
		if err == nil {
			fuzzRecord(t, client, op.method, status, body, record, id)
			return
		}
		page := bytes.Contains(body, []byte("<")) || strings.Contains(strings.ToLower(label), "html")
		fuzzError(t, op.method, status, page, err)
		if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok {
			require.Equal(t, http.MethodPost, op.method)
			if unknown.ID != "" {
				usable(t, client, unknown.ID)
			}
			if want := plainID(op.idField, body); want != "" && status < 300 {
				require.Equal(t, want, unknown.ID, "the error must have the ID of the created record")
			}
		}
	})
}

// fuzzRecord checks a record that a call returned as success.
func fuzzRecord(t *testing.T, client *svc.Client, method string, status int, body []byte, record any, id string) {
	t.Helper()
	require.True(t, status >= 200 && status < 300)
	if method == http.MethodDelete {
		require.False(t, bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")))
		return
	}
	require.True(t, json.Valid(jsonfield.Clean(body)))
	switch {
	case method == http.MethodPost:
		usable(t, client, id)
	case id != "":
		require.Equal(t, "id-1", id)
	}
	_, err := json.Marshal(record)
	require.NoError(t, err)
	_ = fmt.Sprintf("%+v %#v %d %x", record, record, record, record)
}

// usable checks that calls accept the ID.
func usable(t *testing.T, client *svc.Client, id string) {
	t.Helper()
	require.NotErrorAs(t, client.InferenceServices.Delete(t.Context(), id), new(*svc.ValidationError), "%q", id)
}

var ordinaryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// plainID returns the ID in the body. It returns "" unless the body is a record whose ID
// has only ordinary characters and is certain.
func plainID(field string, body []byte) string {
	var members map[string]any
	if json.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &members) != nil {
		return ""
	}
	for name := range members {
		if name != field && strings.EqualFold(name, field) || bytes.Count(body, []byte(field)) != 1 {
			return ""
		}
	}
	id, _ := members[field].(string)
	if !ordinaryID.MatchString(id) || id == testkit.Token || strings.Contains(id, testkit.Token) {
		return ""
	}
	return id
}

// fuzzError checks the error that a call returned for a response, which may be a page.
func fuzzError(t *testing.T, method string, status int, page bool, err error) {
	t.Helper()
	unknown := errors.Is(err, svc.ErrOutcomeUnknown)
	switch e, answered := errors.AsType[*svc.Error](err); {
	case status < 300:
		require.False(t, answered)
		require.Equal(t, status, testkit.ErrorAs[*svc.DecodeError](t, err).StatusCode)
		require.Equal(t, method == http.MethodPost, unknown)
	default:
		require.True(t, answered)
		require.Equal(t, status, e.StatusCode)
		require.LessOrEqual(t, len(e.Body), 64<<10)
		if status >= 400 && status < 500 && status != http.StatusTooManyRequests && !page {
			require.False(t, unknown, "a refusal is not an unknown outcome")
		}
	}
	text := err.Error()
	require.True(t, utf8.ValidString(text), "%q", text)
	require.NotContains(t, text, testkit.Token)
	require.NotContains(t, fmt.Sprintf("%+v", err), testkit.Token)
	require.Less(t, len(text), 4<<10)
	require.Equal(t, -1, strings.IndexFunc(text, unicode.IsControl), "one line: %q", text)
}

// Whatever Retry-After contains, the delay is within its bounds. A value in one of the
// two valid forms is respected.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{
		"", "0", "1", "2", "30", "31", "3600", "-1", "1.5", " 7 ", "1e3", "0x10", "NaN", "Inf", "-Inf", "1e400", "99999999999999999999", "soon",
		"Sat, 01 Jan 2000 00:00:05 GMT", "Saturday, 01-Jan-00 00:00:05 GMT", "Sat Jan  1 00:00:05 2000", "Sat, 01 Jan 9999 00:00:00 GMT",
		"Sat, 01 Jan 0000 00:00:00 GMT", "\x00", "5, 6", "1_0", "+5",
	} {
		f.Add(value, "", true)
		f.Add(value, "Fri, 31 Dec 1999 23:59:59 GMT", false)
	}
	wholeSeconds := regexp.MustCompile(`^[0-9]{1,8}$`)
	f.Fuzz(func(t *testing.T, value, date string, busy bool) {
		synctest.Test(t, func(t *testing.T) {
			const least, most = time.Second, 30 * time.Second
			r := testkit.Reply{Status: http.StatusServiceUnavailable, Header: map[string]string{"Retry-After": value}}
			if busy {
				r.Status = http.StatusTooManyRequests
			}
			if date != "" {
				r.Header["Date"] = date
			}
			start := time.Now()
			policy := svc.WithRetry(svc.RetryPolicy{MaxAttempts: 2, MinDelay: least, MaxDelay: most})
			err := testkit.OpGet.Do(t.Context(), testkit.Loop(t, r).Client(policy), svc.WithMaxAttempts(1))
			asked := testkit.ErrorAs[*svc.Error](t, err).RetryAfter
			service := testkit.Loop(t, r)
			require.ErrorAs(t, testkit.OpGet.Do(t.Context(), service.Client(policy)), new(*svc.Error))
			require.GreaterOrEqual(t, asked, time.Duration(0))
			if wholeSeconds.MatchString(value) {
				want, err := time.ParseDuration(value + "s")
				require.NoError(t, err)
				require.Equal(t, want, asked)
			} else if at, err := http.ParseTime(value); err == nil && date == "" {
				require.Equal(t, max(at.Sub(start), 0), asked)
			}
			switch gaps := service.Gaps(); {
			case asked > most:
				require.Empty(t, gaps)
				require.Zero(t, time.Since(start), "the call must end at once")
			case asked > 0:
				require.Len(t, gaps, 1)
				require.GreaterOrEqual(t, gaps[0], asked)
				require.LessOrEqual(t, gaps[0], min(asked+asked/10, most))
			default:
				require.Len(t, gaps, 1)
				require.GreaterOrEqual(t, gaps[0], least)
				require.LessOrEqual(t, gaps[0], 2*least)
			}
		})
	})
}
