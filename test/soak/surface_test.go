package soak_test

import (
	"context"
	"errors"
	"iter"

	"example.com/svc"
)

// services has the methods that a conversation calls. *svc.InferenceServiceClient
// implements it. TestEachInvariantFindsABrokenPromise uses an implementation that lies.
type services interface {
	Create(context.Context, svc.CreateInferenceServiceRequest, ...svc.RequestOption) (*svc.InferenceService, error)
	Deploy(context.Context, svc.CreateInferenceServiceRequest, *svc.DeployOptions) (*svc.InferenceService, error)
	Use(context.Context, svc.CreateInferenceServiceRequest, *svc.DeployOptions, func(context.Context, *svc.InferenceService) error) error
	WaitUntilAvailable(context.Context, string, *svc.WaitOptions) (*svc.InferenceService, error)
	WaitUntilAllAvailable(context.Context, []string, *svc.WaitOptions) iter.Seq2[*svc.InferenceService, error]
	WaitUntilDeleted(context.Context, string, *svc.WaitOptions) error
	Wait(context.Context, string, func(*svc.InferenceService) (bool, error), *svc.WaitOptions) (*svc.InferenceService, error)
	ScaleAndWait(context.Context, string, int, *svc.WaitOptions) (*svc.InferenceService, error)
	Delete(context.Context, string, ...svc.RequestOption) error
	DeleteAndWait(context.Context, string, *svc.WaitOptions) error
}

// servicesOf returns the methods of the real client.
func servicesOf(c *svc.Client) services { return c.InferenceServices }

func setOnFailure(o *svc.DeployOptions, f func(id string) bool) {
	o.OnFailure = func(e *svc.DeployError) bool { return f(e.ServiceID) }
}

// cleanup returns the state of the cleanup in an error: "", "deleted", "accepted" or
// "failed".
func cleanup(e *svc.DeployError) string { return string(e.Cleanup) }

func permanent(text string) error { return svc.Permanent(errors.New(text)) }
