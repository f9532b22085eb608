package soak_test

import (
	"context"
	"errors"
	"iter"

	"example.com/svc"
	"example.com/svc/ledger"
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
	Reap(context.Context) ([]svc.Reaped, error)
	Entries(context.Context) ([]ledger.Entry, error)
	Adopt(ctx context.Context, e ledger.Entry, id string) error
	Forget(ctx context.Context, e ledger.Entry) error
}

// whole has the methods of the real client.
type whole struct {
	*svc.InferenceServiceClient
	ledger *svc.Ledger
}

func servicesOf(c *svc.Client) services { return whole{c.InferenceServices, c.Ledger} }

func (w whole) Reap(ctx context.Context) ([]svc.Reaped, error) { return w.ledger.Reap(ctx, nil) }

func (w whole) Entries(ctx context.Context) ([]ledger.Entry, error) { return w.ledger.Entries(ctx) }

func (w whole) Forget(ctx context.Context, e ledger.Entry) error { return w.ledger.Forget(ctx, e) }

func (w whole) Adopt(ctx context.Context, e ledger.Entry, id string) error {
	_, err := w.ledger.Adopt(ctx, e, id, nil)
	return err
}

func setOnFailure(o *svc.DeployOptions, f func(id string) bool) {
	o.OnFailure = func(e *svc.DeployError) bool { return f(e.ServiceID) }
}

// cleanup returns the state of the cleanup in an error: "", "deleted", "accepted" or
// "failed".
func cleanup(e *svc.DeployError) string { return string(e.Cleanup) }

func permanent(text string) error { return svc.Permanent(errors.New(text)) }
