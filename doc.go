// Package svc is a client for the Inference Service API, which rents GPU
// capacity: it lists GPU flavors, runs container images on them as dedicated
// endpoints, keeps files, and reads the records of the retired API for video and
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
// A [Client] is safe for concurrent use. Every call takes a ctx. When ctx ends, the call
// ends. A call as a whole has no other deadline; only a create with a ledger ([WithLedger])
// also ends after 5 minutes. Three steps continue for a limited time after ctx has ended, so
// that no created record is lost or left behind:
//
//   - Deploy waits up to 10 s for the response to a create that was sent. Upload does the
//     same for its file record if DeleteOnFailure is set.
//   - A cleanup (DeleteOnFailure) takes up to 30 s.
//   - The ledger takes up to 5 s to record an outcome. It may record a deletion for as long as ctx
//     allows, at most a minute, and for 5 s after the end of ctx.
//
// # Errors
//
// [errors.Is] finds the sentinel errors of this package ([ErrNotFound], [ErrRateLimited],
// [ErrOutcomeUnknown], …), context errors and network errors. [errors.As] gives the
// details of an error:
//
//   - [Error]: the service responded with a status other than success.
//   - [TransportError]: no complete response came, or the call ended before its next attempt.
//   - [OutcomeUnknownError]: a create was sent, and whether it took effect is not known. An instance may
//     exist and be billed, and the service has no call that lists endpoints. Do not repeat such a create
//     before you know its outcome.
//   - [DecodeError]: the service reported success, but sent something other than the
//     promised record.
//   - [ValidationError]: the request was not sent. The error lists what is wrong with it.
//   - [WaitError], [DeployError], [UploadError], [DownloadError], [PageError]: one of
//     several steps failed. The error holds the IDs of the records that exist, and what is
//     known about them.
//   - [ledger.Error]: the ledger could not be read or written, or it did not allow the call.
//
// An error message is one line. It never contains a token or the query of a presigned URL. It quotes at
// most one line of a response body, such as the message of the service. If an error of this package
// wraps an error of your code, secrets in the message of your error are removed as well. [errors.Is]
// still finds your error. [errors.As] finds those errors in it that show no secret.
//
// # What is retried
//
// A call has up to 5 attempts. The delay between them is random, between 500 ms and a bound
// that is 1 s at first and doubles up to 30 s; see [RetryPolicy]. The delay of a Retry-After
// header is respected. If that delay is longer than 30 s, or longer than ctx allows, the call
// ends at once with the last response.
//
//	                      before sending   response lost or late   429       500 502 503 504   other
//	GET, PUT, DELETE      retried          retried                 retried   retried           not
//	POST (create)         retried          outcome unknown         retried   outcome unknown   not
//
// "Before sending" means that no byte of the body was sent. If the response to a delete is lost and the
// repeated delete gets "not found", the delete has succeeded. The exception is an endpoint that this
// client created less than 30 s ago. A budget limits the retries of all calls of a client together, so
// that many callers do not make an outage worse ([RetryPolicy.Budget]). Uploads to a presigned URL
// follow the row of PUT. Downloads follow the row of GET, and continue where they were cut off.
//
// # Waits
//
// [InferenceServiceClient.WaitUntilAvailable] and the other waits poll: they read the record
// repeatedly, with a delay that grows. The last poll comes shortly before the deadline of ctx.
// Each poll is one attempt. A status that cannot lead to the wanted status ends the wait at
// once. Which failed polls end it depends on whether the client has had a response of the
// service: see [InferenceServiceClient.WaitUntilAvailable]. Every failed wait returns a
// [WaitError] with the history of the statuses.
//
// This package reports an endpoint as deleted only with evidence. A single "not found" proves
// nothing: gateways, caches and the tokens of other accounts cause it as well. For an ID that
// is not known for the token that is sent, "not found" is an error and never success: see
// [InferenceServiceClient.WaitUntilDeleted].
//
// The deletes of DeleteAndWait, of a cleanup and of [Ledger.Reap] do not wait for the limiter of
// [WithRateLimiter], since they end the billing.
//
// # Ledger
//
// With [WithLedger], the client records each create before it is sent, and its outcome after it.
// So a process that is killed loses no endpoint: see [Ledger]. Leases count by the service's clock,
// from the Date header of the response to the create. Nothing but [Ledger.Reap] enforces them.
//
// # Logs and metrics
//
// [WithLogger] logs each exchange. At level warn it logs what needs attention: each call whose outcome
// is not known, each cleanup that did not prove the deletion, and each update of the ledger that failed
// without an error of the call. [WithCallHook] is called for each call, with its outcome: done, failed
// or unknown. [WithAttemptHook] is called for each exchange, and [WithWaitHook] for each wait and
// cleanup. Module example.com/svc/svcotel makes traces and metrics of them.
//
// # Files
//
// [FileClient.Upload] registers a file and sends its contents to a presigned URL. It uses
// constant memory for files of any size. [FileClient.Download] and [FileClient.DownloadURLFile]
// read contents back. The token is never sent to storage. A [SignedURL] u prints without its
// query; string(u) is the whole URL.
//
// # What the service does not document
//
// Statuses, regions and similar values are typed strings, since the service may add new values. An
// unknown value is decoded, printed and encoded unchanged. For a field, parameter, header or operation
// that this package does not have, use [WithBodyField], [WithQuery], [WithHeader] or [Client.Do].
// [WithResponse] shows a response as it was received. The README lists what this package assumes.
//
// # Testing
//
// Package [example.com/svc/svctest] is a stateful fake of the whole service. It runs on a
// loopback port or in memory. Inside a [testing/synctest] bubble a deployment of twenty
// minutes takes no time.
package svc
