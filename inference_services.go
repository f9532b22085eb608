package svc

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"example.com/svc/internal/jsonfield"
	"example.com/svc/internal/known"
	"example.com/svc/internal/rules"
	"example.com/svc/internal/valid"
	"example.com/svc/ledger"
)

// An InferenceService is a dedicated endpoint: a container image running on rented
// GPUs. It is billed by GPU type, number of instances and time, from its
// creation until it is stopped or deleted.
type InferenceService struct {
	ServiceID        string                 `json:"service_id"`        // ID of the endpoint, for all other calls
	Name             string                 `json:"name"`              // name from the create request
	Description      string                 `json:"description"`       // description from the create request; may be empty
	UserID           string                 `json:"user_id"`           // ID of the owner
	Status           InferenceServiceStatus `json:"status"`            // one of the constants, or an unknown value; waits compare it case-insensitively
	StatusInfo       json.RawMessage        `json:"status_info"`       // more about the status; its form is not documented; null in all cases seen
	ResourceMetadata ResourceMetadata       `json:"resource_metadata"` // what the endpoint runs on
	BillingMetadata  json.RawMessage        `json:"billing_metadata"`  // an object whose contents the service does not document
	EndpointMetadata json.RawMessage        `json:"endpoint_metadata"` // an object whose contents the service does not document
	DeployMetadata   DeployMetadata         `json:"deploy_metadata"`   // what the endpoint runs
	ServiceType      ServiceType            `json:"service_type"`      // value seen: "normal"
	CreatedAt        Time                   `json:"created_at"`        // when the endpoint was created; it is billed from then on
	UpdatedAt        Time                   `json:"updated_at"`        // when the record last changed
	DeletedAt        Time                   `json:"deleted_at"`        // when the endpoint was deleted; zero if it exists; prefer IsDeleted
	IsDeleted        bool                   `json:"is_deleted"`        // the endpoint is deleted
	PaymentType      PaymentType            `json:"payment_type"`      // value seen: PaymentTypeUSD
}

func (s *InferenceService) identity() (field, id string) { return "service_id", s.ServiceID }

// ResourceMetadata describes the resources that an endpoint runs on.
type ResourceMetadata struct {
	ResourceDisplayName  string          `json:"resource_display_name"`  // the GPU's type
	ScaleType            ScaleType       `json:"scale_type"`             // value seen: ScaleTypeManual
	FlavorID             string          `json:"flavor_id"`              // ID of the flavor that the endpoint runs on
	TargetInstanceNumber Int             `json:"target_instance_number"` // number of instances that were asked for and are billed
	ScalePolicy          json.RawMessage `json:"scale_policy"`           // rules for scaling; null if ScaleType is manual
	VRAM                 string          `json:"VRAM"`                   // size of the video memory, with its unit
	ImageSize            string          `json:"image_size"`             // size of the image, with its unit
}

// DeployMetadata describes the container that an endpoint runs. The service may send more
// fields than it documents. They are ignored.
type DeployMetadata struct {
	ImageURL string `json:"image_url"` // container image reference
	Command  string `json:"command"`   // start command
	Port     Int    `json:"port"`      // port that the container listens on
	GPUNum   Int    `json:"gpu_num"`   // number of GPUs of each instance
}

// An InferenceServiceClient manages dedicated endpoints: see [Client.InferenceServices].
type InferenceServiceClient struct{ client *Client }

const (
	services = "/v1/inference-service"
	service  = "/v1/inference-service/{service_id}"
)

// CreateInferenceServiceRequest describes an endpoint to be created. Only Name
// is required by the service's documentation.
type CreateInferenceServiceRequest struct {
	Name             string                 `json:"name"`                   // name of the endpoint; required; need not be unique
	Description      string                 `json:"description,omitempty"`  // description of the endpoint; if empty, not sent
	PaymentType      PaymentType            `json:"payment_type,omitempty"` // value seen: PaymentTypeUSD
	ResourceMetadata CreateResourceMetadata `json:"resource_metadata"`      // what the endpoint is to run on
	DeployMetadata   CreateDeployMetadata   `json:"deploy_metadata"`        // what the endpoint is to run
}

// CreateResourceMetadata describes the resources of an endpoint to be created.
type CreateResourceMetadata struct {
	FlavorID             string    `json:"flavor_id,omitempty"`    // ID of a flavor from [FlavorClient.List]; if empty, not sent
	ScaleType            ScaleType `json:"scale_type,omitempty"`   // documented value: ScaleTypeManual; if empty, not sent
	TargetInstanceNumber int       `json:"target_instance_number"` // number of instances; always sent; 0 requests no instances
}

// CreateDeployMetadata describes the container of an endpoint to be created.
type CreateDeployMetadata struct {
	ImageURL string `json:"image_url,omitempty"` // container image reference
	Command  string `json:"command,omitempty"`   // start command; if empty, not sent
	Port     int    `json:"port,omitempty"`      // port that the container listens on, 1 to 65535; if 0, not sent
	GPUNum   int    `json:"gpu_num"`             // number of GPUs of each instance; always sent; the service accepts 0
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
// The request is repeated only if it is known to have had no effect. If its outcome is not
// known, for example because ctx ends before the response arrives, the error is an
// [OutcomeUnknownError]. [InferenceServiceClient.Deploy] does more to learn the ID. A new
// record may not be readable at once.
//
// With [WithLedger], the create is recorded before it is sent, and its outcome is recorded
// after the response. If the ledger cannot record the create, nothing is sent. If it cannot
// record the new endpoint, Create returns the record and a [ledger.Error] with the ID.
//
// POST /v1/inference-service
func (c *InferenceServiceClient) Create(ctx context.Context, req CreateInferenceServiceRequest, opts ...RequestOption) (*InferenceService, error) {
	k := newCall(http.MethodPost, services, "", &req, req.problems(), opts)
	s, _, err := c.create(ctx, k, "", 0)
	return s, err
}

// create creates an endpoint, for Create and Deploy, under a key of the ledger. It records the
// new ID. If the key has an endpoint of the same request already, nothing is sent, and earlier is
// its entry.
func (c *InferenceServiceClient) create(ctx context.Context, k *call, key string, lease time.Duration) (s *InferenceService, earlier *ledger.Entry, err error) {
	ctx = c.client.begin(ctx, k)
	defer c.client.report(ctx, k, &err)
	if err := k.prepare(c.client); err != nil {
		return nil, nil, err
	}
	if c.client.Ledger.journal != nil {
		var claim *claim
		if claim, ctx, err = c.client.Ledger.open(ctx, k, key, lease); err != nil || claim.earlier != nil {
			return nil, claim.earlier, err
		}
		defer claim.close(ctx, k, &s, &err)
	} else if err := k.pick(ctx); err != nil {
		return nil, nil, err
	}
	c.client.caller.Do(ctx, &k.Call)
	made := new(InferenceService)
	if err = c.client.verdict(k, made); err == nil {
		c.client.endpoints.Create(made.ServiceID, k.known(true, made.Name))
		return made, nil, nil
	}
	if unknown, ok := errors.AsType[*OutcomeUnknownError](err); ok && unknown.ID != "" {
		c.client.endpoints.Create(unknown.ID, k.known(unknown.created(), jsonfield.Salvage(unknown.Body, "name")))
	}
	return nil, nil, c.client.Ledger.explainMark(err)
}

// known returns the sender of a create, or nil if the ID in the response may belong to another
// endpoint. name is the name in the response; it is empty if there is none.
func (k *call) known(created bool, name string) known.Sender {
	if created && (name == "" || rules.Renamed(k.name(), name)) {
		return k.Result.TokenCheck
	}
	return nil
}

// Get reads one endpoint.
//
// GET /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Get(ctx context.Context, id string, opts ...RequestOption) (*InferenceService, error) {
	return do[InferenceService](ctx, c.client, get(service, id, opts))
}

// UpdateInferenceServiceRequest describes a change of an endpoint. The service documents only
// one field; [WithBodyField] sends other fields.
type UpdateInferenceServiceRequest struct {
	ResourceMetadata UpdateResourceMetadata `json:"resource_metadata"` // what to change
}

// UpdateResourceMetadata describes a change of the resources of an endpoint.
type UpdateResourceMetadata struct {
	// TargetInstanceNumber is the new number of instances. It is sent as a JSON string, as in
	// the service's own example. If nil, it is not sent. new(0) requests no instances.
	TargetInstanceNumber *int `json:"target_instance_number,string,omitempty"`
}

const instanceField = "resource_metadata.target_instance_number"

// Update changes an endpoint and returns its record, with the status
// initializing. An update is safe to repeat, so it is sent again if its response is lost. A
// request that changes nothing is a [ValidationError]. With [WithLedger], a higher number of
// instances is recorded before the request is sent, and a lower number after the request has
// succeeded. After a request that was refused, the number from before is recorded again.
//
// PUT /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Update(ctx context.Context, id string, req UpdateInferenceServiceRequest, opts ...RequestOption) (s *InferenceService, err error) {
	k := newCall(http.MethodPut, service, id, &req, nil, opts)
	n := req.ResourceMetadata.TargetInstanceNumber
	k.problems.add(n != nil && *n < 0, instanceField, "must not be negative")
	k.problems.add(n == nil && !k.opts.has(""), instanceField, "is not set, so the update would change nothing")
	ctx = c.client.begin(ctx, k)
	defer c.client.report(ctx, k, &err)
	if err := k.prepare(c.client); err != nil {
		return nil, err
	}
	k.Urgent = n != nil && *n == 0 // it lowers the bill
	change, err := c.client.Ledger.scale(ctx, k)
	if err != nil {
		return nil, err
	}
	defer c.client.Ledger.scaled(ctx, change, k, &s)
	c.client.caller.Do(ctx, &k.Call)
	updated := new(InferenceService)
	if err := c.client.verdict(k, updated); err != nil {
		return nil, err
	}
	return updated, nil
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
// If a response is lost and the repeated request gets "not found" with the same token, Delete
// assumes that the first request deleted the endpoint, and returns no error. If the first request
// gets "not found", the error is [ErrNotFound]. The error is also [ErrNotFound] after a lost response,
// if this client created the endpoint less than 30 s ago: such an endpoint may be billed
// although it is not readable yet. A 2xx response with an error or an HTML page in its body is
// a [DecodeError].
//
// DELETE /v1/inference-service/{service_id}
func (c *InferenceServiceClient) Delete(ctx context.Context, id string, opts ...RequestOption) error {
	return doDelete(ctx, c.client, service, id, opts)
}

// URL returns the address of an available endpoint:
// /inference-api/v1/inference_service/{service_id} under the URL of [WithInferenceURL].
// Without that option the error is [ErrNoInferenceURL]. Which requests the endpoint accepts
// depends on its container. Whether these requests need the token is not documented. This
// package sends no requests to the address.
func (c *InferenceServiceClient) URL(id string) (string, error) {
	if c.client.inference == "" {
		return "", ErrNoInferenceURL
	}
	if problem := valid.ID(id); problem != "" {
		return "", invalid("service_id", problem)
	}
	return c.client.inference + "/inference-api/v1/inference_service/" + url.PathEscape(id), nil
}
