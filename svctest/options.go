package svctest

import (
	"net/http"
	"slices"
	"time"
)

// Owners of what callers create: the user_id of records.
const (
	DefaultUser = "user-1"
	ForeignUser = "user-2" // owner of the token of [WithForeignToken]
)

// DefaultToken is the bearer token that the service accepts. [WithToken] sets another
// token.
const DefaultToken = "svctest-token"

// Option changes how the service behaves. Pass options to [NewServer] or [NewInMemory]. If two
// options conflict, the last one is used.
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
	owners           map[string]string // the owner of each valid token
	createTime       time.Duration
	failingImages    []string
	allPullsFail     bool
	rename           func(string) string
	clockOffset      time.Duration
	noDate           bool
	cache            Cache
	chat             bool
	chatModel        string
	hook             func(Request)
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
		owners:           map[string]string{},
	}
	for _, opt := range opts {
		opt(&cfg)
	}
	cfg.owners[cfg.token] = DefaultUser
	return cfg
}

// WithToken sets the bearer token that callers have to send. The default is [DefaultToken].
func WithToken(token string) Option {
	return func(c *config) { c.token = token }
}

// WithSecondToken makes the service accept another token of the same account, as after a
// rotation. It may be given several times. By default, there is none.
func WithSecondToken(token string) Option {
	return func(c *config) { c.owners[token] = DefaultUser }
}

// WithForeignToken makes the service accept a token of another account. Requests with this
// token get 404 for the endpoints, files and jobs of the first account, and lists
// without them. What they create belongs to the other account. Both share the flavors
// and the public files. By default, there is no other account.
func WithForeignToken(token string) Option {
	return func(c *config) { c.owners[token] = ForeignUser }
}

// WithBasePath serves everything except presigned URLs below a path such as "/api/svc". The
// path is part of [Server.URL] and [Server.InferenceURL]. By default, the path is empty.
func WithBasePath(prefix string) Option {
	return func(c *config) { c.basePath = cleanBasePath(prefix) }
}

// WithFlavors sets the flavors that can be rented. Without this option there are
// three: flavor-1 and flavor-2 with stock, and flavor-3, which is sold out.
func WithFlavors(flavors ...Flavor) Option {
	return func(c *config) { c.flavors = slices.Clone(flavors) }
}

// WithDeployTime sets how long an endpoint is "initializing" after a create, after a change of
// the number of instances, and after an update that starts a stopped endpoint. The default is
// 1 s. With zero, the first read returns "available".
func WithDeployTime(d time.Duration) Option {
	return func(c *config) { c.deployTime = d }
}

// WithDeleteTime sets how long an endpoint stays readable, and is billed, after
// its deletion was accepted. The default 0 deletes the endpoint at once.
func WithDeleteTime(d time.Duration) Option {
	return func(c *config) { c.deleteTime = d }
}

// WithCreateVisibilityDelay makes GET, PUT and DELETE of a new endpoint respond with 404 for d
// after its creation, as a service with replicas may. The endpoint is billed during that time.
// The default is 0.
func WithCreateVisibilityDelay(d time.Duration) Option {
	return func(c *config) { c.visibilityDelay = d }
}

// WithCreateTime sets how long the response to a create takes. The endpoint exists, and is
// billed, from the arrival of the request, even if the caller gives up before the response.
// The default is 0.
func WithCreateTime(d time.Duration) Option {
	return func(c *config) { c.createTime = d }
}

// WithImagePullError makes the deployment of these images fail: at the end of the deploy time
// the endpoint is "unavailable", and its status_info reports that the image cannot be pulled.
// Without arguments it applies to every image. By default, all images are pulled.
func WithImagePullError(images ...string) Option {
	return func(c *config) { c.failingImages, c.allPullsFail = slices.Clone(images), len(images) == 0 }
}

// WithNameRewrite passes the name of each new endpoint to rewrite, and stores the result, as a
// service does that turns "My App" into "my-app". If nil, names are stored as they
// are.
func WithNameRewrite(rewrite func(name string) string) Option {
	return func(c *config) { c.rename = rewrite }
}

// WithClockOffset makes the clock of the service differ from the clock of the test: it is
// ahead by d, or behind if d is negative. The Date headers, the times of records and all times
// that [Server] returns are by this clock. The default is 0.
func WithClockOffset(d time.Duration) Option {
	return func(c *config) { c.clockOffset = d }
}

// WithoutDate makes the service leave out the Date header. By default every response has one.
func WithoutDate() Option {
	return func(c *config) { c.noDate = true }
}

// WithStaleReads makes reads of an endpoint stale: for d after an update that starts a
// deployment, GET returns the record from before the update. The default is 0.
func WithStaleReads(d time.Duration) Option {
	return func(c *config) { c.staleReads = d }
}

// WithStatusPath sets a script of statuses, one for each GET, for every endpoint that a
// request creates: see [Server.ScriptStatus].
func WithStatusPath(statuses ...string) Option {
	return func(c *config) { c.statusPath = slices.Clone(statuses) }
}

// WithInferenceHandler serves requests to the addresses of available endpoints
// with h. The path that h sees is the part after the address of the endpoint, or "/" if
// there is no such part. Without this option, the response is 200 with the ID of the
// endpoint. If the endpoint is not available, the response is always 503.
func WithInferenceHandler(h http.Handler) Option {
	return func(c *config) { c.inference = h }
}

// WithChat makes every available endpoint serve a model with an API like that of OpenAI: GET
// /v1/models and POST /v1/chat/completions, below the address of the endpoint. Its reply
// repeats the last message, as a whole or as a stream. If model is empty, the model is called
// like the endpoint. [WithInferenceHandler] takes precedence. By default, there is no model.
func WithChat(model string) Option {
	return func(c *config) { c.chat, c.chatModel = true, model }
}

// WithJobTime sets how long after its creation a legacy job succeeds. It applies to jobs that
// a request creates. The default is 1 s.
func WithJobTime(d time.Duration) Option {
	return func(c *config) { c.jobTime = d }
}

// WithMaxPageSize sets the largest page_size of a job list. If a request asks for a larger
// page, it gets a page of this size. The default is 100.
func WithMaxPageSize(n int) Option {
	return func(c *config) { c.maxPageSize = max(n, 1) }
}

// WithJobsRetired makes every legacy job route respond with this status. The real
// service does this too, because the jobs have moved to another API. Zero means 410.
// Without this option the jobs work.
func WithJobsRetired(status int) Option {
	return func(c *config) {
		c.jobsRetired = status
		if status == 0 {
			c.jobsRetired = http.StatusGone
		}
	}
}

// WithMediaContents sets the contents that every media_url and thumbnail_url leads to. The
// default is one short line of text.
func WithMediaContents(b []byte) Option {
	return func(c *config) { c.media = slices.Clone(b) }
}

// WithLinkTTL sets how long a presigned URL is valid. The default is 15 minutes.
func WithLinkTTL(d time.Duration) Option {
	return func(c *config) { c.linkTTL = d }
}

// WithSeparateStorage makes presigned URLs lead to another host. With [NewServer] this
// is a second loopback port, with [NewInMemory] another host name. Without this option,
// presigned URLs lead to the host of the service.
func WithSeparateStorage() Option {
	return func(c *config) { c.separateStorage = true }
}

// WithSignedContentType signs this Content-Type into the presigned URL of a newly registered
// file, so that an upload has to send it. By default, any type is accepted.
func WithSignedContentType(contentType string) Option {
	return func(c *config) { c.signedType = contentType }
}

// WithMaxObjectSize makes the storage refuse uploads of more than n bytes. It refuses
// them before it reads the body. The default 0 means no limit.
func WithMaxObjectSize(n int64) Option {
	return func(c *config) { c.maxObjectSize = n }
}

// WithAzureStorage makes uploads behave as on Azure: the header
// "x-ms-blob-type: BlockBlob" is required, and the status of a success is 201.
func WithAzureStorage() Option {
	return func(c *config) { c.azure = true }
}

// WithDiscardContents keeps only the length and the SHA-256 of an upload (see
// [File]), so that an upload of any size needs no memory. The uploaded contents cannot
// be downloaded.
func WithDiscardContents() Option {
	return func(c *config) { c.discardContents = true }
}

// WithRequestHook calls f once for each request, before the response is sent. If a request
// ends without a response, f is called at its end, with Status 0. f may call the methods of
// [Server]. It is called by many goroutines at once. If nil, nothing is called.
func WithRequestHook(f func(Request)) Option {
	return func(c *config) { c.hook = f }
}

// WithRecordLimit sets how many of the latest requests [Server.Requests] lists, and
// how many bytes of each body it keeps. Defaults: 10,000 requests and 64 KiB. Zero means
// none. [Server.RequestCount] always counts all requests.
func WithRecordLimit(requests, bodyBytes int) Option {
	return func(c *config) {
		c.recordLimit, c.recordBodyLength = max(requests, 0), max(bodyBytes, 0)
	}
}
