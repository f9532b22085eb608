package main

import (
	"context"
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
	case !deleteAccepted(*e).IsZero():
		t.talk.say("%s: the command would wait until it is deleted, and create another one%s", deletingText(*e), d.withoutItsLease())
		return false, nil
	case isClaimed(*e):
		t.talk.say("%s: the command would wait until it is known whether that takes effect, and go on with it or create another one%s", claimedText(*e), d.withoutItsLease())
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
	case isNotFound(err) && t.otherToken(ctx, *e):
		t.talk.say("the command would create nothing, and fail: the service does not find %s, and the ledger has it as created with another token. If that is of another account, it may be running there", printable(e.ServiceID))
		return true, nil
	case isNotFound(err):
		t.talk.say("the service does not find %s: if the command finds out that it is deleted, it creates another one%s", printable(e.ServiceID), d.withoutItsLease())
		return false, nil
	case err != nil:
		return false, err
	case !useless(s):
		d.warnOfAdopted(*e, s)
		t.talk.say("the command would create nothing: the key %s has %s, of the same request, which is %s", e.Key, printable(s.ServiceID), printable(string(s.Status)))
		d.tellInstances(s)
		d.tellLease(*e, true)
		return true, nil
	case d.spec.replace:
		t.talk.say("the command would delete %s, which is %s, and create another one%s", printable(s.ServiceID), s.Status, d.withoutItsLease())
		d.warnOfScaled("would get")
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
	if e == nil || e.State != ledger.Created || !deleteAccepted(*e).IsZero() {
		return nil
	}
	if why := d.tool.differs(*e, d.req); why != "" {
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
	d.tool.talk.warn("%s has the flavor %s, which %s: these flags are for a new endpoint. To get one: %s, and deploy again", printable(e.ServiceID), id, why, d.tool.cmd("delete --key %s", e.Key))
}

// goesOn says that an endpoint of an earlier command is used, and what does not fit the flags. The endpoint may
// turn out to be deleted, and then another one is created. It returns an error if it is being deleted.
func (d *deployment) goesOn(ctx context.Context, id string) error {
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
		return nil
	}
	if !deleteAccepted(*e).IsZero() { // since the key was read
		return soonDeleted(*e)
	}
	if d.goesOnWith = e; e.Adopted {
		t.talk.say("the key %s has adopted %s%s", e.Key, printable(id), then)
	} else {
		t.talk.say("an earlier command has created %s%s", printable(id), then)
	}
	if !e.LeaseEnd.IsZero() && t.ahead.Load() == 0 {
		_, _ = t.serviceTime(limited) // by which the lease ends
	}
	d.tellLease(*e, false)
	d.warnOfFlavor(ctx, *e)
	return nil
}

// tellInstances says, once, that the endpoint of the key has another number of instances than the request, by its record: the
// ledger may have a number that "svc scale" has asked for and not got. The endpoint keeps them.
func (d *deployment) tellInstances(s *svc.InferenceService) {
	if s == nil || s.IsDeleted || d.instancesTold {
		return
	}
	d.instancesTold = true
	if has, n := int(s.ResourceMetadata.TargetInstanceNumber), d.req.ResourceMetadata.TargetInstanceNumber; has != n {
		d.tool.talk.say("%s has %s, and keeps that number: --instances %d is for a new endpoint. To scale it: %s", printable(s.ServiceID), count(has), n, d.tool.cmd("scale --key %s N", d.tool.flags.key))
	}
}

// warnOfScaled warns if the endpoint that the key had when the command began was scaled, which the new one is not.
func (d *deployment) warnOfScaled(gets string) {
	e, n := d.before, d.req.ResourceMetadata.TargetInstanceNumber
	if e == nil || e.ServiceID == "" || e.Instances == e.Records[0].Instances || e.Instances == n {
		return
	}
	d.tool.talk.warn("%s, which the key %s had before, was scaled to %s, and the new one %s %d. To scale it: %s",
		printable(e.ServiceID), e.Key, count(e.Instances), gets, n, d.tool.cmd("scale --key %s %d", e.Key, e.Instances))
}

// warnOfAdopted warns if an entry has adopted an endpoint without a mark, which another request may have created.
func (d *deployment) warnOfAdopted(e ledger.Entry, s *svc.InferenceService) {
	if !e.Adopted || !isUnmarked(s) {
		return
	}
	what := ""
	switch others, shown := otherFields(s, d.req); {
	case !shown:
		what = ", so its image, command, port and GPUs may be others than this command asks for: the service does not show them"
	case len(others) > 0:
		what = ", and another " + strings.Join(others, ", another ") + " than this command asks for"
	}
	d.tool.talk.warn("%s was adopted, and has no mark of the ledger%s. No sweep deletes it, whatever its lease", printable(s.ServiceID), what)
}
