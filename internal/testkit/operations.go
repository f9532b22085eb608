package testkit

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"example.com/svc"
)

// Operation is one of the calls, for what they have in common.
type Operation struct {
	Name   string
	Method string
	Path   string
	OK     Reply // that makes it succeed
	Do     func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error
}

// One operation of each kind, and all of them.
var (
	OpGet = Operation{"get", "GET", "/v1/inference-service/svc-1", Reply{Status: 200, Body: ServiceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Get(ctx, "svc-1", opts...)
			return err
		}}
	OpUpdate = Operation{"update", "PUT", "/v1/inference-service/svc-1", Reply{Status: 200, Body: ServiceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Scale(ctx, "svc-1", 2, opts...)
			return err
		}}
	OpDelete = Operation{"delete", "DELETE", "/v1/inference-service/svc-1", Reply{Status: 200},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			return c.InferenceServices.Delete(ctx, "svc-1", opts...)
		}}
	OpCreate = Operation{"create", "POST", "/v1/inference-service", Reply{Status: 201, Body: ServiceJSON},
		func(ctx context.Context, c *svc.Client, opts ...svc.RequestOption) error {
			_, err := c.InferenceServices.Create(ctx, svc.CreateInferenceServiceRequest{Name: "demo"}, opts...)
			return err
		}}
	Operations = []Operation{OpGet, OpUpdate, OpDelete, OpCreate}
)

// What becomes of a call after a fault.
const (
	TryAgain  = "again"   // it is tried once more
	GiveUp    = "final"   // its error is returned
	LeaveOpen = "unknown" // its outcome is not known
)

// Fault is what may become of an exchange, and what a call makes of that.
type Fault struct {
	Name       string
	Reply      Reply
	Repeatable string // of GET, PUT and DELETE
	Create     string // of POST
}

// Faults are those of the network, and every status that is no success.
func Faults() []Fault {
	list := []Fault{
		{"connection refused", Refused, TryAgain, TryAgain},
		{"unknown host", Reply{Err: &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}, Unsent: true}, TryAgain, TryAgain},
		{"handshake breaks off", Reply{Err: io.EOF, Unsent: true}, TryAgain, LeaveOpen}, // a transport made by hand proves nothing
		{"connection reset", Lost, TryAgain, LeaveOpen},
		{"connection closed", Reply{Err: io.EOF}, TryAgain, LeaveOpen},
		{"malformed answer", Reply{Err: errors.New("net/http: HTTP/1.x transport connection broken: malformed HTTP status code")}, TryAgain, LeaveOpen},
		{"no answer", Reply{After: Ages}, TryAgain, LeaveOpen},
		{"silence within the answer", Reply{Status: 200, Body: `{"service_id":`, Stall: true}, TryAgain, LeaveOpen},
		{"answer cut", CutShort, TryAgain, LeaveOpen},
		{"connection garbled", Reply{Err: &net.OpError{Op: "remote error", Err: errors.New("tls: bad record MAC")}}, TryAgain, LeaveOpen},
		{"bad certificate", Reply{Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, Unsent: true}, GiveUp, GiveUp},
		{"no TLS at the other end", Reply{Err: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, Unsent: true}, GiveUp, LeaveOpen},
		{"handshake refused", Reply{Err: &net.OpError{Op: "remote error", Err: errors.New("tls: unrecognized name")}, Unsent: true}, GiveUp, LeaveOpen},
	}
	for code := 300; code < 600; code++ {
		f := Fault{http.StatusText(code), Status(code), GiveUp, GiveUp}
		switch {
		case code == 429:
			f.Repeatable, f.Create = TryAgain, TryAgain
		case code == 408:
			f.Create = LeaveOpen
		case code == 500, code == 502, code == 503, code == 504:
			f.Repeatable, f.Create = TryAgain, LeaveOpen
		case code >= 500 && code != 501 && code != 505, code < 400 && code != 307 && code != 308:
			f.Create = LeaveOpen
		case f.Name == "" && code%10 != 9:
			continue // a few that nobody has defined will do
		}
		f.Name = fmt.Sprintf("%d %s", code, f.Name)
		list = append(list, f)
	}
	return list
}
