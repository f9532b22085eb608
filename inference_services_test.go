package svc_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// The exact bytes of the body of a create: fields that are set are sent, all others are
// absent.
func TestServices_CreateBody(t *testing.T) {
	for name, tt := range map[string]struct {
		req  svc.CreateInferenceServiceRequest
		want string
	}{
		"B39, all at zero": {
			svc.CreateInferenceServiceRequest{Name: "n"},
			`{"name":"n","resource_metadata":{"target_instance_number":0},"deploy_metadata":{"gpu_num":0}}`,
		},
		"everything": {
			svc.CreateInferenceServiceRequest{
				Name: "n", Description: "d", PaymentType: svc.PaymentTypeUSD,
				ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "f", ScaleType: svc.ScaleTypeManual, TargetInstanceNumber: 2},
				DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "registry.example/app:1", Command: "python serve.py", Port: 8000, GPUNum: 1},
			},
			`{"name":"n","description":"d","payment_type":"usd","resource_metadata":{"flavor_id":"f","scale_type":"manual","target_instance_number":2},"deploy_metadata":{"image_url":"registry.example/app:1","command":"python serve.py","port":8000,"gpu_num":1}}`,
		},
		"values not seen so far": {
			svc.CreateInferenceServiceRequest{
				Name: " ", PaymentType: "cny", ResourceMetadata: svc.CreateResourceMetadata{ScaleType: "auto"},
				DeployMetadata: svc.CreateDeployMetadata{Port: 65535},
			},
			`{"name":" ","payment_type":"cny","resource_metadata":{"scale_type":"auto","target_instance_number":0},"deploy_metadata":{"port":65535,"gpu_num":0}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Play(t, testkit.OpCreate.OK)
			before := tt.req
			record, err := s.Client().InferenceServices.Create(t.Context(), tt.req)
			require.NoError(t, err)
			require.Equal(t, "svc-1", record.ServiceID)
			r := s.Seen()[0]
			require.Equal(t, "POST /v1/inference-service", r.Method+" "+r.Path)
			require.Equal(t, tt.want, r.Body)
			require.Equal(t, []string{"application/json"}, r.Header["Content-Type"])
			require.Equal(t, []string{"application/json"}, r.Header["Accept"])
			require.Equal(t, before, tt.req)
		})
	}
	// A shell command is sent unchanged.
	const command = `sh -c "a && b > c; echo '<é文>'"`
	s := testkit.Play(t, testkit.OpCreate.OK)
	_, err := s.Client().InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "n", DeployMetadata: svc.CreateDeployMetadata{Command: command}})
	require.NoError(t, err)
	var sent struct {
		Deploy struct{ Command string } `json:"deploy_metadata"`
	}
	require.NoError(t, json.Unmarshal([]byte(s.Seen()[0].Body), &sent))
	require.Equal(t, command, sent.Deploy.Command)
}

// An update sends the number of instances as text, also 0, and no other field.
func TestServices_UpdateBody(t *testing.T) {
	for n, want := range map[int]string{0: "0", 1: "1", 1 << 40: "1099511627776"} {
		s := testkit.Play(t, testkit.OpUpdate.OK, testkit.OpUpdate.OK)
		client := s.Client()
		_, err := client.InferenceServices.Scale(t.Context(), "svc-1", n)
		require.NoError(t, err)
		record, err := client.InferenceServices.Update(t.Context(), "svc-1", svc.UpdateInferenceServiceRequest{ResourceMetadata: svc.UpdateResourceMetadata{TargetInstanceNumber: new(n)}})
		require.NoError(t, err)
		require.Equal(t, "svc-1", record.ServiceID)
		for _, r := range s.Seen() {
			require.Equal(t, "PUT /v1/inference-service/svc-1", r.Method+" "+r.Path)
			require.Equal(t, `{"resource_metadata":{"target_instance_number":"`+want+`"}}`, r.Body)
			require.Equal(t, []string{"application/json"}, r.Header["Content-Type"])
		}
	}
}

// Reads and deletes have no body and no Content-Type header.
func TestServices_GetAndDelete(t *testing.T) {
	s := testkit.Play(t, testkit.OpGet.OK, testkit.OpDelete.OK)
	client := s.Client()
	record, err := client.InferenceServices.Get(t.Context(), "svc-1")
	require.NoError(t, err)
	require.NoError(t, client.InferenceServices.Delete(t.Context(), "svc-1"))
	for i, want := range []string{"GET", "DELETE"} {
		r := s.Seen()[i]
		require.Equal(t, want+" /v1/inference-service/svc-1", r.Method+" "+r.Path)
		require.Empty(t, r.Body)
		require.NotContains(t, r.Header, "Content-Type")
		require.Equal(t, []string{"Bearer " + testkit.Token}, r.Header["Authorization"])
	}

	// Every field is decoded, and the record encodes to the JSON that it was decoded
	// from.
	require.Equal(t, "demo", record.Name)
	require.Equal(t, "a demo endpoint", record.Description)
	require.Equal(t, "user-1", record.UserID)
	require.Equal(t, svc.InferenceServiceStatusAvailable, record.Status)
	require.JSONEq(t, "null", string(record.StatusInfo))
	require.Equal(t, svc.ServiceType("normal"), record.ServiceType)
	require.Equal(t, svc.PaymentTypeUSD, record.PaymentType)
	require.Equal(t, "GPU A 24GB 10GB flavor-1 manual", strings.Join([]string{
		record.ResourceMetadata.ResourceDisplayName, record.ResourceMetadata.VRAM, record.ResourceMetadata.ImageSize,
		record.ResourceMetadata.FlavorID, string(record.ResourceMetadata.ScaleType),
	}, " "))
	require.EqualValues(t, 1, record.ResourceMetadata.TargetInstanceNumber)
	require.Equal(t, svc.DeployMetadata{ImageURL: "registry.example/app:1", Command: "python serve.py", Port: 8000}, record.DeployMetadata)
	b, err := json.Marshal(record)
	require.NoError(t, err)
	require.JSONEq(t, strings.ReplaceAll(testkit.ServiceJSON, "2024-06-01 10:11:12", "2024-06-01T10:11:12Z"), string(b), "times in RFC 3339")
}

func TestServices_StatusInfo(t *testing.T) {
	record, err := testkit.GetEndpoint(t, `{"service_id":"svc-1","status":"scaling","status_info":"image not found","payment_type":"cny","is_deleted":true,"deleted_at":"2024-06-01 10:11:12","resource_metadata":{"scale_type":"auto","scale_policy":{"min":1}}}`)
	require.NoError(t, err)
	require.JSONEq(t, `"image not found"`, string(record.StatusInfo))
	require.Equal(t, svc.InferenceServiceStatus("scaling"), record.Status)
	require.Equal(t, svc.ScaleType("auto"), record.ResourceMetadata.ScaleType)
	require.Equal(t, `{"min":1}`, string(record.ResourceMetadata.ScalePolicy))
	require.True(t, record.IsDeleted)
	require.False(t, record.DeletedAt.IsZero())
	b, err := json.Marshal(record)
	require.NoError(t, err)
	require.Contains(t, string(b), `"status":"scaling"`)
	require.Contains(t, string(b), `"payment_type":"cny"`)
}

// An invalid request is not sent. The error names every invalid field.
func TestServices_Validation(t *testing.T) {
	client := testkit.Play(t).Client()
	fields := func(err error) (names []string) {
		t.Helper()
		for _, f := range testkit.ErrorAs[*svc.ValidationError](t, err).Fields {
			names = append(names, f.Field)
			require.ErrorContains(t, err, f.Field+" "+f.Problem)
		}
		return names
	}
	_, err := client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{
		ResourceMetadata: svc.CreateResourceMetadata{TargetInstanceNumber: -1},
		DeployMetadata:   svc.CreateDeployMetadata{Port: 65536, GPUNum: -1},
	})
	require.Equal(t, []string{"name", "deploy_metadata.port", "deploy_metadata.gpu_num", "resource_metadata.target_instance_number"}, fields(err))
	_, err = client.InferenceServices.Create(t.Context(), svc.CreateInferenceServiceRequest{Name: "n", DeployMetadata: svc.CreateDeployMetadata{Port: -1}})
	require.Equal(t, []string{"deploy_metadata.port"}, fields(err))
	_, err = client.InferenceServices.Scale(t.Context(), "svc-1", -1)
	require.Equal(t, []string{"resource_metadata.target_instance_number"}, fields(err))
	_, err = client.InferenceServices.Get(t.Context(), "")
	require.Equal(t, []string{"service_id"}, fields(err))
	// The client has no token either, but the error lists the invalid fields.
	_, err = client.InferenceServices.Scale(t.Context(), " ", -1, svc.WithMaxAttempts(0), svc.WithHeader("Cookie", "x"))
	require.Equal(t, []string{"resource_metadata.target_instance_number", "service_id", "WithMaxAttempts", "header Cookie"}, fields(err))
}

func TestServices_URL(t *testing.T) {
	for given, want := range map[string]string{
		"https://inference.test":      "https://inference.test/inference-api/v1/inference_service/a%20b",
		" https://inference.test/p/ ": "https://inference.test/p/inference-api/v1/inference_service/a%20b",
		"http://inference.test:8080":  "http://inference.test:8080/inference-api/v1/inference_service/a%20b",
	} {
		got, err := testkit.ClientAt(t, "https://h", svc.WithInferenceURL(given)).InferenceServices.URL("a b")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := testkit.ClientAt(t, "https://h").InferenceServices.URL("svc-1")
	require.ErrorContains(t, err, "WithInferenceURL")
}
