package testkit

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"example.com/svc"
)

// ServiceJSON is a record of an endpoint with all fields.
const ServiceJSON = `{"service_id":"svc-1","name":"demo","description":"a demo endpoint","user_id":"user-1",
"status":"available","status_info":null,"resource_metadata":{"resource_display_name":"GPU A","scale_type":"manual",
"flavor_id":"flavor-1","target_instance_number":1,"scale_policy":null,"VRAM":"24GB","image_size":"10GB"},
"billing_metadata":{},"endpoint_metadata":{},"deploy_metadata":{"image_url":"registry.example/app:1",
"command":"python serve.py","port":8000,"gpu_num":0},"service_type":"normal","created_at":"2024-06-01 10:11:12",
"updated_at":"2024-06-01 10:11:12","deleted_at":null,"is_deleted":false,"payment_type":"usd"}`

// JSONHandler responds to every request with this status code and JSON body.
func JSONHandler(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// OddValues are JSON values: at least one of each type, and some that are hard to decode.
var OddValues = []string{
	`0`, `7`, `-1`, `12.5`, `1e400`, `1e999999999`, `1714558830123`, `99999999999999999999`, `true`, `false`,
	`""`, `"x"`, `"N/A"`, `"soon"`, `null`, `{}`, `[]`, `{"a":{"b":[1]}}`, `["x",1]`, `"\u2603 \ud800"`,
}

// EndpointIs returns a reply with the record of the endpoint svc-1, which has this status
// and one instance.
func EndpointIs(status string) Reply { return Reply{Body: EndpointJSON(status, 1)} }

// EndpointJSON returns a record of the endpoint svc-1. It adds fields, such as
// `"is_deleted":true`, at the end of the record.
func EndpointJSON(status string, instances int, fields ...string) string {
	return fmt.Sprintf(`{"service_id":"svc-1","name":"demo","status":%q,"resource_metadata":{"target_instance_number":%d}%s}`,
		status, instances, strings.Join(append([]string{""}, fields...), ","))
}

// Demo is a create request for two instances.
var Demo = svc.CreateInferenceServiceRequest{
	Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 2},
}
