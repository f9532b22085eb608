package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.com/svc"
	"example.com/svc/ledger"
)

// foresee says what the command would do because of the entry of the key, and reports whether that is to
// continue with its endpoint.
func (d *deployment) foresee(ctx context.Context) (goesOn bool, err error) {
	t, e := d.tool, d.earlier
	switch {
	case e == nil:
		return false, nil
	case e.InDoubt(time.Now()):
		return false, t.inDoubt(*e)
	case e.State == ledger.Intended:
		t.talk.say("an earlier command is creating the endpoint of the key %s, or was killed during the create: the command would wait for the outcome until %s", e.Key, clock(e.SettleBy.Add(time.Minute)))
		return false, nil
	case d.keyFits() != nil:
		return false, nil // the flavor of the new request is checked first
	}
	s, err := t.client.InferenceServices.Get(ctx, e.ServiceID)
	switch {
	case isNotFound(err):
		t.talk.say("the service does not find %s: if the command finds out that it is deleted, it creates another one", printable(e.ServiceID))
		return false, nil
	case err != nil:
		return false, err
	case !useless(s):
		d.warnOfAdopted(*e, s)
		t.talk.say("the command would create nothing: the key %s has %s, of the same request, which is %s", e.Key, printable(s.ServiceID), printable(string(s.Status)))
		if d.tellLease(*e); d.withoutLease() && d.spec.lease > 0 {
			t.talk.say("it has no lease: the command would set one that ends in %v", (*days)(&d.spec.lease))
		}
		return true, nil
	case d.spec.replace:
		t.talk.say("the command would delete %s, which is %s, and create another one", printable(s.ServiceID), s.Status)
		return false, nil
	}
	t.talk.say("the command would create nothing, and fail: %s is %s. With --replace, it would delete %[1]s and create another one", printable(s.ServiceID), s.Status)
	return true, nil
}

// useless reports whether --replace deletes an endpoint.
func useless(s *svc.InferenceService) bool {
	return s.Status == svc.InferenceServiceStatusUnavailable || s.Status == svc.InferenceServiceStatusStopped
}

// keyFits returns an error if the key has the endpoint of another request.
func (d *deployment) keyFits() error {
	e := d.earlier
	if e == nil || e.State != ledger.Created {
		return nil
	}
	body, err := json.Marshal(d.req)
	if err != nil {
		return err
	}
	want, err := ledger.ParseRequest(body)
	if err != nil {
		return err
	}
	if why := e.Differs(d.tool.address, want); why != "" {
		return &ledger.Error{Op: "deploy", Key: e.Key, Intent: e.Intent, ServiceID: e.ServiceID, Err: fmt.Errorf("%w: %s", svc.ErrKeyInUse, why)}
	}
	return nil
}

// selects reports whether flags select a flavor: --flavor has several, or there are others.
func (d *deployment) selects() bool {
	return len(d.spec.flavor) > 1 || d.spec.filter != (flavorFilter{})
}

// warnOfFlavor warns if the flavor of an endpoint that exists is not one that the flags select.
func (d *deployment) warnOfFlavor(ctx context.Context, e ledger.Entry) {
	query, err := d.spec.filter.query()
	if err != nil || e.FlavorID == "" || !d.selects() {
		return
	}
	id, why := printable(e.FlavorID), "does not fit --gpu, --region, --min-cuda or --max-price"
	flavors, err := d.tool.client.Flavors.Find(ctx, query, svc.WithMaxAttempts(1))
	switch {
	case len(d.spec.flavor) > 1 && !slices.Contains(d.spec.flavor, e.FlavorID):
		why = "is none of --flavor"
	case err != nil:
		d.tool.talk.warn("it could not be checked whether %s, the flavor of %s, fits: %s", id, printable(e.ServiceID), plainText(err))
		return
	case len(inOrder(flavors, []string{e.FlavorID})) > 0:
		return
	}
	d.tool.talk.warn("%s has the flavor %s, which %s: these flags are for a new endpoint. To get one: svc delete --key %s, and deploy again", printable(e.ServiceID), id, why, e.Key)
}

// goesOn says that an endpoint of an earlier command is used, and what does not fit the flags. The endpoint may
// turn out to be deleted, and then another one is created.
func (d *deployment) goesOn(ctx context.Context, id string) {
	t := d.tool
	then := ""
	if d.wait {
		then = ": waiting until it is available"
	}
	limited, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	e, err := t.openEntry(limited, t.flags.key)
	if err != nil || e == nil || !strings.EqualFold(e.ServiceID, id) {
		t.talk.say("an earlier command has created %s%s", printable(id), then)
		return
	}
	if d.goesOnWith = e; e.Adopted {
		t.talk.say("the key %s has adopted %s%s", e.Key, printable(id), then)
	} else {
		t.talk.say("an earlier command has created %s%s", printable(id), then)
	}
	d.tellLease(*e)
	d.warnOfFlavor(ctx, *e)
}

// withoutLease reports whether the endpoint of the key exists and has no lease.
func (d *deployment) withoutLease() bool {
	return d.earlier != nil && d.earlier.State == ledger.Created && d.earlier.LeaseEnd.IsZero()
}

// deploy calls Deploy. An endpoint without a lease gets none from it, since that would count from the create
// and could be over at once: see beginLease.
func (d *deployment) deploy(ctx context.Context) (*svc.InferenceService, error) {
	if d.withoutLease() {
		d.opts.Lease = 0
	}
	return d.tool.client.InferenceServices.Deploy(ctx, d.req, &d.opts)
}

// beginLease gives the endpoint of the key the lease of --lease, counted from now, if Deploy has succeeded
// and was not told to.
func (d *deployment) beginLease(ctx context.Context, failed error) {
	if failed != nil || d.opts.Lease == d.spec.lease {
		return
	}
	t, lease := d.tool, (*days)(&d.spec.lease)
	e, err := t.openEntry(ctx, t.flags.key)
	if err == nil && e != nil {
		err = t.client.Ledger.Extend(ctx, *e, time.Now().Add(d.spec.lease))
	}
	if err != nil {
		t.talk.warn("the lease could not be set: %s. To set it: svc extend %s %v", plainText(err), t.flags.key, lease)
		return
	}
	t.talk.say("the endpoint of the key %s had no lease: it ends in %v now", t.flags.key, lease)
}

// tellLease says when the lease of an endpoint that exists ends, and warns if it is over: then the endpoint
// may be deleted. "svc delete" ends the lease too, if its delete was accepted and the deletion is not proved.
func (d *deployment) tellLease(e ledger.Entry) {
	if e.LeaseEnd.IsZero() {
		return
	}
	left, change := time.Until(e.LeaseEnd), "still"
	if d.earlier != nil && !d.earlier.LeaseEnd.Equal(e.LeaseEnd) {
		change = "now"
	}
	switch t := d.tool; {
	case left < 0:
		t.talk.warn("the lease of %s is over since %s, or a delete of it was accepted: the next \"svc sweep\" deletes it. To keep it, if it still runs: svc extend %s 8h",
			printable(e.ServiceID), short(-left), e.Key)
	case d.spec.lease > 0:
		t.talk.say("the lease of %s %s ends in %s: --lease counts from the create of the endpoint, and does not shorten a lease. To set another end: svc extend %s %v",
			printable(e.ServiceID), change, short(left), e.Key, (*days)(&d.spec.lease))
	}
}

// warnOfAdopted warns if an entry has adopted an endpoint without a mark, which another request may have created.
func (d *deployment) warnOfAdopted(e ledger.Entry, s *svc.InferenceService) {
	if mark, _ := ledger.FindMark(s.Description); e.Adopted && mark == "" {
		d.tool.talk.warn("%s was adopted, and has no mark of the ledger, so its image, command, port and GPUs may be others than this command asks for: the service does not show them", printable(s.ServiceID))
	}
}
