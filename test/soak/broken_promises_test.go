package soak_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// liar is a client that breaks one promise. Methods that have no replacement here work
// correctly.
type liar struct {
	services
	c *conversation

	create             func(context.Context, svc.CreateInferenceServiceRequest) (*svc.InferenceService, error)
	deploy             func(context.Context, svc.CreateInferenceServiceRequest, *svc.DeployOptions) (*svc.InferenceService, error)
	waitUntilAvailable func(context.Context, string, *svc.WaitOptions) (*svc.InferenceService, error)
	waitUntilDeleted   func(context.Context, string, *svc.WaitOptions) error
	scaleAndWait       func(context.Context, string, int, *svc.WaitOptions) (*svc.InferenceService, error)
	delete             func(context.Context, string) error
	deleteAndWait      func(context.Context, string, *svc.WaitOptions) error
	reap               func(context.Context) ([]svc.Reaped, error)
	adopt              func(context.Context, ledger.Entry) error
}

func (l *liar) Adopt(ctx context.Context, e ledger.Entry, id string) error {
	if l.adopt != nil {
		return l.adopt(ctx, e)
	}
	return l.services.Adopt(ctx, e, id)
}

func (l *liar) Reap(ctx context.Context) ([]svc.Reaped, error) {
	if l.reap != nil {
		return l.reap(ctx)
	}
	return l.services.Reap(ctx)
}

func (l *liar) Create(ctx context.Context, r svc.CreateInferenceServiceRequest, opts ...svc.RequestOption) (*svc.InferenceService, error) {
	if l.create != nil {
		return l.create(ctx, r)
	}
	return l.services.Create(ctx, r, opts...)
}

func (l *liar) Deploy(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
	if l.deploy != nil {
		return l.deploy(ctx, r, o)
	}
	return l.services.Deploy(ctx, r, o)
}

func (l *liar) WaitUntilAvailable(ctx context.Context, id string, o *svc.WaitOptions) (*svc.InferenceService, error) {
	if l.waitUntilAvailable != nil {
		return l.waitUntilAvailable(ctx, id, o)
	}
	return l.services.WaitUntilAvailable(ctx, id, o)
}

func (l *liar) WaitUntilDeleted(ctx context.Context, id string, o *svc.WaitOptions) error {
	if l.waitUntilDeleted != nil {
		return l.waitUntilDeleted(ctx, id, o)
	}
	return l.services.WaitUntilDeleted(ctx, id, o)
}

func (l *liar) ScaleAndWait(ctx context.Context, id string, n int, o *svc.WaitOptions) (*svc.InferenceService, error) {
	if l.scaleAndWait != nil {
		return l.scaleAndWait(ctx, id, n, o)
	}
	return l.services.ScaleAndWait(ctx, id, n, o)
}

func (l *liar) Delete(ctx context.Context, id string, opts ...svc.RequestOption) error {
	if l.delete != nil {
		return l.delete(ctx, id)
	}
	return l.services.Delete(ctx, id, opts...)
}

func (l *liar) DeleteAndWait(ctx context.Context, id string, o *svc.WaitOptions) error {
	if l.deleteAndWait != nil {
		return l.deleteAndWait(ctx, id, o)
	}
	return l.services.DeleteAndWait(ctx, id, o)
}

// lies break the promises one by one, in ways in which a real bug would break them.
var lies = []struct {
	name  string
	trips string
	let   func(*liar)
}{
	{name: "a panic", trips: "I0", let: func(l *liar) {
		l.waitUntilAvailable = func(context.Context, string, *svc.WaitOptions) (*svc.InferenceService, error) { panic("nil map") }
	}},
	{name: "a create that is tried again", trips: "I1", let: repeatCreates},
	{name: "a create that is tried again", trips: "I8", let: repeatCreates},
	{name: "an unknown outcome called a failure", trips: "I2", let: func(l *liar) {
		l.create = func(ctx context.Context, r svc.CreateInferenceServiceRequest) (*svc.InferenceService, error) {
			s, err := l.services.Create(ctx, r)
			if errors.Is(err, svc.ErrOutcomeUnknown) {
				err = &svc.Error{StatusCode: 500}
			}
			return s, err
		}
	}},
	{name: "a deployment that fails without its ID", trips: "I2", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			silent := *o
			silent.OnCreate = nil
			s, err := l.services.Deploy(ctx, r, &silent)
			if deploy, ok := errors.AsType[*svc.DeployError](err); ok {
				return nil, deploy.Err
			}
			return s, err
		}
	}},
	{name: "a panic that skips the cleanup", trips: "I2", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			s, err := l.services.Create(ctx, r)
			if err != nil {
				return nil, err
			}
			if o.OnCreate != nil {
				err = o.OnCreate(s)
			}
			return s, errors.Join(err, &svc.DeployError{ServiceID: s.ServiceID, Err: errors.New("not waited for")})
		}
	}},
	{name: "one 404 is enough", trips: "I3", let: func(l *liar) {
		l.waitUntilDeleted = func(ctx context.Context, id string, o *svc.WaitOptions) error {
			_, err := l.services.WaitUntilAvailable(ctx, id, o)
			if errors.Is(err, svc.ErrNotFound) {
				return nil
			}
			return errors.New("not deleted")
		}
	}},
	{name: "accepted is deleted", trips: "I3", let: func(l *liar) {
		l.deleteAndWait = func(ctx context.Context, id string, _ *svc.WaitOptions) error { return l.services.Delete(ctx, id) }
	}},
	{name: "an accepted cleanup called deleted", trips: "I3", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			s, err := l.services.Deploy(ctx, r, o)
			if deploy, ok := errors.AsType[*svc.DeployError](err); ok && deploy.Cleanup == svc.CleanupAccepted {
				deploy.Cleanup = svc.CleanupDeleted
			}
			return s, err
		}
	}},
	{name: "a failed cleanup called accepted", trips: "I3", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			s, err := l.services.Deploy(ctx, r, o)
			if deploy, ok := errors.AsType[*svc.DeployError](err); ok && deploy.Cleanup == svc.CleanupFailed {
				deploy.Cleanup = svc.CleanupAccepted
			}
			return s, err
		}
	}},
	{name: "not found is deleted", trips: "I3", let: func(l *liar) {
		l.delete = func(ctx context.Context, id string) error {
			if err := l.services.Delete(ctx, id); !errors.Is(err, svc.ErrNotFound) {
				return err
			}
			return nil
		}
	}},
	{name: "a change that is not waited for", trips: "I4", let: func(l *liar) {
		l.scaleAndWait = func(ctx context.Context, id string, n int, o *svc.WaitOptions) (*svc.InferenceService, error) {
			brief, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			s, err := l.services.ScaleAndWait(brief, id, n, o)
			if ctx.Err() == nil && errors.As(err, new(*svc.WaitError)) {
				err = nil
			}
			return s, err
		}
	}},
	{name: "a cleanup of a neighbour", trips: "I5", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			s, err := l.services.Deploy(ctx, r, o)
			if err != nil {
				_ = l.services.Delete(ctx, l.c.world.endpoints[1].id)
			}
			return s, err
		}
	}},
	{name: "a cleanup that nobody asked for", trips: "I5", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			eager := *o
			eager.OnFailure, eager.DeleteOnFailure = nil, true
			return l.services.Deploy(ctx, r, &eager)
		}
	}},
	{name: "a wait that deletes", trips: "I5", let: func(l *liar) {
		l.waitUntilDeleted = func(ctx context.Context, id string, o *svc.WaitOptions) error {
			return l.services.DeleteAndWait(ctx, id, o)
		}
	}},
	{name: "a call that takes no notice of ctx", trips: "I6", let: func(l *liar) {
		l.waitUntilDeleted = func(ctx context.Context, id string, o *svc.WaitOptions) error {
			long, cancel := context.WithTimeout(context.WithoutCancel(ctx), 11*time.Minute)
			defer cancel()
			return l.services.WaitUntilDeleted(long, id, o)
		}
	}},
	{name: "a goroutine that is left behind", trips: "I6", let: func(l *liar) {
		l.waitUntilAvailable = func(ctx context.Context, id string, o *svc.WaitOptions) (*svc.InferenceService, error) {
			go time.Sleep(24 * time.Hour)
			return l.services.WaitUntilAvailable(ctx, id, o)
		}
	}},
	{name: "a call that hangs", trips: "I6", let: func(l *liar) {
		l.waitUntilAvailable = func(context.Context, string, *svc.WaitOptions) (*svc.InferenceService, error) {
			time.Sleep(24 * time.Hour)
			return nil, errors.New("at last")
		}
	}},
	{name: "available is not waited for", trips: "I7", let: func(l *liar) {
		l.waitUntilAvailable = func(_ context.Context, id string, _ *svc.WaitOptions) (*svc.InferenceService, error) {
			return &svc.InferenceService{ServiceID: id, Status: svc.InferenceServiceStatusAvailable}, nil
		}
	}},
	{name: "a probe that is not asked", trips: "I7", let: func(l *liar) {
		l.waitUntilAvailable = func(ctx context.Context, id string, o *svc.WaitOptions) (*svc.InferenceService, error) {
			blind := *o
			blind.Probe = nil
			return l.services.WaitUntilAvailable(ctx, id, &blind)
		}
	}},
	{name: "the record of another", trips: "I7", let: func(l *liar) {
		l.waitUntilAvailable = func(ctx context.Context, _ string, o *svc.WaitOptions) (*svc.InferenceService, error) {
			return l.services.WaitUntilAvailable(ctx, l.c.world.endpoints[1].id, o)
		}
	}},
	{name: "a client that refuses everything", trips: "I9", let: func(l *liar) {
		l.deploy = func(context.Context, svc.CreateInferenceServiceRequest, *svc.DeployOptions) (*svc.InferenceService, error) {
			return nil, errors.New("better not")
		}
	}},
	{name: "a cleanup that gives up", trips: "I12", let: giveUp},
	{name: "a key that is not looked up", trips: "I13", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			free := *o
			free.Key = ""
			return l.services.Deploy(ctx, r, &free)
		}
	}},
	{name: "an endpoint in doubt that is forgotten", trips: "I13", let: func(l *liar) { l.adopt = l.services.Forget }},
	{name: "a ledger that loses its records", trips: "I14", let: func(l *liar) { l.c.forgetful = true }},
	{name: "a lease by a clock that is ahead", trips: "I15", let: func(l *liar) {
		l.reap = func(ctx context.Context) ([]svc.Reaped, error) {
			entries, err := l.services.Entries(ctx)
			for _, e := range entries {
				if e.Lease > 0 && e.ServiceID != "" && time.Now().Add(24*time.Hour).After(e.LeaseEnd) {
					err = errors.Join(err, l.services.Delete(ctx, e.ServiceID))
				}
			}
			return nil, err
		}
	}},
	{name: "a wait that a moment's refusal ends", trips: "I16", let: func(l *liar) {
		l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
			brief, cancel := context.WithCancel(ctx)
			defer cancel()
			var refused error
			impatient := *o
			impatient.OnPoll = func(p svc.Poll) {
				if errors.Is(p.Err, svc.ErrUnauthorized) || errors.Is(p.Err, svc.ErrForbidden) {
					refused = p.Err
					cancel()
				}
			}
			s, err := l.services.Deploy(brief, r, &impatient)
			if deploy, ok := errors.AsType[*svc.DeployError](err); ok && refused != nil {
				deploy.Err = &svc.WaitError{ID: deploy.ServiceID, Want: "available", Err: refused}
			}
			return s, err
		}
	}},
	{name: "a deletion that one 404 proves", trips: "I17", let: func(l *liar) {
		l.waitUntilDeleted = func(ctx context.Context, id string, o *svc.WaitOptions) error {
			brief, cancel := context.WithCancel(ctx)
			defer cancel()
			hasty, missing := *o, false
			hasty.OnPoll = func(p svc.Poll) {
				if missing = errors.Is(p.Err, svc.ErrNotFound); missing {
					cancel()
				}
			}
			err := l.services.WaitUntilDeleted(brief, id, &hasty)
			if missing {
				return nil
			}
			return err
		}
	}},
	{name: "a Reap that does nothing", trips: "I15", let: func(l *liar) {
		l.reap = func(context.Context) ([]svc.Reaped, error) { return nil, nil }
	}},
}

// giveUp cleans up with one delete.
func giveUp(l *liar) {
	l.deploy = func(ctx context.Context, r svc.CreateInferenceServiceRequest, o *svc.DeployOptions) (*svc.InferenceService, error) {
		leaves := *o
		leaves.DeleteOnFailure, leaves.OnFailure = false, nil
		s, err := l.services.Deploy(ctx, r, &leaves)
		if deploy, ok := errors.AsType[*svc.DeployError](err); ok && o.DeleteOnFailure && deploy.Cleanup == svc.CleanupNone {
			start := time.Now()
			deploy.CleanupErr = l.services.Delete(context.WithoutCancel(ctx), deploy.ServiceID)
			k := l.c.world.call
			k.cleanups = append(k.cleanups, svc.WaitEnd{ID: deploy.ServiceID, Cleanup: true, Elapsed: time.Since(start), Err: deploy.CleanupErr})
		}
		return s, err
	}
}

func repeatCreates(l *liar) {
	l.create = func(ctx context.Context, r svc.CreateInferenceServiceRequest) (*svc.InferenceService, error) {
		s, err := l.services.Create(ctx, r)
		if errors.Is(err, svc.ErrOutcomeUnknown) {
			return l.services.Create(ctx, r)
		}
		return s, err
	}
}

// TestEachInvariantFindsABrokenPromise checks that each invariant finds a client that breaks the promise.
func TestEachInvariantFindsABrokenPromise(t *testing.T) {
	if testing.Short() {
		t.Skip("the clients that break a promise are tested without the race detector")
	}
	for _, lie := range lies {
		t.Run(lie.trips+" "+lie.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(6000) {
				if lie.trips >= "I13" && lie.trips < "I2" && !hasLedger(seed) {
					continue
				}
				lying := trips(t, seed, lie.trips, func(s services, c *conversation) services {
					l := &liar{services: s, c: c}
					lie.let(l)
					return l
				})
				if lying && !trips(t, seed, lie.trips, nil) {
					t.Logf("seen in conversation %d", seed)
					return
				}
			}
			t.Error("no conversation found the broken promise")
		})
	}
}

// trips reports whether a conversation violates the invariant.
func trips(t *testing.T, seed uint64, invariant string, lie func(services, *conversation) services) (tripped bool) {
	synctest.Test(t, func(*testing.T) {
		c := converse(seed, lie)
		if left := leftovers(); left > 0 {
			c.checking = inTime
			c.fail(nil, "%d goroutines are left", left)
			time.Sleep(25 * time.Hour) // lets all goroutines end, as synctest requires
		}
		for _, v := range c.violations {
			name, _, _ := strings.Cut(v.invariant, " ")
			tripped = tripped || name == invariant
		}
	})
	return tripped
}
