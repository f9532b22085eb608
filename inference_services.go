package svc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"example.com/svc/internal/httpcall"
)

// InferenceService is a dedicated endpoint: a container image running on rented
// GPUs. It is billed by GPU type, number of instances and time, from its
// creation until it is stopped or deleted.
type InferenceService struct {
	ServiceID        string                 `json:"service_id"`        // used in all calls
	Name             string                 `json:"name"`              // as it was sent with the create
	Description      string                 `json:"description"`       // as it was sent; may be empty
	UserID           string                 `json:"user_id"`           // owner
	Status           InferenceServiceStatus `json:"status"`            // see the constants; compared without letter case
	StatusInfo       json.RawMessage        `json:"status_info"`       // its form is not documented; null in all cases seen
	ResourceMetadata ResourceMetadata       `json:"resource_metadata"` // what it runs on
	BillingMetadata  json.RawMessage        `json:"billing_metadata"`  // an object whose contents the service does not document
	EndpointMetadata json.RawMessage        `json:"endpoint_metadata"` // likewise
	DeployMetadata   DeployMetadata         `json:"deploy_metadata"`   // what it runs
	ServiceType      ServiceType            `json:"service_type"`      // value seen: "normal"
	CreatedAt        Time                   `json:"created_at"`        // from then on it is billed
	UpdatedAt        Time                   `json:"updated_at"`        // when the record last changed
	DeletedAt        Time                   `json:"deleted_at"`        // when it was deleted; IsDeleted decides
	IsDeleted        bool                   `json:"is_deleted"`        // the endpoint is deleted
	PaymentType      PaymentType            `json:"payment_type"`      // value seen: PaymentTypeUSD
}

func (s *InferenceService) identity() (field, id string) { return "service_id", s.ServiceID }

// ResourceMetadata says what an inference service runs on.
type ResourceMetadata struct {
	ResourceDisplayName  string          `json:"resource_display_name"`  // the GPU's type
	ScaleType            ScaleType       `json:"scale_type"`             // value seen: ScaleTypeManual
	FlavorID             string          `json:"flavor_id"`              // of the flavor that it runs on
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
	Name             string                 `json:"name"`                   // required; need not be unique
	Description      string                 `json:"description,omitempty"`  // empty: not sent
	PaymentType      PaymentType            `json:"payment_type,omitempty"` // value seen: PaymentTypeUSD
	ResourceMetadata CreateResourceMetadata `json:"resource_metadata"`      // what it is to run on
	DeployMetadata   CreateDeployMetadata   `json:"deploy_metadata"`        // what it is to run
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
// initializing. The endpoint is billed from then on. Store its ServiceID: the service has
// no call that lists endpoints.
//
// The request is repeated only while it certainly had no effect. If its outcome is not
// known, the error is an [OutcomeUnknownError]: for example if ctx ends before the response
// has come. [InferenceServiceClient.Deploy] does more to learn the ID. A new record may not
// be readable at once.
//
// With [WithLedger], the create is recorded before it is sent, and its outcome after it. If
// the ledger fails before, nothing is sent. If it fails after, Create returns the record
// and a [LedgerError] with the ID.
//
// POST /v1/inference-service
func (c *InferenceServiceClient) Create(ctx context.Context, req CreateInferenceServiceRequest, opts ...RequestOption) (*InferenceService, error) {
	k := create(services, &req).checked(req.problems())
	k.Result = new(httpcall.Result)
	return c.create(ctx, k, c.client.Ledger.claim("", 0), opts)
}

// create creates an endpoint, for Create and Deploy. It remembers the new ID, and records the
// create in the ledger, also if a function of the caller panics.
func (c *InferenceServiceClient) create(ctx context.Context, k call, claim *claim, opts []RequestOption) (s *InferenceService, err error) {
	if claim != nil {
		k.begin, k.Before = claim.begin, claim.before
		defer func() {
			if s == nil && err == nil { // it panics
				s, err = outcome[InferenceService](c.client, &k)
			}
			err = claim.settle(ctx, s, err)
		}()
	}
	s, err = do[InferenceService](ctx, c.client, k, opts)
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok && unknown.ID != "" {
		c.client.recent.add(unknown.ID)
	}
	if err == nil {
		c.client.recent.add(s.ServiceID)
	}
	return s, err
}

// Get reads one endpoint.
//
// GET /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Get(ctx context.Context, id string, opts ...RequestOption) (*InferenceService, error) {
	s, err := do[InferenceService](ctx, c.client, getID(service, id), opts)
	if err == nil {
		c.client.recent.see(id)
	}
	return s, err
}

// UpdateInferenceServiceRequest says what to change in an endpoint. The service
// documents one field; [WithBodyField] sends others.
type UpdateInferenceServiceRequest struct {
	ResourceMetadata UpdateResourceMetadata `json:"resource_metadata"` // what to change
}

// UpdateResourceMetadata says what to change in what an endpoint runs on.
type UpdateResourceMetadata struct {
	// TargetInstanceNumber is the new number of instances. It is sent as text, as in the
	// service's own example. Nil: not sent. new(0) asks for none.
	TargetInstanceNumber *int `json:"target_instance_number,string,omitempty"`
}

const instanceField = "resource_metadata.target_instance_number"

// Update changes an endpoint and returns its record, with the status
// initializing. Repeating it is safe, so a lost response is retried. A request that
// changes nothing is a [ValidationError]. With [WithLedger], a higher number of instances is
// recorded before the request is sent, and a lower one after it has succeeded.
//
// PUT /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Update(ctx context.Context, id string, req UpdateInferenceServiceRequest, opts ...RequestOption) (*InferenceService, error) {
	var p problems
	n := req.ResourceMetadata.TargetInstanceNumber
	p.add(n != nil && *n < 0, instanceField, "must not be negative")
	p.add(n == nil && !options(opts).has(""), instanceField, "is not set, so the update would change nothing")
	k := newCall(http.MethodPut, service, id, &req).checked(p)
	ended := func(error) {}
	k.begin = func(ctx context.Context, body []byte) (_ context.Context, _ []byte, err error) {
		ended, err = c.client.Ledger.scale(ctx, id, body)
		return ctx, body, err
	}
	s, err := do[InferenceService](ctx, c.client, k, opts)
	ended(err)
	return s, err
}

// Scale sets the number of instances. It returns at once;
// [InferenceServiceClient.ScaleAndWait] waits for the change.
//
// PUT /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Scale(ctx context.Context, id string, instances int, opts ...RequestOption) (*InferenceService, error) {
	return c.Update(ctx, id, UpdateInferenceServiceRequest{UpdateResourceMetadata{&instances}}, opts...)
}

// Delete deletes an endpoint, which ends its billing. Success means that the service
// accepted the delete, which may take effect later: [InferenceServiceClient.DeleteAndWait]
// returns when the endpoint is deleted.
//
// If a response is lost and the repeated call gets "not found", Delete takes the delete for
// accepted and returns no error. If the first call gets "not found", the error is
// [ErrNotFound]. It is also [ErrNotFound] after a lost response, if this client created the
// endpoint less than 30 s ago: it may not be readable yet, and billed. A 2xx response with an
// error or an HTML page in its body is a [DecodeError].
//
// DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Delete(ctx context.Context, id string, opts ...RequestOption) error {
	return doDelete(ctx, c.client, deleteID(service, id), opts)
}

// URL is the address of an available endpoint:
// /inference-api/v1/inference_service/{service_id} under the URL of [WithInferenceURL].
// Without that option the error is [ErrNoInferenceURL]. The container decides what requests
// it takes. Whether they need the token is not documented; the SDK sends nothing there.
func (c *InferenceServiceClient) URL(id string) (string, error) {
	if c.client.inference == "" {
		return "", ErrNoInferenceURL
	}
	if problem := idProblem(id); problem != "" {
		return "", &ValidationError{Fields: []FieldError{{"service_id", problem}}}
	}
	return c.client.inference + "/inference-api/v1/inference_service/" + url.PathEscape(id), nil
}
