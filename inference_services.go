package svc

import (
	"context"
	"encoding/json"
	"net/url"
)

// InferenceService is a dedicated endpoint: a container image running on rented
// GPUs. It is billed by GPU type, number of instances and time, from its
// creation until it is stopped or deleted.
type InferenceService struct {
	ServiceID        string                 `json:"service_id"` // used in all calls
	Name             string                 `json:"name"`
	Description      string                 `json:"description"`
	UserID           string                 `json:"user_id"` // owner
	Status           InferenceServiceStatus `json:"status"`
	StatusInfo       *string                `json:"status_info"` // nil in all cases seen
	ResourceMetadata ResourceMetadata       `json:"resource_metadata"`
	BillingMetadata  json.RawMessage        `json:"billing_metadata"`  // an object whose contents the service does not document
	EndpointMetadata json.RawMessage        `json:"endpoint_metadata"` // likewise
	DeployMetadata   DeployMetadata         `json:"deploy_metadata"`
	ServiceType      ServiceType            `json:"service_type"`
	CreatedAt        Time                   `json:"created_at"`
	UpdatedAt        Time                   `json:"updated_at"`
	DeletedAt        Time                   `json:"deleted_at"` // zero while it exists
	IsDeleted        bool                   `json:"is_deleted"`
	PaymentType      PaymentType            `json:"payment_type"`
}

func (s *InferenceService) identity() (field, id string) { return "service_id", s.ServiceID }

// deleted reports whether the record itself says that it is gone.
func (s *InferenceService) deleted() bool { return s.IsDeleted || !s.DeletedAt.IsZero() }

// ResourceMetadata says what an inference service runs on.
type ResourceMetadata struct {
	ResourceDisplayName  string          `json:"resource_display_name"` // the GPU's type
	ScaleType            ScaleType       `json:"scale_type"`
	FlavorID             string          `json:"flavor_id"`
	TargetInstanceNumber Int             `json:"target_instance_number"` // instances asked for, and billed
	ScalePolicy          json.RawMessage `json:"scale_policy"`           // null with manual scaling
	VRAM                 string          `json:"VRAM"`                   // with its unit
	ImageSize            string          `json:"image_size"`             // with its unit
}

// DeployMetadata says what an inference service runs. The service may show more
// in it than it documents.
type DeployMetadata struct {
	ImageURL string `json:"image_url"` // container image reference
	Command  string `json:"command"`   // start command
	Port     Int    `json:"port"`      // that the container listens on
	GPUNum   Int    `json:"gpu_num"`   // GPUs of each instance
}

// InferenceServiceClient manages dedicated endpoints. Reach it through
// [Client.InferenceServices].
type InferenceServiceClient struct{ client *Client }

const (
	services = "/v1/inference-service"
	service  = "/v1/inference-service/{service_id}"
)

// CreateInferenceServiceRequest describes an endpoint to be created. Only Name
// is required by the service's documentation.
type CreateInferenceServiceRequest struct {
	Name             string                 `json:"name"`
	Description      string                 `json:"description,omitempty"`
	PaymentType      PaymentType            `json:"payment_type,omitempty"` // value seen: PaymentTypeUSD
	ResourceMetadata CreateResourceMetadata `json:"resource_metadata"`
	DeployMetadata   CreateDeployMetadata   `json:"deploy_metadata"`
}

// CreateResourceMetadata says what a new endpoint is to run on.
type CreateResourceMetadata struct {
	FlavorID             string    `json:"flavor_id,omitempty"`    // of [FlavorClient.List]
	ScaleType            ScaleType `json:"scale_type,omitempty"`   // value given: ScaleTypeManual
	TargetInstanceNumber int       `json:"target_instance_number"` // always sent: 0 asks for none
}

// CreateDeployMetadata says what a new endpoint is to run.
type CreateDeployMetadata struct {
	ImageURL string `json:"image_url,omitempty"` // container image reference
	Command  string `json:"command,omitempty"`   // start command; empty: not sent
	Port     int    `json:"port,omitempty"`      // that the container listens on, 1 to 65535; 0: not sent
	GPUNum   int    `json:"gpu_num"`             // GPUs of each instance; always sent; the service accepts 0
}

func (r *CreateInferenceServiceRequest) problems() (p problems) {
	p.add(r.Name == "", "name", "is required")
	p.add(r.DeployMetadata.Port < 0 || r.DeployMetadata.Port > 65535, "deploy_metadata.port", "must be between 1 and 65535")
	p.add(r.DeployMetadata.GPUNum < 0, "deploy_metadata.gpu_num", "must not be negative")
	p.add(r.ResourceMetadata.TargetInstanceNumber < 0, "resource_metadata.target_instance_number", "must not be negative")
	return p
}

// Create creates an endpoint and returns its record, with the status
// initializing. The endpoint is billed from then on, and only its ServiceID
// leads back to it: the service has no call that lists endpoints. Keep it.
//
// The request is sent again only as long as it certainly had no effect. When its
// outcome is not known the error is an [OutcomeUnknownError]; a ctx that ends
// while the request is out leaves it unknown. [InferenceServiceClient.Deploy] goes
// to greater lengths to learn the id. A new record may not be readable at once.
//
// POST /v1/inference-service
func (c *InferenceServiceClient) Create(ctx context.Context, req CreateInferenceServiceRequest, opts ...RequestOption) (*InferenceService, error) {
	return do[InferenceService](ctx, c.client, create(services, req.Name, &req).checked(req.problems()), opts)
}

// Get reads one endpoint.
//
// GET /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Get(ctx context.Context, id string, opts ...RequestOption) (*InferenceService, error) {
	return do[InferenceService](ctx, c.client, getID(service, id), opts)
}

// UpdateInferenceServiceRequest says what to change in an endpoint. The service
// documents one field; [WithBodyField] sends others.
type UpdateInferenceServiceRequest struct {
	ResourceMetadata UpdateResourceMetadata `json:"resource_metadata"`
}

// UpdateResourceMetadata says what to change in what an endpoint runs on.
type UpdateResourceMetadata struct {
	// TargetInstanceNumber is always sent, 0 too, as text: that is the form of
	// the service's own example.
	TargetInstanceNumber int `json:"target_instance_number,string"`
}

// Update changes an endpoint and returns its record, with the status
// initializing. Repeating it is safe, so a lost answer is retried.
//
// PUT /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Update(ctx context.Context, id string, req UpdateInferenceServiceRequest, opts ...RequestOption) (*InferenceService, error) {
	var p problems
	p.add(req.ResourceMetadata.TargetInstanceNumber < 0, "resource_metadata.target_instance_number", "must not be negative")
	return do[InferenceService](ctx, c.client, putID(service, id, &req).checked(p), opts)
}

// Scale sets the number of instances. It returns at once;
// [InferenceServiceClient.ScaleAndWait] waits for the change.
//
// PUT /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Scale(ctx context.Context, id string, instances int, opts ...RequestOption) (*InferenceService, error) {
	return c.Update(ctx, id, UpdateInferenceServiceRequest{UpdateResourceMetadata{instances}}, opts...)
}

// Delete deletes an endpoint, which ends its billing. When an answer is lost and
// the repeated call finds nothing, the endpoint is deleted: no error. An endpoint
// that was not there to begin with is an [ErrNotFound], and so may be one that was
// created a moment ago and is not readable yet: it is billed all the same. An
// answer of success that holds an error or a page of HTML is a [DecodeError], and a
// 404 with a page of HTML an [Error] after a lost answer too: look whether the
// endpoint is still there.
//
// DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Delete(ctx context.Context, id string, opts ...RequestOption) error {
	return doDelete(ctx, c.client, deleteID(service, id), opts)
}

// URL is the address at which an endpoint is reached once it is available:
// /inference-api/v1/inference_service/{service_id} under [WithInferenceURL], and
// [ErrNoInferenceURL] without that. How requests to it are shaped is up to the
// container, and whether they need the token is not documented: the SDK sends
// none there.
func (c *InferenceServiceClient) URL(id string) (string, error) {
	if c.client.inference == "" {
		return "", ErrNoInferenceURL
	}
	if problem := idProblem(id); problem != "" {
		return "", &ValidationError{Fields: []FieldError{{"service_id", problem}}}
	}
	return c.client.inference + "/inference-api/v1/inference_service/" + url.PathEscape(id), nil
}
