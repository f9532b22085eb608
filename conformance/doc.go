// Package conformance holds the client and the fake to the published
// description of the service, api/openapi.yaml. It is a module of its own, so
// that the validator it takes for that stays out of the module graph of the
// library's users.
//
// Its tests check that
//
//   - the description is valid, and its examples fit their schemas;
//   - every request that a method of the client sends is one that it allows;
//   - every response of package svctest, failures included, is one that it allows;
//   - the records in its examples decode into the right values, and encode to
//     the same JSON again.
package conformance
