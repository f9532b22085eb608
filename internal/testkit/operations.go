package testkit

import (
	"context"

	"example.com/svc"
)

// Operation is one call of the client, for tests that run on several calls.
type Operation struct {
	Name   string
	Method string
	Path   string
	OK     Reply // the reply with which the call succeeds
	Do     func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error
}

// One operation for each HTTP method. Operations lists them all.
var (
	OpGet = Operation{"get", "GET", "/v1/inference-service/svc-1", Reply{Status: 200, Body: ServiceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Get(ctx, "svc-1", opts...)
			return err
		}}
	OpUpdate = Operation{"update", "PUT", "/v1/inference-service/svc-1", Reply{Status: 200, Body: ServiceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Scale(ctx, "svc-1", 2, opts...)
			return err
		}}
	OpDelete = Operation{"delete", "DELETE", "/v1/inference-service/svc-1", Reply{Status: 200},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			return c.InferenceServices.Delete(ctx, "svc-1", opts...)
		}}
	OpCreate = Operation{"create", "POST", "/v1/inference-service", Reply{Status: 201, Body: ServiceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{Name: "demo"}, opts...)
			return err
		}}
	Operations = []Operation{OpGet, OpUpdate, OpDelete, OpCreate}
)
