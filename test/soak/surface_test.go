package soak_test

import (
	"context"
	"errors"
	"iter"

	"example.com/svc"
)

// services is what a conversation calls. *svc.InferenceServiceClient is one; the tests
// of the invariants put one that lies in its place.
type services interface {
	Create(context.Context, svc.CreateInferenceServiceRequest, ...svc.RequestOption) (*svc.InferenceService, error)
	Deploy(context.Context, svc.CreateInferenceServiceRequest, *svc.DeployOptions) (*svc.InferenceService, error)
	Use(context.Context, svc.CreateInferenceServiceRequest, *svc.DeployOptions, func(context.Context, *svc.InferenceService) error) error
	WaitUntilAvailable(context.Context, string, *svc.WaitOptions) (*svc.InferenceService, error)
	WaitAll(context.Context, []string, *svc.WaitOptions) iter.Seq2[*svc.InferenceService, error]
	WaitUntilDeleted(context.Context, string, *svc.WaitOptions) error
	Wait(context.Context, string, func(*svc.InferenceService) (bool, error), *svc.WaitOptions) (*svc.InferenceService, error)
	ScaleAndWait(context.Context, string, int, *svc.WaitOptions) (*svc.InferenceService, error)
	Delete(context.Context, string, ...svc.RequestOption) error
	DeleteAndWait(context.Context, string, *svc.WaitOptions) error
}

// servicesOf is what the conversations test.
func servicesOf(c *svc.Client) services { return c.InferenceServices }

func setOnFailure(o *svc.DeployOptions, f func(id string) bool) {
	o.OnFailure = func(e *svc.DeployError) bool { return f(e.ServiceID) }
}

// cleanup is what an error says of a cleanup: "", "deleted", "accepted" or "failed".
func cleanup(e *svc.DeployError) string { return string(e.Cleanup) }

func permanent(text string) error { return svc.Permanent(errors.New(text)) }
