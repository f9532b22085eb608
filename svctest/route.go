package svctest

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Route templates of the service, for [Server.Fault] and [Server.RequestCount].
const (
	RouteFlavors     = "/v1/inference-service/flavor"
	RouteEndpoints   = "/v1/inference-service"
	RouteEndpoint    = "/v1/inference-service/{service_id}"
	RouteVideoJobs   = "/v1/svc-video-job"
	RouteVideoJob    = "/v1/svc-video-job/{job_id}"
	RouteImageJobs   = "/v1/svc-image-job"
	RouteImageJob    = "/v1/svc-image-job/{job_id}"
	RoutePublicFiles = "/v1/public-files"
	RouteFiles       = "/v1/files"
	RouteFile        = "/v1/files/{file_id}"
	RouteFileLink    = "/v1/files/{file_id}/presigned_url"

	// RouteStorage is the route of presigned URLs: uploads, downloads and media.
	RouteStorage = "/storage/{key}"
	// RouteInference is the address of a running endpoint. Paths below it also match.
	RouteInference = "/inference-api/v1/inference_service/{service_id}"
	// RouteAny matches every request, including those to an unknown path.
	RouteAny = "*"
)

// route is one path of the service with its methods.
type route struct {
	template string
	segments []string
	methods  map[string]operation
	public   bool                                          // requests need no token
	jobs     bool                                          // route of the legacy job API, which WithJobsRetired turns off
	prefix   bool                                          // paths below this route match as well
	serve    func(*Server, http.ResponseWriter, *exchange) // serves a route that is not JSON; nil for a JSON route
}

// operation is one method of a JSON route. run is called while s.mu is locked: it must
// not wait, and must not keep the *call after it returns.
type operation struct {
	run   func(*Server, *call) response
	body  bool     // the request has a JSON body
	query []string // names of the query parameters that the operation accepts
}

var pageQuery = []string{"page", "page_size"}

func jobsMethods(kind jobKind) map[string]operation {
	return map[string]operation{
		"POST": {run: kind.create, body: true},
		"GET":  {run: kind.list, query: pageQuery},
	}
}

func jobMethods(kind jobKind) map[string]operation {
	return map[string]operation{
		"GET":    {run: kind.get},
		"DELETE": {run: kind.delete},
	}
}

// routes are in the order in which match tries them: fixed segments before parameters.
var routes = []*route{
	{template: RouteFlavors, methods: map[string]operation{
		"GET": {run: (*Server).listFlavors},
	}},
	{template: RouteEndpoints, methods: map[string]operation{
		"POST": {run: (*Server).createEndpoint, body: true},
	}},
	{template: RouteEndpoint, methods: map[string]operation{
		"GET":    {run: (*Server).getEndpoint},
		"PUT":    {run: (*Server).updateEndpoint, body: true},
		"DELETE": {run: (*Server).deleteEndpoint},
	}},
	{template: RouteVideoJobs, jobs: true, methods: jobsMethods(videoJob)},
	{template: RouteVideoJob, jobs: true, methods: jobMethods(videoJob)},
	{template: RouteImageJobs, jobs: true, methods: jobsMethods(imageJob)},
	{template: RouteImageJob, jobs: true, methods: jobMethods(imageJob)},
	{template: RoutePublicFiles, public: true, methods: map[string]operation{
		"GET": {run: (*Server).listPublicFiles},
	}},
	{template: RouteFiles, methods: map[string]operation{
		"POST": {run: (*Server).registerFile, body: true},
		"GET":  {run: (*Server).listFiles},
	}},
	{template: RouteFile, methods: map[string]operation{
		"GET":    {run: (*Server).getFile},
		"DELETE": {run: (*Server).deleteFile},
	}},
	{template: RouteFileLink, methods: map[string]operation{
		"GET": {run: (*Server).getFileLink},
	}},
	{template: RouteStorage, serve: (*Server).serveStorage},
	{template: RouteInference, serve: (*Server).serveInference, prefix: true},
}

// routesByTemplate maps each template to its route.
var routesByTemplate = indexRoutes(routes)

func indexRoutes(routes []*route) map[string]*route {
	index := map[string]*route{}
	for _, r := range routes {
		r.segments = strings.Split(r.template, "/")
		index[r.template] = r
	}
	return index
}

// match returns the route of an escaped path, the value of its parameter, and the rest
// of the path after the route. A path with an extra slash, a dot segment or an empty ID
// matches no route.
func match(path string) (r *route, param, rest string) {
	segments := strings.Split(path, "/")
	for _, r := range routes {
		if param, ok := r.match(segments); ok {
			return r, param, "/" + strings.Join(segments[len(r.segments):], "/")
		}
	}
	return nil, "", ""
}

func (r *route) match(segments []string) (param string, ok bool) {
	if len(segments) < len(r.segments) || len(segments) > len(r.segments) && !r.prefix {
		return "", false
	}
	for i, want := range r.segments {
		got := segments[i]
		if !strings.HasPrefix(want, "{") {
			if got != want {
				return "", false
			}
			continue
		}
		value, err := url.PathUnescape(got)
		if err != nil || value == "" {
			return "", false
		}
		param = value
	}
	return param, true
}

// allowed lists the methods of a JSON route in the form of the Allow header.
func (r *route) allowed() string {
	return strings.Join(slices.Sorted(maps.Keys(r.methods)), ", ")
}

// checkRoute panics if no request can have this route and method. Without this check, a
// test with a misspelt route could pass without testing anything.
// The caller must hold s.mu.
func (s *Server) checkRoute(method, template string) {
	if template == RouteAny || s.added[template] {
		return
	}
	r := routesByTemplate[template]
	if r == nil {
		known := slices.Sorted(maps.Keys(routesByTemplate))
		panic(fmt.Sprintf("svctest: unknown route %q; the routes are %s", template, strings.Join(known, ", ")))
	}
	if _, ok := r.methods[method]; !ok && r.methods != nil && method != "*" {
		panic(fmt.Sprintf("svctest: the route %s has no method %q; its methods are %s", template, method, r.allowed()))
	}
}

// cleanBasePath turns "api", "api/" and "/api/" into "/api", and "/" into "".
func cleanBasePath(p string) string {
	p = strings.Trim(p, "/")
	if p == "" {
		return ""
	}
	return "/" + p
}
