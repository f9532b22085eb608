package wire_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// An informational field of another type never makes a record, a list or a create fail.
func TestInformationNeverFailsARecord_C09(t *testing.T) {
	service := []string{
		"name", "description", "user_id", "service_type", "payment_type", "created_at", "updated_at", "deleted_at",
		"billing_metadata", "endpoint_metadata", "brand_new", "resource_metadata.resource_display_name",
		"resource_metadata.scale_type", "resource_metadata.VRAM", "resource_metadata.image_size",
		"resource_metadata.scale_policy", "deploy_metadata.image_url", "deploy_metadata.command",
	}
	flavor := []string{
		"display_name", "cluster_id", "cluster_flavor_id", "meta_info", "meta_info.cuda", "meta_info.region", "billing",
		"billing.cny_price_unit", "billing.usd_price_unit", "billing.token_price_unit", "created_at", "updated_at", "deleted_at",
	}
	job := []string{
		"user_id", "name", "description", "payment_type", "meta_info", "meta_info.original_request", "meta_info.order_id", "meta_info.update_at",
		"meta_info.service_api_token", "meta_info.service_api_token.api_token", "meta_info.service_api_token.user",
		"meta_info.service_api_token.user.nickname", "meta_info.service_api_token.user.currency", "created_at", "updated_at", "deleted_at",
	}
	file := []string{"file_name", "purpose", "created_at", "description"}
	for _, odd := range testkit.OddValues {
		for _, path := range service {
			body := `{"service_id":"svc-1","status":"available",` + member(path, odd) + `}`
			s, err := testkit.GetEndpoint(t, body)
			require.NoError(t, err, body)
			require.Equal(t, svc.InferenceServiceStatusAvailable, s.Status, body)
			s, err = testkit.Play(t, testkit.Reply{Status: 201, Body: body}).Client().InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "n"})
			require.NoError(t, err, body)
			require.Equal(t, "svc-1", s.ServiceID)
		}
		for _, path := range flavor {
			body := `{"flavor_list":[{"flavor_id":"a","available_num":1},{"flavor_id":"b","available_num":"2",` + member(path, odd) + `},{"flavor_id":"c"}]}`
			list, err := testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client().Flavors.List(t.Context())
			require.NoError(t, err, body)
			require.Len(t, list, 3)
			require.Equal(t, "b", list[1].FlavorID)
			require.EqualValues(t, 2, list[1].AvailableNum, body)
			require.Equal(t, "c", list[2].FlavorID)
		}
		for _, path := range job {
			body := `{"job_id":"j","status":"succeed","outputs":[{"id":"o"}],` + member(path, odd) + `}`
			j, err := testkit.OneJob(body).Client(t).VideoJobs.Get(t.Context(), "j")
			require.NoError(t, err, body)
			require.Equal(t, svc.JobStatusSucceed, j.Status)
			require.Len(t, j.Outputs, 1, body)
			page, err := testkit.OneJob(`{"total_count":1,"job_list":[`+body+`]}`).Client(t).VideoJobs.List(t.Context(), nil)
			require.NoError(t, err, body)
			require.Equal(t, svc.JobStatusSucceed, page.Jobs[0].Status)
		}
		for _, path := range file {
			list, err := testkit.Play(t, testkit.Reply{Status: 200, Body: `[{"id":"f","bytes":3,` + member(path, odd) + `}]`}).Client().Files.ListPublic(t.Context())
			require.NoError(t, err, path+odd)
			require.Equal(t, "f", list[0].ID)
			require.EqualValues(t, 3, list[0].Bytes)
		}
	}
}

// member returns the JSON member that has value at the given path.
func member(path, value string) string {
	names := strings.Split(path, ".")
	for i := len(names) - 1; i > 0; i-- {
		value = fmt.Sprintf("{%q:%s}", names[i], value)
	}
	return fmt.Sprintf("%q:%s", names[0], value)
}

// If a text field has another JSON type, its value is the JSON text. The fields around it
// are decoded normally.
func TestTextOfAnotherType_C09(t *testing.T) {
	const free = `{"a":9007199254740993, "b":"<&>"}`
	body := `{"flavor_list":[{"flavor_id":"a","meta_info":{"cuda":12.4,"region":"cn"},"is_deleted":"false","available_num":2}]}`
	client := testkit.Loop(t, testkit.Reply{Status: 200, Body: body}).Client()
	list, err := client.Flavors.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, svc.FlavorMetaInfo{CUDA: "12.4", Region: svc.RegionCN}, list[0].MetaInfo)
	found, err := client.Flavors.Find(t.Context(), svc.FlavorQuery{MinCUDA: "12.2"})
	require.NoError(t, err)
	require.Len(t, found, 1)

	s, err := testkit.GetEndpoint(t, `{"service_id":"svc-1","description":{"reason": ["x"]},"name":true,"billing_metadata":`+free+`}`)
	require.NoError(t, err)
	require.Equal(t, `{"reason": ["x"]}`, s.Description)
	require.Equal(t, "true", s.Name)
	require.Equal(t, free, string(s.BillingMetadata), "byte for byte")
}

// A field that decides something must have the documented type. Otherwise the error names
// the field.
func TestWhatDecidesStillFails_C09(t *testing.T) {
	for path, values := range map[string][]string{
		"service_id":                  {`7`, `{}`, `true`},
		"status":                      {`7`, `{}`, `["available"]`, `true`},
		"is_deleted":                  {`""`, `"maybe"`, `2`, `{}`, `[]`, `"null"`},
		"resource_metadata":           {`[]`, `"x"`, `1`},
		"resource_metadata.flavor_id": {`7`, `{}`},
		"resource_metadata.target_instance_number": {`"two"`, `1.5`, `{}`, `true`, `1e400`},
		"deploy_metadata.gpu_num":                  {`"two"`, `1.5`, `[]`},
		"deploy_metadata.port":                     {`"x"`, `true`},
	} {
		for _, value := range values {
			// Informational fields of another type beside it do not change this.
			body := `{"name":1,"description":{},` + member(path, value)
			if path != "service_id" {
				body += `,"service_id":"svc-1"`
			}
			_, err := testkit.GetEndpoint(t, body+`}`)
			require.Equal(t, path, testkit.ErrorAs[*svc.DecodeError](t, err).Field, body)
		}
	}
	for path, values := range map[string][]string{
		"flavor_id":     {`7`, `{}`},
		"is_deleted":    {`"never"`, `9`},
		"available_num": {`"two"`, `1.5`, `{}`, `false`},
		"node_max_gpu":  {`"many"`, `[]`},
	} {
		for _, value := range values {
			body := `{"flavor_list":[{"flavor_id":"a","display_name":1},{"meta_info":7,` + member(path, value) + `}]}`
			_, err := testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client().Flavors.List(t.Context())
			require.Equal(t, "flavor_list[1]."+path, testkit.ErrorAs[*svc.DecodeError](t, err).Field, body)
		}
	}
	for _, body := range []string{`{"flavor_list":[7]}`, `{"flavor_list":["a"]}`} {
		_, err := testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client().Flavors.List(t.Context())
		require.Equal(t, "flavor_list[0]", testkit.ErrorAs[*svc.DecodeError](t, err).Field, body)
	}
	// The error still has the ID of the created endpoint.
	_, err := testkit.Play(t, testkit.Reply{Status: 201, Body: `{"service_id":"svc-1","status":7}`}).Client().
		InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "n"})
	require.Equal(t, "svc-1", testkit.ErrorAs[*svc.OutcomeUnknownError](t, err).ID)
}

// is_deleted is understood in every common form of a boolean.
func TestBooleansOfAnotherType_C09(t *testing.T) {
	for text, want := range map[string]bool{
		`0`: false, `"0"`: false, `"false"`: false, `"False"`: false, `null`: false, `false`: false,
		`1`: true, `"1"`: true, `"true"`: true, `"TRUE"`: true, `true`: true,
	} {
		s, err := testkit.GetEndpoint(t, `{"service_id":"svc-1","is_deleted":`+text+`}`)
		require.NoError(t, err, text)
		require.Equal(t, want, s.IsDeleted, text)
	}
}

// Decoding many records with fields of other types takes about as long as decoding normal
// records.
func TestManyOddRecords_C09(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"flavor_list":[{"flavor_id":"f0"}`)
	records := testkit.Shorter(20_000, 2000)
	for i := 1; i < records; i++ {
		fmt.Fprintf(&b, `,{"flavor_id":"f%d","display_name":%d,"meta_info":{"cuda":12.4,"region":[]},"is_deleted":0}`, i, i)
	}
	b.WriteString(`]}`)
	list, err := testkit.Play(t, testkit.Reply{Status: 200, Body: b.String()}).Client().Flavors.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, records)
	require.Equal(t, "12.4", list[records-1].MetaInfo.CUDA)
}

// Do decodes into the caller's own types exactly as encoding/json does.
func TestDoStaysStrict_C09(t *testing.T) {
	var out struct {
		Items []struct {
			Name string `json:"name"`
		} `json:"items"`
		Count int `json:"count,string"`
	}
	err := testkit.Play(t, testkit.Reply{Status: 200, Body: `{"count":"1","items":[{},{"name":7}]}`}).Client().Do(t.Context(), "GET", "/v1/x", nil, &out)
	require.Equal(t, "items[1].name", testkit.ErrorAs[*svc.DecodeError](t, err).Field)
}

// For a recursive type of the caller, the time does not grow exponentially with the
// depth.
func TestDeepResponsesAreCheap_C09(t *testing.T) {
	type deep struct {
		Next *deep  `json:"next"`
		Leaf string `json:"leaf"`
		Pad  string `json:"pad"`
	}
	depth := testkit.Shorter(5000, 1000)
	body := strings.Repeat(`{"pad":"`+strings.Repeat("x", 100)+`","next":`, depth) + `{"leaf":1}` + strings.Repeat(`}`, depth)
	start := time.Now()
	err := testkit.Play(t, testkit.Reply{Status: 200, Body: body}).Client().Do(t.Context(), "GET", "/v1/x", nil, new(deep))
	require.True(t, strings.HasPrefix(testkit.ErrorAs[*svc.DecodeError](t, err).Field, "next.next."))
	require.Less(t, time.Since(start), 20*time.Second)
}

func TestTimesThatCannotBeRead_C09(t *testing.T) {
	for text, raw := range map[string]string{
		`1e400`: `1e400`, `true`: `true`, `{"s":1}`: `{"s":1}`, `[2024,5,1]`: `[2024,5,1]`, `"soon"`: `soon`,
		`-99999999999999999`: `-99999999999999999`, `1e30`: `1e30`,
	} {
		s, err := testkit.GetEndpoint(t, `{"service_id":"svc-1","created_at":`+text+`}`)
		require.NoError(t, err, text)
		require.True(t, s.CreatedAt.IsZero(), text)
		require.Equal(t, raw, s.CreatedAt.Raw())
	}
	at := time.Date(2024, 5, 1, 10, 20, 30, 123e6, time.UTC)
	for _, text := range []string{`1714558830123`, `"1714558830123"`, `1714558830.123`, `1714558830123000`, `1714558830123000000`, `1.714558830123e12`} {
		v := testkit.Decode[svc.Time](t, text)
		require.True(t, at.Equal(v.Time), "%s: %s", text, v)
		require.Equal(t, strings.Trim(text, `"`), v.Raw())
	}
}

func TestPricesThatCannotBeRead_C09(t *testing.T) {
	body := `{"flavor_list":[{"flavor_id":"a","billing":{"usd_price_unit":"N/A","cny_price_unit":{"amount":1}}},{"flavor_id":"b","billing":{"usd_price_unit":2}}]}`
	client := testkit.Loop(t, testkit.Reply{Status: 200, Body: body}).Client()
	list, err := client.Flavors.List(t.Context())
	require.NoError(t, err)
	require.True(t, list[0].Billing.USDPriceUnit.IsZero())
	require.Equal(t, "N/A", list[0].Billing.USDPriceUnit.Raw())
	require.Equal(t, `{"amount":1}`, list[0].Billing.CNYPriceUnit.Raw())
	require.Equal(t, "2", list[1].Billing.USDPriceUnit.Raw())
	require.Nil(t, list[0].Billing.USDPriceUnit.Rat())
	require.Equal(t, big.NewRat(2, 1), list[1].Billing.USDPriceUnit.Rat())
	found, err := client.Flavors.Find(t.Context(), svc.FlavorQuery{})
	require.NoError(t, err)
	require.Equal(t, "b", found[0].FlavorID, "flavors without a price come last")
}

// The body of a request is what encoding/json makes of it: a byte that is not UTF-8 becomes
// U+FFFD. JSON that the caller wrote is sent unchanged.
func TestBodyIsWhatTheEncoderMakesOfIt_C13(t *testing.T) {
	v := struct{ Text string }{"☃ \x00 \xff \ufffd"}
	want, err := json.Marshal(v)
	require.NoError(t, err)
	for _, tt := range []struct {
		body any
		sent string
	}{{v, string(want)}, {json.RawMessage(`{"a": "\ufffd"}`), `{"a": "\ufffd"}`}, {json.RawMessage("\"\xff\""), "\"\xff\""}} {
		s := testkit.Play(t, testkit.Reply{Status: 200})
		require.NoError(t, s.Client().Do(t.Context(), "POST", "/v1/x", tt.body, nil))
		require.Equal(t, tt.sent, s.Seen()[0].Body)
	}
}

func TestJobStatuses_C25(t *testing.T) {
	failures := []svc.JobStatus{
		svc.JobStatusFail, svc.JobStatusFailed, svc.JobStatusError, svc.JobStatusCanceled, svc.JobStatusCancelled, svc.JobStatusRejected,
	}
	for _, status := range failures {
		j := &svc.Job{Status: status}
		require.True(t, j.Failed(), status)
		require.True(t, j.Done(), status)
	}
	for _, status := range []svc.JobStatus{svc.JobStatusInitializing, "", "upscaling", "failing", "not failed"} {
		j := &svc.Job{Status: status}
		require.False(t, j.Failed(), status)
		require.False(t, j.Done(), status)
	}
	j := &svc.Job{Status: svc.JobStatusSucceed}
	require.False(t, j.Failed())
	require.True(t, j.Done())
}

// Wait, Done and Failed accept a status in any letter case.
func TestJobStatusInAnyCase_C08(t *testing.T) {
	for status, failed := range map[string]bool{"Succeed": false, " SUCCEED\n": false, "Failed": true, " ERROR ": true, "Cancelled\t": true} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		job, err := testkit.OneJob(`{"job_id":"j","status":`+string(text)+`}`).Client(t).VideoJobs.Wait(ctx, "j", nil)
		cancel()
		require.EqualValues(t, status, job.Status, "as the service wrote it")
		require.Equal(t, failed, job.Failed())
		require.True(t, job.Done())
		if failed {
			require.ErrorIs(t, err, svc.ErrJobFailed)
		} else {
			require.NoError(t, err)
		}
	}
}
