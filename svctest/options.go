package svctest

import (
	"net/http"
	"slices"
	"time"
)

// DefaultToken is the bearer token that the service accepts unless
// [WithToken] names another.
const DefaultToken = "svctest-token"

// Option changes how the service behaves. Pass options to [NewServer] or
// [NewInMemory]; of two that contradict each other, the last one counts.
type Option func(*config)

type config struct {
	token            string
	basePath         string
	flavors          []Flavor
	deployTime       time.Duration
	deleteTime       time.Duration
	visibilityDelay  time.Duration
	staleReads       time.Duration
	statusPath       []string
	inference        http.Handler
	jobTime          time.Duration
	maxPageSize      int
	jobsRetired      int
	media            []byte
	linkTTL          time.Duration
	separateStorage  bool
	signedType       string
	maxObjectSize    int64
	azure            bool
	discardContents  bool
	recordLimit      int
	recordBodyLength int
}

func newConfig(opts []Option) config {
	cfg := config{
		token:            DefaultToken,
		flavors:          defaultFlavors(),
		deployTime:       time.Second,
		jobTime:          time.Second,
		maxPageSize:      100,
		media:            []byte("svctest media\n"),
		linkTTL:          15 * time.Minute,
		recordLimit:      10_000,
		recordBodyLength: 64 << 10,
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	return cfg
}

// WithToken sets the bearer token that callers have to send.
func WithToken(token string) Option {
	return func(c *config) { c.token = token }
}

// WithBasePath serves everything below a path such as "/api/svc", which then
// is part of [Server.URL] and [Server.InferenceURL]. Presigned URLs stay outside it.
func WithBasePath(prefix string) Option {
	return func(c *config) { c.basePath = cleanBasePath(prefix) }
}

// WithFlavors replaces the flavors on offer.
func WithFlavors(flavors ...Flavor) Option {
	return func(c *config) { c.flavors = slices.Clone(flavors) }
}

// WithDeployTime sets how long an endpoint stays "initializing" after a
// create, a scaling or a redeployment. Default 1 s; with zero the first read
// says "available".
func WithDeployTime(d time.Duration) Option {
	return func(c *config) { c.deployTime = d }
}

// WithDeleteTime keeps a deleted endpoint readable, and billed, for d after
// its DELETE was answered. Default 0: gone at once.
func WithDeleteTime(d time.Duration) Option {
	return func(c *config) { c.deleteTime = d }
}

// WithCreateVisibilityDelay makes the ID of a new endpoint response 404 to GET,
// PUT and DELETE for d after its creation, as a service with replicas may.
// Default 0.
func WithCreateVisibilityDelay(d time.Duration) Option {
	return func(c *config) { c.visibilityDelay = d }
}

// WithStaleReads makes GET show an endpoint as it was before an update for d
// after that update. Default 0.
func WithStaleReads(d time.Duration) Option {
	return func(c *config) { c.staleReads = d }
}

// WithStatusPath gives every new endpoint a script of statuses instead of the
// clock: see [Server.ScriptStatus].
func WithStatusPath(statuses ...string) Option {
	return func(c *config) { c.statusPath = slices.Clone(statuses) }
}

// WithInferenceHandler serves the address of every available endpoint with h.
// It sees the path that follows the endpoint's own address ("/" at least).
// Without it such a request is answered 200 with the endpoint's ID; an
// endpoint that is not available is always answered 503.
func WithInferenceHandler(h http.Handler) Option {
	return func(c *config) { c.inference = h }
}

// WithJobTime sets how long a legacy job takes to succeed. Default 1 s.
func WithJobTime(d time.Duration) Option {
	return func(c *config) { c.jobTime = d }
}

// WithMaxPageSize sets what a larger page_size of a job list is silently
// lowered to. Default 100.
func WithMaxPageSize(n int) Option {
	return func(c *config) { c.maxPageSize = max(n, 1) }
}

// WithJobsRetired answers every legacy job route with this status, as the
// service does since these jobs have moved to another API. Zero means 410.
func WithJobsRetired(status int) Option {
	return func(c *config) {
		c.jobsRetired = status
		if status == 0 {
			c.jobsRetired = http.StatusGone
		}
	}
}

// WithMediaContents sets what every media_url and thumbnail_url downloads.
// Default is one short line of text.
func WithMediaContents(b []byte) Option {
	return func(c *config) { c.media = slices.Clone(b) }
}

// WithLinkTTL sets how long a presigned URL is valid. Default 15 minutes.
func WithLinkTTL(d time.Duration) Option {
	return func(c *config) { c.linkTTL = d }
}

// WithSeparateStorage moves the presigned URLs to another host: a second
// loopback port, or in memory another host name.
func WithSeparateStorage() Option {
	return func(c *config) { c.separateStorage = true }
}

// WithSignedContentType makes the upload link of a newly registered file
// demand this Content-Type, by signing it.
func WithSignedContentType(contentType string) Option {
	return func(c *config) { c.signedType = contentType }
}

// WithMaxObjectSize refuses larger uploads, before reading them. Default: no limit.
func WithMaxObjectSize(n int64) Option {
	return func(c *config) { c.maxObjectSize = n }
}

// WithAzureStorage makes uploads behave as on Azure: the header
// "x-ms-blob-type: BlockBlob" is required and success is 201.
func WithAzureStorage() Option {
	return func(c *config) { c.azure = true }
}

// WithDiscardContents keeps only length and SHA-256 of an upload, see [File],
// so that uploads of any size need no memory. They cannot be downloaded.
func WithDiscardContents() Option {
	return func(c *config) { c.discardContents = true }
}

// WithRecordLimit sets how many requests [Server.Requests] remembers, the
// latest ones, and how many bytes of each body. Defaults 10,000 and 64 KiB;
// zero requests records none. [Server.RequestCount] counts all in any case.
func WithRecordLimit(requests, bodyBytes int) Option {
	return func(c *config) {
		c.recordLimit, c.recordBodyLength = max(requests, 0), max(bodyBytes, 0)
	}
}
