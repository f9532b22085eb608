package jobs_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
	"example.com/svc/svctest"
)

// sentJob creates a job with f, and returns the request body.
func sentJob(t *testing.T, f func(*svc.Client) error) string {
	t.Helper()
	var body string
	s := recordJobBody{&body}
	client, err := svc.NewClient("https://api.test", svc.WithToken("token"), svc.WithHTTPClient(&http.Client{Transport: s}))
	require.NoError(t, err)
	require.NoError(t, f(client))
	return body
}

type recordJobBody struct{ to *string }

func (r recordJobBody) RoundTrip(req *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	*r.to = req.Method + " " + req.URL.Path + " " + req.Header.Get("Content-Type") + " " + string(b)
	return &http.Response{
		StatusCode: 201, Header: http.Header{}, Request: req, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(`{"job_id":"j","status":"initializing","outputs":{}}`)),
	}, nil
}

func TestVideoJobBody_B39(t *testing.T) {
	for name, tt := range map[string]struct {
		config svc.VideoJobConfig
		want   string
	}{
		"prompt alone": {svc.VideoJobConfig{Prompt: "p"}, `{"prompt":"p"}`},
		"explicit zeros": {svc.VideoJobConfig{
			Prompt: "p", NegativePrompt: json.RawMessage(`""`), Settings: svc.VideoJobSettings{Seed: new(0)},
			IsPublic: new(false), UseFFCond: json.RawMessage(`0`), IsEnablePromptEnhancer: json.RawMessage(`false`),
		}, `{"prompt":"p","negative_prompt":"","settings":{"seed":0},"is_public":false,"use_ff_cond":0,"is_enable_prompt_enhancer":false}`},
		"explicit nulls": {svc.VideoJobConfig{
			Prompt: "p", NegativePrompt: json.RawMessage("null"), UseFFCond: json.RawMessage(`null`), IsEnablePromptEnhancer: json.RawMessage("null"),
		}, `{"prompt":"p","negative_prompt":null,"use_ff_cond":null,"is_enable_prompt_enhancer":null}`},
		"everything": {svc.VideoJobConfig{
			Prompt: "p", NegativePrompt: json.RawMessage(`"n"`),
			Settings: svc.VideoJobSettings{Seed: new(-1), AspectRatio: "16:9", Resolution: 720, Duration: 4},
			GenMode:  "standard", IsPublic: new(true), UseFFCond: json.RawMessage(`{"a":[1]}`), IsEnablePromptEnhancer: json.RawMessage(`true`),
		}, `{"prompt":"p","negative_prompt":"n","settings":{"seed":-1,"aspect_ratio":"16:9","resolution":720,"duration":4},"gen_mode":"standard","is_public":true,"use_ff_cond":{"a":[1]},"is_enable_prompt_enhancer":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sentJob(t, func(c *svc.Client) error {
				_, err := c.VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: tt.config})
				return err
			})
			require.Equal(t, `POST /v1/svc-video-job application/json {"job_type":"text2video","config":`+tt.want+`}`, got)

			// The request can be decoded from the JSON that was sent, because a job
			// contains it.
			_, text, _ := strings.Cut(got, "application/json ")
			var again svc.CreateVideoJobRequest
			require.NoError(t, json.Unmarshal([]byte(text), &again))
			require.Equal(t, tt.config, again.Config)
		})
	}
}

func TestImageJobBody_B39(t *testing.T) {
	for name, tt := range map[string]struct {
		config svc.ImageJobConfig
		want   string
	}{
		"prompt alone":   {svc.ImageJobConfig{Prompt: "p"}, `{"prompt":"p"}`},
		"explicit zeros": {svc.ImageJobConfig{Prompt: "p", NegativePrompt: json.RawMessage(`""`), Settings: svc.ImageJobSettings{Seed: new(0)}}, `{"prompt":"p","negative_prompt":"","settings":{"seed":0}}`},
		"explicit null":  {svc.ImageJobConfig{Prompt: "p", NegativePrompt: json.RawMessage("null")}, `{"prompt":"p","negative_prompt":null}`},
		"everything": {svc.ImageJobConfig{
			Prompt: "p", NegativePrompt: json.RawMessage(`"n"`), Settings: svc.ImageJobSettings{Seed: new(123), AspectRatio: "1:1", Resolution: 480},
			Config: svc.ImageConfig{ImageNumber: 2},
		}, `{"prompt":"p","negative_prompt":"n","settings":{"seed":123,"aspect_ratio":"1:1","resolution":480},"config":{"image_number":2}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := sentJob(t, func(c *svc.Client) error {
				_, err := c.ImageJobs.Create(t.Context(), svc.CreateImageJobRequest{Config: tt.config})
				return err
			})
			require.Equal(t, `POST /v1/svc-image-job application/json {"job_type":"text2image","config":`+tt.want+`}`, got)

			_, text, _ := strings.Cut(got, "application/json ")
			var again svc.CreateImageJobRequest
			require.NoError(t, json.Unmarshal([]byte(text), &again))
			require.Equal(t, tt.config, again.Config)
		})
	}
}

// An unknown field is placed where its path says.
func TestCreateJob_WithBodyField(t *testing.T) {
	got := sentJob(t, func(c *svc.Client) error {
		_, err := c.ImageJobs.Create(t.Context(), svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "p"}},
			svc.WithBodyField("config.config.style", "ink"), svc.WithBodyField("name", "n"))
		return err
	})
	_, body, _ := strings.Cut(got, "application/json ")
	require.JSONEq(t, `{"job_type":"text2image","config":{"prompt":"p","config":{"style":"ink"}},"name":"n"}`, body)
}

func TestCreateJob_NamesEveryBadField(t *testing.T) {
	s := &testkit.JobService{Page: func(int, int) (int, []byte) { return 500, nil }}
	_, err := s.Client(t).VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{
		Settings: svc.VideoJobSettings{Seed: new(-5), Resolution: -1, Duration: -1}, UseFFCond: json.RawMessage(`{`),
	}})
	require.EqualError(t, err, "svc: not sent: config.prompt is required; config.settings.resolution must not be negative; "+
		"config.settings.duration must not be negative; config.use_ff_cond is not JSON")
	_, err = s.Client(t).ImageJobs.Create(t.Context(), svc.CreateImageJobRequest{Config: svc.ImageJobConfig{
		Settings: svc.ImageJobSettings{Resolution: -1}, Config: svc.ImageConfig{ImageNumber: -1},
	}})
	require.EqualError(t, err, "svc: not sent: config.prompt is required; config.settings.resolution must not be negative; "+
		"config.config.image_number must not be negative")
	require.Empty(t, s.Requests())
}

// A job costs money, so a create with unknown outcome is not repeated.
func TestCreateJob_OutcomeUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, answer := range []func() (int, []byte){
			func() (int, []byte) { return 502, []byte(`<html>bad gateway</html>`) },
			func() (int, []byte) { return 200, []byte(`<html>please log in</html>`) },
			func() (int, []byte) { return 200, []byte(`{"status":"initializing"}`) },
		} {
			s := &testkit.JobService{Page: func(int, int) (int, []byte) { return answer() }}
			job, err := s.Client(t).VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "p"}})
			require.Nil(t, job)
			require.ErrorIs(t, err, svc.ErrOutcomeUnknown)
			require.Len(t, s.Requests(), 1)
		}
	})
}

// If the created record cannot be decoded, the error still has the ID of the job.
func TestCreateJob_OutcomeUnknownKeepsTheID(t *testing.T) {
	s := testkit.OneJob(`{"job_id":"job-9","outputs":{"id":"early"}}`)
	_, err := s.Client(t).ImageJobs.Create(t.Context(), svc.CreateImageJobRequest{Config: svc.ImageJobConfig{Prompt: "p"}})
	var unknown *svc.OutcomeUnknownError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, "job-9", unknown.ID)
}

// A new job can be created from the original request in a job.
func TestCreateJob_Replay(t *testing.T) {
	srv := svctest.NewInMemory()
	client := srv.Client()
	first, err := client.VideoJobs.Create(t.Context(), svc.CreateVideoJobRequest{Config: svc.VideoJobConfig{Prompt: "p", Settings: svc.VideoJobSettings{Seed: new(0)}}})
	require.NoError(t, err)
	var req svc.CreateVideoJobRequest
	require.NoError(t, json.Unmarshal(first.MetaInfo.OriginalRequest, &req))
	require.Equal(t, 4, req.Config.Settings.Duration, "the service filled in the default")
	require.Equal(t, "null", string(req.Config.NegativePrompt))
	second, err := client.VideoJobs.Create(t.Context(), req)
	require.NoError(t, err)
	require.JSONEq(t, string(first.MetaInfo.OriginalRequest), string(second.MetaInfo.OriginalRequest))
}
