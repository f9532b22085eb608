package svctest

import "example.com/svc"

// Client creates a client of package svc for this server. Its base address,
// inference address, token and HTTP client are set; opts can change all but the
// first. It panics if opts are not valid.
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
