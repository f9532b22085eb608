package testkit

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"example.com/svc"
)

// ServiceJSON is the whole record of an endpoint.
const ServiceJSON = `{"service_id":"svc-1","name":"demo","description":"a demo endpoint","user_id":"user-1",
"status":"available","status_info":null,"resource_metadata":{"resource_display_name":"GPU A","scale_type":"manual",
"flavor_id":"flavor-1","target_instance_number":1,"scale_policy":null,"VRAM":"24GB","image_size":"10GB"},
"billing_metadata":{},"endpoint_metadata":{},"deploy_metadata":{"image_url":"registry.example/app:1",
"command":"python serve.py","port":8000,"gpu_num":0},"service_type":"normal","created_at":"2024-06-01 10:11:12",
"updated_at":"2024-06-01 10:11:12","deleted_at":null,"is_deleted":false,"payment_type":"usd"}`

// JSONHandler says the same to every request.
func JSONHandler(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// OddValues is one value of each JSON type, and some that are hard to read.
var OddValues = []string{
	`0`, `7`, `-1`, `12.5`, `1e400`, `1e999999999`, `1714558830123`, `99999999999999999999`, `true`, `false`,
	`""`, `"x"`, `"N/A"`, `"soon"`, `null`, `{}`, `[]`, `{"a":{"b":[1]}}`, `["x",1]`, `"\u2603 \ud800"`,
}

// EndpointIs shows the endpoint svc-1 with this status and one instance.
func EndpointIs(status string) Reply { return Reply{Body: EndpointJSON(status, 1)} }

// EndpointJSON is the record of svc-1; fields are added at its end.
func EndpointJSON(status string, instances int, fields ...string) string {
	return fmt.Sprintf(`{"service_id":"svc-1","name":"demo","status":%q,"resource_metadata":{"target_instance_number":%d}%s}`,
		status, instances, strings.Join(append([]string{""}, fields...), ","))
}

// Demo is a request for two instances.
var Demo = svc.CreateInferenceServiceRequest{
	Name: "demo", ResourceMetadata: svc.CreateResourceMetadata{FlavorID: "flavor-1", TargetInstanceNumber: 2},
}
