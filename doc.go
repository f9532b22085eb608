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
// Every call takes a ctx. It ends the call at any point, and it is the only deadline
// of a call as a whole. Two things continue after it for a limited time, because they
// decide about money: Deploy waits up to 10 s for the response to a create that was sent,
// and a cleanup (DeleteOnFailure) has 30 s. A [Client] is safe for concurrent use.
//
// # Errors
//
// [errors.Is] answers questions, with the sentinels of this package ([ErrNotFound],
// [ErrRateLimited], [ErrOutcomeUnknown], …), with context errors and with those of
// the network. [errors.As] gives the facts:
//
//   - [Error]: the service responded with a status other than success.
//   - [TransportError]: no response came.
//   - [OutcomeUnknownError]: a create was sent, and whether it took effect is not
//     known. An instance may exist and be billed, and the service has no call that
//     lists endpoints. Never repeat such a create before you know.
//   - [DecodeError]: the service reported success, but sent something other than the
//     promised record.
//   - [ValidationError]: the request was not sent. The error lists what is wrong with it.
//   - [WaitError], [DeployError], [UploadError], [DownloadError], [PageError]: one of
//     several steps failed. They hold the IDs of what exists, and what is known about it.
//
// The text of an error is one line. It holds no token and no query of a presigned URL, and
// of a response body at most one line, such as the service's own message. This is also
// true of an error of yours that is wrapped in it: [errors.Is] still finds that error, and
// [errors.As] reaches the parts of it that show no secret.
//
// # What is retried
//
// A call has up to 5 attempts. The delay between them is random, between 500 ms and a bound
// that is 1 s at first and doubles up to 30 s; see [RetryPolicy]. A Retry-After is respected
// unless it is longer than that, or longer than ctx allows. Then the call ends at once with
// the last response.
//
//	                      before sending   response lost or late   429       500 502 503 504   other
//	GET, PUT, DELETE      retried          retried                 retried   retried           not
//	POST (create)         retried          outcome unknown         retried   outcome unknown   not
//
// If the response to a delete is lost and the repeated delete gets "not found", the delete
// has succeeded. A budget limits all retries of a client together, so that many callers do
// not multiply the load of an outage ([RetryPolicy.Budget]). Uploads to a presigned URL
// follow the row of PUT. Downloads follow the row of GET, and continue where they were cut off.
//
// # Waits
//
// [InferenceServiceClient.WaitUntilAvailable] and the other waits read the record, then
// sleep for a time that grows, and read it once more shortly before the deadline of ctx. Each
// poll is one attempt. Errors that may pass are tolerated. A status that cannot lead to the
// wanted one ends the wait at once. Every failed wait is a [WaitError] with the history of
// the statuses.
//
// An endpoint is called deleted only with evidence: see
// [InferenceServiceClient.WaitUntilDeleted].
//
// # Files
//
// [FileClient.Upload] registers a file and puts its contents to a presigned URL,
// with constant memory at any size. [FileClient.Download] and [Client.DownloadFile]
// bring contents back. The token is never sent to storage. A [SignedURL] prints
// without its query: string(u) is the URL itself.
//
// # What the service does not document
//
// Statuses and other open lists are typed strings: a value that this package
// does not know decodes, prints and encodes unchanged. [WithBodyField],
// [WithQuery], [WithHeader] and [Client.Do] reach what the types do not have, and
// [WithResponse] shows a response as it was received. The README lists what this
// package assumes.
//
// # Testing
//
// Package [example.com/svc/svctest] is a stateful fake of the whole service, on a
// loopback port or in memory. Inside a [testing/synctest] bubble a deployment of
// twenty minutes takes no time.
package svc
