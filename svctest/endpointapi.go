package svctest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

type endpointRecord struct {
	ServiceID        string           `json:"service_id"`
	Name             string           `json:"name"`
	Description      string           `json:"description"`
	UserID           string           `json:"user_id"`
	Status           string           `json:"status"`
	StatusInfo       json.RawMessage  `json:"status_info"`
	ResourceMetadata resourceMetadata `json:"resource_metadata"`
	BillingMetadata  struct{}         `json:"billing_metadata"`
	EndpointMetadata struct{}         `json:"endpoint_metadata"`
	DeployMetadata   deployMetadata   `json:"deploy_metadata"`
	ServiceType      string           `json:"service_type"`
	CreatedAt        string           `json:"created_at"`
	UpdatedAt        string           `json:"updated_at"`
	DeletedAt        *string          `json:"deleted_at"`
	IsDeleted        bool             `json:"is_deleted"`
	PaymentType      string           `json:"payment_type"`
}

type resourceMetadata struct {
	ResourceDisplayName  string    `json:"resource_display_name"`
	ScaleType            string    `json:"scale_type"`
	FlavorID             string    `json:"flavor_id"`
	TargetInstanceNumber int       `json:"target_instance_number"`
	ScalePolicy          *struct{} `json:"scale_policy"`
	VRAM                 string    `json:"VRAM"`
	ImageSize            string    `json:"image_size"`
}

type deployMetadata struct {
	ImageURL string `json:"image_url"`
	Command  string `json:"command"`
	Port     int    `json:"port"`
	GPUNum   int    `json:"gpu_num"`
}

func (e *endpoint) record(status string, now time.Time) *endpointRecord {
	return &endpointRecord{
		ServiceID: e.id, Name: e.name, Description: e.description, UserID: e.user,
		Status: status, StatusInfo: e.info(status),
		ResourceMetadata: resourceMetadata{
			ResourceDisplayName: e.displayName, ScaleType: e.scaleType, FlavorID: e.flavorID,
			TargetInstanceNumber: e.target, VRAM: e.vram, ImageSize: e.imageSize,
		},
		DeployMetadata: deployMetadata{e.imageURL, e.command, e.port, e.gpuNum},
		ServiceType:    "normal", PaymentType: e.paymentType,
		CreatedAt: formatTime(e.created, spacedTime), UpdatedAt: formatTime(e.updated(now), spacedTime),
	}
}

func (s *Server) createEndpoint(c *call) response {
	body := c.body
	body.required("name")
	e := &endpoint{
		user: c.user, name: body.text("name", "-"), description: body.text("description", ""), paymentType: body.text("payment_type", ""),
		script: s.cfg.statusPath,
	}
	if e.name == "" {
		body.problem("name", "must not be empty")
	}
	resource := body.object("resource_metadata")
	e.flavorID = resource.text("flavor_id", "")
	e.scaleType = resource.text("scale_type", "")
	e.target = resource.count("target_instance_number", 1)
	resource.done()
	deploy := body.object("deploy_metadata")
	e.imageURL = deploy.text("image_url", "")
	e.command = deploy.text("command", "")
	if e.port = deploy.count("port", 0); e.port > 65535 {
		deploy.problem("port", "must be at most 65535")
	}
	e.gpuNum = deploy.count("gpu_num", 0)
	flavor := s.flavor(e.flavorID)
	switch {
	case e.flavorID == "": // allowed: the contract requires only a name
	case flavor == nil:
		resource.problem("flavor_id", "is not a flavor that can be rented")
	case flavor.MaxGPU > 0 && e.gpuNum > flavor.MaxGPU:
		deploy.problem("gpu_num", "exceeds the %d GPUs of a node", flavor.MaxGPU)
	}
	deploy.done()
	body.done()
	if a := body.invalid(); a.code != "" {
		return a
	}
	if flavor != nil && s.available(flavor, c.now) < e.target {
		return outOfStock()
	}
	if s.cfg.rename != nil {
		e.name = s.cfg.rename(e.name)
	}
	s.addEndpoint(e, c.now, s.cfg.deployTime)
	return response{value: e.record(StatusInitializing, c.now), delay: s.cfg.createTime}
}

func outOfStock() response {
	return failure(http.StatusConflict, "out_of_stock", "the flavor has fewer instances available than requested")
}

// count takes the field key out of o. The value must be an integer from 0 to 1<<31.
func (o jsonObject) count(key string, absent int) int {
	n := o.integer(key, int64(absent))
	if n < 0 || n > 1<<31 {
		o.problem(key, "must be from 0 to 2147483648")
		return absent
	}
	return int(n)
}

// visible returns the endpoint of the request. It returns nil if the endpoint does not
// exist, is deleted, or is so new that callers cannot read it yet.
func (s *Server) visible(c *call) *endpoint {
	e := s.endpointByID(c.id)
	if e == nil || e.user != c.user || e.deleted(c.now) || c.now.Before(e.visibleFrom) {
		return nil
	}
	return e
}

func (s *Server) getEndpoint(c *call) response {
	e := s.visible(c)
	if e == nil {
		return notFound("endpoint")
	}
	if e.stale != nil && c.now.Before(e.staleUntil) {
		return response{value: e.stale}
	}
	return response{value: e.record(e.shown(c.now), c.now)}
}

func (s *Server) updateEndpoint(c *call) response {
	e := s.visible(c)
	if e == nil {
		return notFound("endpoint")
	}
	c.body.required("resource_metadata")
	resource := c.body.object("resource_metadata")
	if resource.fields != nil {
		resource.required("target_instance_number")
	}
	target := resource.countOrText("target_instance_number", e.target)
	resource.done()
	c.body.done()
	if a := c.body.invalid(); a.code != "" {
		return a
	}
	status := e.status(c.now)
	if target == e.target && status != StatusStopped || target == 0 && e.target == 0 {
		e.changed = c.now // only updated_at changes
		return response{value: e.record(status, c.now)}
	}
	if f := s.flavor(e.flavorID); f != nil && s.available(f, c.now) < target-e.target {
		return outOfStock()
	}
	if s.cfg.staleReads > 0 {
		e.stale, e.staleUntil = e.record(status, c.now), c.now.Add(s.cfg.staleReads)
	}
	e.deploy(target, c.now, s.cfg.deployTime)
	return response{value: e.record(StatusInitializing, c.now)}
}

// countOrText works like count, but also accepts the number as a string, such as "2".
func (o jsonObject) countOrText(key string, absent int) int {
	raw := o.fields[key]
	if len(raw) == 0 || raw[0] != '"' {
		return o.count(key, absent)
	}
	n, err := strconv.ParseUint(o.text(key, ""), 10, 31)
	if err != nil {
		o.problem(key, "must be an integer or a string of digits")
		return absent
	}
	return int(n)
}

func (s *Server) deleteEndpoint(c *call) response {
	e := s.visible(c)
	if e == nil {
		return notFound("endpoint")
	}
	if e.deletedAt.IsZero() {
		e.deletedAt = c.now.Add(s.cfg.deleteTime)
	}
	return response{}
}

// serveInference serves requests to the address of an endpoint, for a caller that
// checks whether the endpoint works.
func (s *Server) serveInference(w http.ResponseWriter, x *exchange) {
	x.pause()
	s.mu.Lock()
	e, now := s.endpointByID(x.param), s.now()
	status, name := "", ""
	if e != nil && !e.deleted(now) {
		status, name = e.status(now), e.name
	}
	s.mu.Unlock()
	switch {
	case status == "":
		s.write(w, notFound("endpoint"), x.rec.RequestID)
	case status != StatusAvailable:
		s.write(w, failure(http.StatusServiceUnavailable, "not_available", "the endpoint is %s", status), x.rec.RequestID)
	case s.cfg.inference == nil && s.cfg.chat:
		s.serveChat(w, x, orDefault(s.cfg.chatModel, name))
	case s.cfg.inference == nil:
		s.write(w, response{value: map[string]string{"service_id": x.param}}, x.rec.RequestID)
	default:
		r := x.r.Clone(x.r.Context())
		r.URL.Path, r.URL.RawPath = x.rest, ""
		if p, err := url.PathUnescape(x.rest); err == nil && p != x.rest {
			r.URL.Path, r.URL.RawPath = p, x.rest
		}
		s.cfg.inference.ServeHTTP(w, r)
	}
}
