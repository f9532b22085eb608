// Package svctest is a fake of the Inference Service for tests. It keeps state
// as the service does. It runs in the process of the test, needs no account and no
// network, and costs nothing. Use it to test deploy scripts, clients and error
// handling.
//
//	func TestDeployScript(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) { // in a bubble, 20 minutes take no time
//			srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Minute))
//			svctest.NoLeaks(t, srv) // fails the test if an endpoint still runs when it ends
//			srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(3))
//
//			err := deployAndDelete(t.Context(), srv.Client()) // the code under test
//
//			require.NoError(t, err)
//			require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints)) // created once
//			require.Less(t, srv.Bill().Total, 50*time.Minute)                     // 2 instances for about 20 min
//		})
//	}
//
// [NewInMemory] has no sockets, so it works inside a testing/synctest bubble.
// Create the server inside the bubble, so that it uses the bubble's clock.
// [NewServer] listens on a loopback port, for programs that are given an address
// and a token: see [Server.URL] and [Server.Token]. In all other ways the two servers
// behave the same.
//
// # What it does
//
// An endpoint is "initializing" until the deploy time has passed
// ([WithDeployTime]), and then "available". Each change of the number of
// instances starts a new deployment. An endpoint with zero instances is "stopped".
// [WithStatusPath], [Server.ScriptStatus] and [Server.SetStatus] set other
// statuses, such as "unavailable" for a failed deployment. Each flavor has a stock,
// and endpoints take their instances from it. Legacy jobs succeed after the job time
// ([WithJobTime]). [WithJobsRetired] makes the server refuse every request about
// jobs. Presigned URLs of files lead to a storage that checks signature, expiry,
// length and headers as object storage does.
//
// [Server.Fault] sets up what goes wrong, by method and route: error responses,
// outages, delays, connections that are cut or go dead before or after a request
// took effect, and bodies that are cut off.
//
// More that a program should survive can be set up: slow creates ([WithCreateTime]), images that cannot
// be pulled ([WithImagePullError]), names that the service rewrites ([WithNameRewrite]), a clock that is
// wrong ([WithClockOffset]), a cache that serves old responses ([WithCache]), the token of another
// account ([WithForeignToken]), and a router that does not find the service ([RouterNotFound]).
// [Server.SetField] and [Server.Handle] add fields and routes that the fake does not have.
// [WithInferenceHandler] and [WithChat] set the responses of endpoints.
//
// A test checks the result with [NoLeaks], [Server.Bill], [Server.Requests],
// [Server.Endpoints], [Server.Files] and [Server.Jobs]. [WithRequestHook] reports each request as it comes. IDs are the same in
// every run: svc-1, file-1, job-1, req-1.
//
// The fake refuses every request that is not documented, so that a test finds invalid requests. It
// responds with 401 if the token is missing, 404 for an unknown path, 405 for a wrong method, 415 for a
// wrong Content-Type, 400 for malformed JSON and for a query or a body that does not belong to the
// operation, and 422 for unknown or wrong fields. The body of such a response has the fields code,
// message and request_id.
//
// # What it assumes
//
// The service leaves a few things undocumented. The fake has to choose, and a
// program should not rely on these choices:
//
//   - The status of a success is 200. The body of the response to the deletion of
//     a file or a job is {}.
//   - A create or update that asks for more instances than are in stock is refused
//     with 409.
//   - The response to an update has the status "initializing", even if the update sets zero instances.
//     In that case the next read returns "stopped". An update that changes nothing leaves the status as
//     it is.
//   - A create needs only a name. The endpoint has one instance unless the request
//     sets another number.
//   - Job lists are in the order of creation, with ten jobs per page by default.
//   - The presigned URL of a registration allows PUT only. The presigned URL from
//     /v1/files/{file_id}/presigned_url allows GET, HEAD and PUT.
package svctest
