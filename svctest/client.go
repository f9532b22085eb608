package svctest

import "example.com/svc"

// Client creates a client of package svc for this server. It sets the base address,
// inference address, token and HTTP client of the new client. opts can change all of
// them except the base address. Client panics if opts are not valid.
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
