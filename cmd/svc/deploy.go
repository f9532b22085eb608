package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"example.com/svc"
	"example.com/svc/ledger"
)

const deployHelp = `The ID is written to standard output as soon as the endpoint exists; with -o json or yaml it is in the
document, at the end.

If the deployment fails, takes longer than --timeout, or is interrupted (Ctrl-C), the endpoint
that this command created is deleted; --keep keeps it. An endpoint that an earlier command
created is never deleted, except with --replace. That checks the flags, the ledger, the flavors and, as far as it can
be known, their stock before it deletes anything. If the create fails then, the command ends with 11: the
old endpoint is deleted, and nothing is running in its place.

At most one endpoint of a --key runs at a time. If an earlier command created it, with the same
request, this command creates nothing: it prints the ID and waits until the endpoint is
available. The create is recorded in the ledger before it is sent. After a kill, "svc ls"
shows what may be running. If the service has accepted a delete of the endpoint, by any command of this
program, this command waits until it is deleted, and creates another one. If it is not deleted within
--timeout, this command ends with 10. So it does if a delete of the endpoint that it has created itself
is accepted while it waits.

Flags that select a flavor (--gpu, --region, --min-cuda, --max-price and several of --flavor) are for a
new endpoint. One that exists is kept whatever its flavor; if that does not fit, a warning says so.

A lease belongs to one endpoint. A new endpoint has the lease of --lease, counted from its create, and
without --lease it has none, also if it takes the place of one that had a lease (--replace, or one that
was deleted elsewhere). The lease of an endpoint that exists is made as long as --lease, counted from the
create of the endpoint. It is never made shorter, and --lease 0 does not end it. An endpoint that exists
without a lease gets one that counts from now; if that cannot be recorded, the command ends with 9.
Whenever the lease that counts is not --lease, a line says so. "svc extend KEY 8h" sets another end,
counted from now.

"svc deploy --dry-run" prints a request that can be the file of --file, if it is without -o: with -o json
or yaml it is the field "request" of a document. A field that the file does not have gets the default of
its flag.`

// errNoWait ends a deployment with --wait=false.
var errNoWait = errors.New("--wait=false")

// deployView is the view of deploy: the endpoint, or the request of a dry run.
type deployView struct {
	serviceView
	Created  *bool           `json:"created" jsonschema:"nullable"` // this command created the endpoint; false if an earlier one did, or if there is none; null if that is not known
	DryRun   bool            `json:"dry_run"`
	Replaced string          `json:"replaced"`                                    // ID of the endpoint that --replace has deleted; empty if it has deleted none
	Request  json.RawMessage `json:"request" jsonschema:"oneof_type=object;null"` // the create request of a dry run; else null
}

// table shows the request of a dry run. The ID was written when the endpoint was created.
func (v *deployView) table() table {
	if !v.DryRun {
		return table{}
	}
	text, err := toYAML(v.Request)
	if err != nil {
		return table{}
	}
	return table{text: text}
}

func (v *deployView) names() []string { return nil }

func (t *tool) deployCommand() *command {
	var s spec
	var dryRun, wait bool
	c := &command{
		Command: &cobra.Command{
			Use: "deploy", Short: "create an endpoint and wait until it is available; prints its ID",
			Long:    deployHelp,
			Example: "  svc deploy --name chat --image registry.example/chat:3 --key chat --lease 8h\n  svc deploy --file chat.yaml --key chat --probe /health",
		},
		client: needsClient, ledger: makesLedger, stake: changes,
		before: func([]string) { t.noteRequest(&s) },
		left:   func(f facts) []string { return t.deployLeft(f, s.replace) },
	}
	c.dry = &dryRun
	c.empty = func() view { return &deployView{DryRun: dryRun, Request: json.RawMessage("null")} }
	f := c.Flags()
	s.add(f)
	f.Var(new(once), "key", "key in the ledger ("+keyRule+"), under which at most one endpoint runs at a time; default: a new random key")
	f.BoolVar(&s.keep, "keep", false, "keep the endpoint after a failure, a time limit or Ctrl-C")
	f.BoolVar(&s.replace, "replace", false, "if the endpoint of --key is unavailable or stopped, delete it and create a new one")
	f.BoolVar(&dryRun, "dry-run", false, "print the create request, and do not send it. Its form, its flavor, the stock for a new endpoint, and that --key has no endpoint of another request are checked; its image is not")
	f.BoolVar(&wait, "wait", true, "wait until the endpoint is available")
	c.run = func(ctx context.Context, _ []string) (view, error) {
		if !wait && s.probe != "" {
			return nil, usageError{errors.New("--probe cannot be used with --wait=false: an endpoint that is not awaited is not probed")}
		}
		d, err := t.deployment(ctx, &s)
		if err != nil {
			return nil, err
		}
		if dryRun {
			return d.dryRun(ctx)
		}
		d.wait = wait
		service, err := d.run(ctx)
		return d.view(service), err
	}
	return c
}

// noteIntent records the create that is about to be sent, for the advice after an interrupted
// run.
func (t *tool) noteIntent(r ledger.Record) {
	t.note(func(f *facts) {
		f.Intent, f.Entry, f.SettleBy = r.Intent, r.Key, r.SettleBy.Add(time.Minute)
		f.Name, f.Flavor, f.Instances, f.Seen = r.Name, r.FlavorID, r.Instances, nil
	})
}

// deployment is one run of deploy, or of the first half of "svc run".
type deployment struct {
	tool     *tool
	spec     *spec
	req      svc.CreateInferenceServiceRequest
	opts     svc.DeployOptions
	earlier  *ledger.Entry // the open entry of the key, read at first; nil if there is none
	wait     bool
	announce func(context.Context, string) error // writes the ID of the endpoint

	stop          context.CancelCauseFunc // ends Deploy
	checking      bool                    // it was said that the endpoint of the key may be deleted
	instancesTold bool                    // it was said if the endpoint of the key has another number of instances than the request

	before    *ledger.Entry // the entry of the endpoint in whose place a new one is created; nil if there was none
	leaseTold string        // the intent of the entry of which it was said what its lease is; empty if of none

	lost       error         // why the endpoint is of no use, although it was deployed: another command deletes it; else nil
	failed     error         // what has ended Deploy, in place of the error that it returns; nil if that is the reason
	goesOnWith *ledger.Entry // the entry whose endpoint is used; nil if there is none, or it cannot be read
}

// deployment checks the flags and reads the entry of the key. Nothing is sent before it.
func (t *tool) deployment(ctx context.Context, s *spec) (*deployment, error) {
	req, err := s.read(ctx, t.stdin)
	if err != nil {
		return nil, err
	}
	t.note(func(f *facts) {
		f.Name, f.Target, f.Flavor = req.Name, req.ResourceMetadata.TargetInstanceNumber, req.ResourceMetadata.FlavorID
		f.Instances, f.Request = f.Target, &req
	})
	d := &deployment{tool: t, spec: s, req: req, wait: true, announce: t.announce}
	d.opts = svc.DeployOptions{WaitOptions: t.wait, Key: t.flags.key, Lease: s.lease}
	if req.ResourceMetadata.FlavorID == "" {
		d.opts.PickFlavor = d.pickFlavor
	}
	d.opts.OnPoll = d.onPoll
	if s.probe != "" {
		if _, err := t.client.InferenceServices.URL("probe"); err != nil {
			return nil, usageError{fmt.Errorf("--probe: %w", err)}
		}
		d.opts.Probe = t.probe(s.probe)
	}
	if t.place.driver == "none" {
		if t.flags.key != "" || s.lease != 0 {
			return nil, usageError{errors.New("--key and --lease need a ledger, but --ledger or SVC_LEDGER is none")}
		}
		return d, nil
	}
	return d, d.readKey(ctx)
}

// pickFlavor is the function for [svc.DeployOptions.PickFlavor]. A refusal that is not about the flavor ends the command
// with its own error.
func (d *deployment) pickFlavor(ctx context.Context, refused []svc.RefusedFlavor) (string, error) {
	if n := len(refused); n > 0 && !aboutFlavor(refused[n-1]) {
		d.failed = refused[n-1].Err
		return "", d.failed
	}
	return d.tool.pickFlavor(ctx, d.spec, d.req, refused)
}

// readKey reads the open entry of the key. A ledger that cannot be read ends the command before
// anything is sent, but damaged entries of other keys do not matter.
func (d *deployment) readKey(ctx context.Context) (err error) {
	t := d.tool
	if t.flags.key == "" {
		return nil
	}
	if d.earlier, err = t.openEntry(ctx, t.flags.key); err != nil {
		return err
	}
	if d.earlier == nil {
		t.note(func(f *facts) { f.Running = false })
		return nil
	}
	d.before = new(unmarked(*d.earlier))
	t.noteEntry(*d.earlier)
	return t.isHere(*d.earlier)
}

// dryRun returns the request that the command would send, after it has said what it would do.
func (d *deployment) dryRun(ctx context.Context) (view, error) {
	req := d.req
	goesOn, err := d.foresee(ctx)
	switch {
	case err != nil:
		return nil, err
	case goesOn:
		req.ResourceMetadata.FlavorID = d.earlier.FlavorID
		d.warnOfFlavor(ctx, *d.earlier)
	case d.opts.PickFlavor != nil:
		if req.ResourceMetadata.FlavorID, err = d.opts.PickFlavor(ctx, nil); err != nil {
			return nil, err
		}
	default:
		if err := d.flavorExists(ctx, d.givenBack()); err != nil {
			return nil, err
		}
	}
	if err := d.keyFits(); err != nil {
		return nil, err
	}
	if !goesOn {
		d.tool.note(func(f *facts) { f.Flavor = req.ResourceMetadata.FlavorID })
	}
	text, err := json.Marshal(req)
	return &deployView{DryRun: true, Request: text}, err
}

// unchecked is the number of instances that are given back if the stock is not checked.
const unchecked = -1

// givenBack returns how many instances of the flavor of the request the endpoint of the key has: a delete of it gives
// them back.
func (d *deployment) givenBack() int {
	if d.earlier == nil || d.earlier.FlavorID != d.req.ResourceMetadata.FlavorID {
		return 0
	}
	return d.earlier.Instances
}

// flavorExists returns an error if the service does not list the flavor of the request, if it does not fit
// --gpu, --max-price and so on, or if too few of its instances are in stock, with those that are given back. A token
// that may create endpoints may not be allowed to list flavors.
func (d *deployment) flavorExists(ctx context.Context, givenBack int) error {
	id := d.req.ResourceMetadata.FlavorID
	query, err := d.spec.filter.query()
	if err != nil {
		return err
	}
	flavors, err := d.tool.client.Flavors.Find(ctx, query)
	switch {
	case errors.Is(err, svc.ErrForbidden) && d.spec.filter == (flavorFilter{}):
		d.tool.talk.say("the token may not list flavors, so it is not checked whether %s exists", printable(id))
		return nil
	case err != nil:
		return err
	}
	found := inOrder(flavors, []string{id})
	switch {
	case len(found) == 0:
		return fmt.Errorf("%s: %w", id, errNoFlavor)
	case givenBack != unchecked && int64(found[0].AvailableNum)+int64(givenBack) < int64(d.req.ResourceMetadata.TargetInstanceNumber):
		return d.soldOut()
	}
	return nil
}

// soldOut returns the error for a flavor that was named, and is not in stock.
func (d *deployment) soldOut() error {
	return soldOutError{fmt.Sprintf("%s is not in stock. To see what is: %s", d.req.ResourceMetadata.FlavorID, d.tool.cmd("flavors"))}
}

// fits returns an error if a flavor that was named does not fit --gpu, --max-price and so on. It is called when
// something has to be created.
func (d *deployment) fits(ctx context.Context) error {
	if d.opts.PickFlavor != nil || d.spec.filter == (flavorFilter{}) {
		return nil
	}
	return d.flavorExists(ctx, unchecked)
}

// noSuchFlavor adds errNoFlavor to the refusal of a create if the flavor is not in stock (409), by the error or by the
// list, or if the service does not list it, so that the exit code is the same as for a flavor that is picked, and for a dry
// run.
func (d *deployment) noSuchFlavor(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*svc.Error](err)
	if !ok || refused.Method != http.MethodPost || kindOf(err).code != exitFailed || d.opts.PickFlavor != nil {
		return err
	}
	missing := d.soldOut()
	if !saysSoldOut(err) {
		given := unchecked
		if errors.Is(err, svc.ErrConflict) {
			given = 0
		}
		missing = d.flavorExists(ctx, given)
	}
	if errors.Is(missing, errNoFlavor) {
		return several{plainText(err) + ": " + plainText(missing), []error{missing, err}}
	}
	return err
}

// run creates the endpoint and waits for it.
func (d *deployment) run(ctx context.Context) (*svc.InferenceService, error) {
	t := d.tool
	if t.place.driver == "none" {
		t.talk.warn("there is no ledger: if this program is killed, nothing shows what it left running")
	} else if t.flags.key == "" && isCI() && d.spec.flags.Lookup("key") != nil {
		t.talk.say("hint: with --key NAME this command can be repeated: it then continues with the endpoint that exists")
	}
	if err := d.prepare(ctx); err != nil {
		return nil, err
	}
	if e := d.earlier; e != nil && e.State == ledger.Intended && !e.InDoubt(time.Now()) {
		limit := e.SettleBy.Add(time.Minute)
		t.talk.say("an earlier command is creating the endpoint, or was killed during the create: waiting for the outcome until %s", clock(limit))
	}
	d.opts.OnCreate = func(s *svc.InferenceService) error {
		t.saw(s)
		return d.created(ctx, s.ServiceID)
	}
	d.opts.OnFailure = func(failed *svc.DeployError) bool { return d.onFailure(ctx, failed) }
	t.note(func(f *facts) { f.Pending = true }) // the attempt hook is called after the response only
	service, err := d.deploy(ctx)
	if f := t.facts(); f.Resumed && !f.Deleted {
		err = cmp.Or(err, d.announce(ctx, f.ID))
	}
	if err == nil && service != nil && d.goesOnWith != nil {
		d.warnOfAdopted(*d.goesOnWith, service)
	}
	if err == nil && service != nil && d.wait {
		if url, _ := t.client.InferenceServices.URL(service.ServiceID); url != "" {
			t.talk.say("%s is reached at %s", printable(service.ServiceID), url)
		}
	}
	return service, err
}

// deploy calls Deploy, and again if another command deletes the endpoint of an earlier command with which that goes on.
func (d *deployment) deploy(ctx context.Context) (*svc.InferenceService, error) {
	for {
		service, err := d.deployOnce(ctx)
		e := d.tool.latest(ctx)
		if d.condemned(ctx, e) {
			if err = d.prepare(ctx); err == nil {
				continue
			}
		}
		if err = d.judge(ctx, service, d.noSuchFlavor(ctx, err)); err == nil {
			err = d.lose(e)
		}
		return service, err
	}
}

// deployOnce calls Deploy. If the deployment has ended it, the error is why.
func (d *deployment) deployOnce(ctx context.Context) (*svc.InferenceService, error) {
	d.failed = nil
	ctx, d.stop = context.WithCancelCause(ctx)
	defer d.stop(nil)
	if err := d.giveLease(ctx); err != nil {
		return nil, err
	}
	service, err := d.tool.client.InferenceServices.Deploy(ctx, d.req, &d.opts)
	if err != nil && d.failed != nil {
		err = d.failed
	}
	return service, err
}

// prepare waits for the deletion of an endpoint that is being deleted, checks that what has to be created fits, and
// carries out --replace.
func (d *deployment) prepare(ctx context.Context) error {
	err := d.awaitDeletion(ctx)
	switch {
	case err != nil:
		return err
	case d.earlier == nil:
		return d.fits(ctx)
	case d.spec.replace:
		return d.replace(ctx)
	}
	return nil
}

// replace deletes the endpoint of the key if it is unavailable or stopped.
func (d *deployment) replace(ctx context.Context) error {
	t := d.tool
	if d.earlier.ServiceID == "" {
		return nil
	}
	s, err := t.client.InferenceServices.Get(ctx, d.earlier.ServiceID)
	if isNotFound(err) {
		return nil // Deploy finds out whether it is deleted
	}
	if err != nil {
		return err
	}
	if !useless(s) {
		return nil
	}
	if err := cmp.Or(t.writable(ctx), d.replaceable(ctx, s.ResourceMetadata)); err != nil {
		return err
	}
	d.before.Instances = int(s.ResourceMetadata.TargetInstanceNumber)
	t.talk.say("%s is %s: deleting it", s.ServiceID, s.Status)
	t.talk.setDeleting(true)
	defer t.talk.setDeleting(false)
	if err := t.deleteAndWait(ctx, s.ServiceID, *d.earlier); err != nil {
		return err
	}
	d.earlier = nil
	t.note(func(f *facts) { f.ID, f.Running, f.Replaced = "", false, s.ServiceID })
	return nil
}

// replaceable returns an error if no other endpoint can be created in place of that of the key. own is of that
// endpoint: its delete gives its instances back.
func (d *deployment) replaceable(ctx context.Context, own svc.ResourceMetadata) error {
	if d.opts.PickFlavor == nil {
		given := 0
		if own.FlavorID == d.req.ResourceMetadata.FlavorID {
			given = int(own.TargetInstanceNumber)
		}
		return d.flavorExists(ctx, given)
	}
	flavors, err := d.tool.fitting(ctx, d.spec, d.req)
	if err != nil {
		return err
	}
	for i := range flavors {
		if flavors[i].FlavorID == own.FlavorID {
			flavors[i].AvailableNum += own.TargetInstanceNumber
		}
	}
	_, err = d.tool.firstInStock(flavors, d.req.ResourceMetadata.TargetInstanceNumber, nil)
	return err
}

// created is the function for [svc.DeployOptions.OnCreate].
func (d *deployment) created(ctx context.Context, id string) error {
	t := d.tool
	t.note(func(f *facts) {
		f.ID, f.Running = id, true
		f.Created, f.Resumed = f.Posted, !f.Posted
	})
	var err error
	if t.facts().Created {
		t.talk.say("created %s, which is billed from now on", printable(id))
		d.tellNewLease(ctx, id)
		d.warnOfScaled("has")
		err = d.announce(ctx, id)
	} else {
		err = d.goesOn(ctx, id)
	}
	if err == nil && !d.wait && t.facts().Created {
		err = errNoWait
	}
	return err
}

// onPoll is the function for [svc.WaitOptions.OnPoll]. An endpoint of an earlier command may have
// been deleted elsewhere: Deploy finds out, and then creates another one.
func (d *deployment) onPoll(p svc.Poll) {
	resumed := d.tool.facts().Resumed
	if resumed {
		d.tellInstances(p.Service)
	}
	if resumed && !d.wait && p.Err == nil {
		d.stop(errNoWait) // it exists
	}
	if !isNotFound(p.Err) || !resumed {
		d.tool.polled(p)
	} else if !d.checking {
		d.checking = true
		if d.failed = d.tool.writable(d.tool.ctx); d.failed != nil { // it could not be recorded that it is deleted
			d.stop(d.failed)
			return
		}
		d.tool.talk.say("checking whether %s is deleted (up to a minute)", printable(p.ID))
	}
}

// announce writes the ID of a new endpoint to standard output. If the form is a document, the ID
// is in the document. A write that fails is reported at the end, for every form: it is no reason to
// delete the endpoint.
func (t *tool) announce(ctx context.Context, id string) error {
	if t.flags.output.value != "table" && t.flags.output.value != "name" {
		return nil
	}
	if err := t.stdout.writeUntil(ctx, printable(id)+"\n"); !isA[unwritable](err) {
		return err
	}
	return nil
}

// onFailure decides whether the endpoint is deleted.
func (d *deployment) onFailure(ctx context.Context, failed *svc.DeployError) bool {
	if failed.Resumed || d.spec.keep || d.noWait(failed) {
		return false
	}
	more := "Ctrl-C twice"
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		more = "another Ctrl-C"
	}
	d.tool.talk.say("deleting %s (%s may leave it running)", printable(failed.ServiceID), more)
	return true
}

// noWait reports whether a deployment ended only because of --wait=false. It is false if the
// ledger could not record the endpoint.
func (d *deployment) noWait(err error) bool {
	return errors.Is(err, errNoWait) && !isA[*ledger.Error](err)
}

// judge records whether an endpoint may be running after Deploy has returned err.
func (d *deployment) judge(ctx context.Context, service *svc.InferenceService, err error) error {
	t := d.tool
	failed, isDeploy := errors.AsType[*svc.DeployError](err)
	if d.noWait(err) {
		err = nil
	}
	unrecorded := t.isUnrecorded(ctx, err)
	t.note(func(f *facts) {
		f.Pending, f.Unrecorded = false, unrecorded
		switch {
		case err == nil:
			f.Running = true
		case isDeploy:
			f.Deleted = failed.Cleanup == svc.CleanupDeleted
			f.Running = !f.Deleted && (service == nil || mayRun(service))
		case f.Posted:
			f.Running = errors.Is(err, svc.ErrOutcomeUnknown) // a create was sent, so no earlier endpoint of the key was running
		}
	})
	if isDeploy && failed.Cleanup == svc.CleanupAccepted {
		t.tellMarked(ctx, failed.ServiceID)
	}
	if unknown, ok := errors.AsType[*svc.OutcomeUnknownError](err); ok {
		t.noteDoubt(ctx, unknown)
	}
	return err
}

// isUnrecorded reports whether the ledger could not record the outcome of the create, and the entry is still without one:
// what comes after the create may have recorded it.
func (t *tool) isUnrecorded(ctx context.Context, err error) bool {
	failed, ok := errors.AsType[*ledger.Error](err)
	if !ok || failed.Op != "append created" && failed.Op != "append refused" {
		return false
	}
	entries := t.entriesBriefly(context.WithoutCancel(ctx))
	i := slices.IndexFunc(entries, func(e ledger.Entry) bool { return e.Intent == failed.Intent })
	return i < 0 || entries[i].Open() && entries[i].State != ledger.Created
}

// endCreate records that the outcome of a create is not known, for a program that ends at once: nobody will record
// another outcome. It reports whether the ledger has one already, which it notes. It takes two seconds at most.
func (t *tool) endCreate() (known bool) {
	t.mu.Lock()
	f, journal := t.known, t.journal
	t.mu.Unlock()
	if journal == nil || f.Intent == "" || !f.Pending || f.Created || f.Resumed {
		return false
	}
	ctx, cancel := briefly(t.ctx)
	defer cancel()
	look := func() {
		_ = journal.Change(ctx, "append unknown", ledger.Entry{Key: f.Entry, Intent: f.Intent}, func(now ledger.Entry) (r ledger.Record, err error) {
			known = now.State == ledger.Created || now.State == ledger.Refused
			switch now.State {
			case ledger.Intended:
				r.Event = ledger.Unknown
			case ledger.Created:
				t.note(func(f *facts) { f.ID, f.Created, f.Running = now.ServiceID, true, true })
			case ledger.Refused:
				t.note(func(f *facts) { f.Pending = false })
			}
			return r, nil
		})
	}
	if look(); !known { // the command may record at the same moment that it has sent nothing
		time.Sleep(100 * time.Millisecond)
		look()
	}
	return known
}

// noteDoubt records the entry of a create in doubt, for the advice.
func (t *tool) noteDoubt(ctx context.Context, unknown *svc.OutcomeUnknownError) {
	t.note(func(f *facts) { f.Name = cmp.Or(unknown.Name, f.Name) })
	if unknown.Intent == "" {
		return
	}
	for _, e := range t.entriesBriefly(context.WithoutCancel(ctx)) {
		if e.Intent == unknown.Intent {
			t.note(func(f *facts) { f.SettleBy = e.SettleBy.Add(time.Minute) })
		}
	}
}

func (d *deployment) view(s *svc.InferenceService) view {
	v := &deployView{Request: json.RawMessage("null")}
	if sv, ok := d.tool.service(s).(*serviceView); ok {
		v.serviceView = *sv
	}
	return v
}

// know adds whether this command has created the endpoint, and what is known without a record.
func (v *deployView) know(f facts, err error, shown func(*svc.InferenceService) *serviceView) {
	if v.Created = new(f.Created); isA[*svc.OutcomeUnknownError](err) && (f.Posted || f.Pending) {
		v.Created = nil
	}
	v.Replaced = f.Replaced
	v.serviceView.know(f, err, shown)
	if v.Deleted = v.Deleted || f.Deleted; v.Deleted { // the record is of an earlier time
		v.URL = ""
	}
}

// deployLeft returns what may be running after a deployment that failed.
func (t *tool) deployLeft(f facts, replaced bool) []string {
	switch {
	case f.Created && f.Deleting && f.Key != "":
		return append([]string{"The same command waits until it is deleted, and creates another one."}, t.stillRuns(f)...)
	case f.Created:
		return t.stillRuns(f)
	case f.ID == "":
		return []string{fmt.Sprintf("Nothing was created. An endpoint of the key %s may be running and billed. To see it: %s", f.Key, t.cmd("ls"))}
	}
	if f.Deleting || t.endpoint(f.ID).accepted {
		return []string{
			fmt.Sprintf("Nothing was created: %s of the key %s is not deleted yet. It may be running and billed.", f.ID, f.Key),
			fmt.Sprintf("To delete it once more%s: %s, and deploy again. To keep it, if it still runs five minutes after the delete: %s, and deploy again", f.withItsToken(), t.cmd("delete --key %s", f.Key), t.cmd("extend %s 8h", f.Key)),
		}
	}
	lines := []string{"Nothing was created: the endpoint of the key " + f.Key + " is " + f.ID + ", of an earlier command."}
	if !replaced && len(f.Hidden) == 0 && !f.Unwritten && (f.Seen == nil || f.Seen.ServiceID != f.ID || useless(f.Seen)) {
		lines = append(lines, "If it is unavailable or stopped: the same command with --replace deletes it and creates a new one.")
	}
	if !f.Resumed { // the request was refused, which says nothing about the endpoint
		return append(lines, fmt.Sprintf("It goes on as before, and may be running and billed. To see it: %s", t.cmd("get --key %s", f.Key)))
	}
	return append(lines, fmt.Sprintf("%s may be running and billed. To delete it%s: %s", f.ID, f.withItsToken(), t.cmd("delete --key %s", f.Key)))
}

// clock returns the local time of day, or the whole time if it is not of today.
func clock(at time.Time) string {
	if time.Since(at).Abs() > 12*time.Hour {
		return stamp(at)
	}
	return at.Local().Format("15:04:05 MST")
}
