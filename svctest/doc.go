// Package svctest is the Inference Service in one process: a stateful fake to
// test deploy scripts, clients and error handling against, without a token,
// without a network and without a bill.
//
//	func TestDeployScript(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) { // 20 minutes take no time in here
//			srv := svctest.NewInMemory(svctest.WithDeployTime(20 * time.Minute))
//			svctest.NoLeaks(t, srv) // the test fails if an endpoint still runs at its end
//			srv.Fault("GET", svctest.RouteEndpoint, svctest.ServiceUnavailable(3)) // and the service is shaky
//
//			err := deployAndDelete(t.Context(), srv.Client()) // the code under test
//
//			require.NoError(t, err)
//			require.Equal(t, 1, srv.RequestCount("POST", svctest.RouteEndpoints)) // created once
//			require.Less(t, srv.Bill().Total, 50*time.Minute)                     // two instances
//		})
//	}
//
// [NewInMemory] has no sockets, so it works inside a testing/synctest bubble
// (make it in there, so that it sees the bubble's clock). [NewServer] listens
// on a loopback port, for programs that get an address and a token: see
// [Server.URL] and [Server.Token]. Both are the same service.
//
// # What it does
//
// Endpoints go from "initializing" to "available" on the clock
// ([WithDeployTime]), again after each scaling, and are "stopped" with zero
// instances. [WithStatusPath] and [Server.ScriptStatus] dictate other courses,
// such as a failed deployment. Flavors have a stock that endpoints take from.
// Legacy jobs succeed after [WithJobTime], or are gone with [WithJobsRetired].
// Files have presigned URLs, which lead to a storage that is as strict about
// signature, expiry, length and headers as object storage is.
//
// [Server.Fault] queues what goes wrong, by route: answers, outages, delays, lost
// connections before or after a request took effect, cut bodies. Afterwards
// [Server.Requests], [Server.Endpoints], [Server.Files] and the like tell what
// has happened. Ids are the same in every run: svc-1, file-1, job-1, req-1.
//
// A request that the service does not describe is refused, so that the fake
// hides no bug: 401 without the token, 404 for an unknown path, 405, 415, 400
// for malformed JSON, a query or a body where none belongs, and 422 for
// unknown or wrong fields. Failures are {"code", "message", "request_id"}.
//
// # What it assumes
//
// The service leaves some things undocumented. The fake's choices, which a
// program should not rely on:
//
//   - Success is 200. A deleted file, like a deleted job, is answered with {}.
//   - Too little stock refuses a create or an update with 409.
//   - An update is answered "initializing", also one to zero instances; the next
//     read then says "stopped". One that changes nothing changes no status.
//   - An endpoint needs only a name; it has one instance unless it says otherwise.
//   - Job lists are in the order of creation, ten to a page.
//   - The link of a registration is for PUT only; the one from
//     /v1/files/{file_id}/presigned_url is for GET, HEAD and PUT.
package svctest
