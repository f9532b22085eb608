package svctest

import "example.com/svc"

// Client makes a client of package svc that is pointed at the service: base
// address, inference address, token and HTTP client are set, and opts can
// override them. It panics if opts are not valid.
func (s *Server) Client(opts ...svc.Option) *svc.Client {
	all := append([]svc.Option{
		svc.WithToken(s.Token()),
		svc.WithInferenceURL(s.InferenceURL()),
		svc.WithHTTPClient(s.HTTPClient()),
	}, opts...)
	client, err := svc.NewClient(s.URL(), all...)
	if err != nil {
		panic("svctest: " + err.Error())
	}
	return client
}
