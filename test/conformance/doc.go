// Package conformance tests the client and the fake against the published
// description of the service, api/openapi.yaml. It is a separate module, so that
// its OpenAPI validator is not a dependency of the library.
//
// Its tests check that
//
//   - the description is valid, and its examples fit their schemas;
//   - every request that a method of the client sends is one that it allows;
//   - every response of package svctest, failures included, is one that it allows;
//   - the records in its examples decode into the right values, and encode to
//     the same JSON again.
package conformance
