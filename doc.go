// Package svc is a client for the Inference Service API, which rents GPU
// capacity: it lists GPU flavors, runs container images on them as dedicated
// endpoints, keeps files, and reads the records of a retired API for video and
// image jobs.
//
// # A first program
//
//	client, err := svc.NewClient("https://api.example.com", svc.WithToken(token))
//	if err != nil {
//		return err
//	}
//	flavors, err := client.Flavors.Find(ctx, svc.FlavorQuery{MinAvailable: 1}) // the cheapest first
//	if err != nil {
//		return err
//	}
//	if len(flavors) == 0 {
//		return errors.New("nothing in stock")
//	}
//	service, err := client.InferenceServices.Deploy(ctx, svc.CreateInferenceServiceRequest{
//		Name:             "demo",
//		ResourceMetadata: svc.CreateResourceMetadata{FlavorID: flavors[0].FlavorID, TargetInstanceNumber: 1},
//		DeployMetadata:   svc.CreateDeployMetadata{ImageURL: "registry.example/app:1", Port: 8000, GPUNum: 1},
//	}, &svc.DeployOptions{DeleteOnFailure: true})
//
// Every call takes a ctx, which ends it at any point, and is the only deadline
// of a call as a whole. Two things go on after it for a bounded time, since money
// hangs on them: Deploy awaits the answer to a create that is out, for 10 s, and a
// clean-up that was asked for deletes, for 30 s. A [Client] is safe for concurrent use.
//
// # Errors
//
// [errors.Is] answers questions, with the sentinels of this package ([ErrNotFound],
// [ErrRateLimited], [ErrOutcomeUnknown], …), with context errors and with those of
// the network; [errors.As] gives the facts:
//
//   - [Error]: the service answered with something other than success.
//   - [TransportError]: no answer came.
//   - [OutcomeUnknownError]: a create was sent and nobody knows whether it took
//     effect. An instance may exist and be billed, and the service has no call that
//     lists endpoints: never repeat such a create before you know.
//   - [DecodeError]: the service reported success with something other than the
//     promised record.
//   - [ValidationError]: the request was not sent, and this is what is wrong with it.
//   - [WaitError], [DeployError], [UploadError], [DownloadError], [PageError]: a step
//     of several failed; they hold the ids of what exists, and what is known about it.
//
// The text of an error is one line without a token and without the query of a
// signed link. Of a body it shows one line at most, such as the service's own message.
// This holds too for an error of yours that is wrapped in it: [errors.Is] still finds
// that, and [errors.As] reaches what of it shows no secret.
//
// # What is retried
//
// Up to 5 attempts, with a delay drawn between 500 ms and a bound that is 1 s at
// first and doubles up to 30 s; see [RetryPolicy]. A Retry-After is heeded as long as it is no longer
// than that and than ctx allows; otherwise the call ends at once with the answer
// in hand.
//
//	                      before sending   answer lost or late   429       500 502 503 504   other
//	GET, PUT, DELETE      retried          retried               retried   retried           not
//	POST (create)         retried          outcome unknown       retried   outcome unknown   not
//
// A delete that finds nothing after a lost answer has succeeded. A client's
// retries together are limited by a budget that successes fill up again, so that
// many callers do not multiply the load of an outage. Uploads to a link follow the
// row of PUT; downloads follow the row of GET, and resume where they broke off.
//
// # Waits
//
// [InferenceServiceClient.WaitUntilAvailable] and its kin look first, then sleep
// for a time that grows, and take a last look before the deadline of ctx. They live
// through errors that may pass, so that [RetryPolicy] does not apply to a look, and end
// at once on a status that cannot lead to the wanted one. Every failed wait is a
// [WaitError] with the history of what was seen.
//
// # Files
//
// [FileClient.Upload] registers a file and puts its contents to a presigned link,
// with constant memory at any size; [FileClient.Download] and [Client.DownloadFile]
// bring contents back. The token is never sent to storage. A [SignedURL] prints
// without its query: string(u) is the link itself.
//
// # What the service does not document
//
// Statuses and other open lists are typed strings: a value that this package
// does not know decodes, prints and is encoded again as it was. [WithBodyField],
// [WithQuery], [WithHeader] and [Client.Do] reach what the types do not have, and
// [WithResponse] shows an answer as it was received. The README lists what this
// package assumes.
//
// # Testing
//
// Package [example.com/svc/svctest] is a stateful fake of the whole service, on a
// loopback port or in memory; inside a [testing/synctest] bubble a deployment of
// twenty minutes takes no time.
package svc
