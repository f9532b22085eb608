package soak_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// fault is what goes wrong in one exchange.
type fault string

// flavorList is the last path segment of the flavor list, where other paths have an ID.
const flavorList = "flavor"

const (
	dialError   fault = "the dial fails"
	reset       fault = "the connection is lost"
	hangs       fault = "nothing comes until the client gives up"
	status408   fault = "408"
	status429   fault = "429"
	status500   fault = "500"
	status502   fault = "502"
	status503   fault = "503"
	status504   fault = "504"
	status524   fault = "524"
	json401     fault = "401 in JSON"
	json403     fault = "403 in JSON"
	page200     fault = "HTML with 200"
	page403     fault = "HTML with 403"
	page404     fault = "HTML with 404"
	cut404      fault = "HTML with 404, cut off before the first byte"
	page503     fault = "HTML with 503"
	login       fault = "a redirect to a login host"
	denied      fault = "200 with an error in it"
	otherID     fault = "the record of another ID"
	cutBody     fault = "the body is cut off"
	cutClean    fault = "the body is cut off without an error"
	stall       fault = "the body stalls"
	noBody      fault = "the body is empty"
	outageFor   fault = "every path is not found"
	routerFor   fault = "a router has no backend"
	untrusted   fault = "the certificate is not accepted"
	noFault     fault = ""
	stranger    fault = "somebody else's record"
	strangerCut fault = "somebody else's record, cut off"
)

// before has the faults of requests that do not reach the service, after those of
// requests that took effect. A fault is chosen more often if it is listed more often.
var (
	before = []fault{dialError, reset, reset, hangs, status408, status429, status429, status500, status502, status503, status503, status504,
		page200, page403, page404, page503, page404, cut404, login, denied, otherID}
	refusals = []fault{json401, json403} // rare
	after    = []fault{reset, reset, hangs, status408, status500, status502, status503, status504, status524,
		page200, page503, login, cutBody, cutBody, cutClean, stall, noBody}
	erasing   = []fault{page403, page404, status429}
	replacing = []fault{page403, page404} // in place of the response to a create that took effect
)

// certain has the faults after which a client can know that a create had no effect. A
// redirect to a login page (302) is not in the list, because a redirect after a create
// can mean that it succeeded.
var certain = map[fault]bool{dialError: true, status429: true, outageFor: true, untrusted: true, json401: true, json403: true}

// exchange is one HTTP request and its result.
type exchange struct {
	call      *call
	number    int // number within the call, from 1
	method    string
	id        string // ID in the path
	name      string // name in the body of a create
	about     string // description in the body of a create
	instances int    // the number of instances that a create or an update asks for
	sent      time.Time
	handled   time.Time // when the service handled it; zero: it did not
	ended     time.Time
	fault     fault
	early     bool // the fault happens before the request reaches the service
	delays    [2]time.Duration
	outlives  bool // the service handles the request even if the client has given up

	foreign bool // sent with the token of another account
	cached  bool // the response is a copy from the cache
	header  http.Header

	lucky bool // the request reaches a replica that already knows new IDs

	acted  bool      // an update or delete took effect
	made   *endpoint // the endpoint that a create made
	shown  *state    // the state that a read returned
	status int       // status that the client got; 0: no response
	body   string    // body that the client got
	whole  bool      // the body is complete and comes from the service
}

// RoundTrip simulates the network and the service behind it.
func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	x := w.begin(req)
	defer func() { x.ended = time.Now() }()
	if r := w.cachedResponse(x, req); r != nil {
		return r, nil
	}
	r, err := w.exchange(req.Context(), x)
	if err == nil {
		w.stamp(x, r, req)
	}
	return r, err
}

func (w *world) exchange(ctx context.Context, x *exchange) (*http.Response, error) {
	if err := pause(ctx, x.delays[0]); err != nil {
		if x.outlives && !x.early {
			w.mu.Lock()
			w.schedule(x.delays[0]-time.Since(x.sent), func() { w.handle(x) })
			w.mu.Unlock()
		}
		return nil, err
	}
	var own reply
	if !x.early {
		w.mu.Lock()
		own = w.handle(x)
		w.mu.Unlock()
	}
	if err := pause(ctx, x.delays[1]); err != nil {
		return nil, err
	}
	return w.respond(ctx, x, own)
}

// begin records a request and decides at random what happens to it.
func (w *world) begin(req *http.Request) *exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	k := w.call
	x := &exchange{call: k, method: req.Method, sent: time.Now()}
	x.foreign = req.Header.Get("Authorization") == "Bearer "+foreignToken
	if id, ok := strings.CutPrefix(req.URL.Path, "/v1/inference-service/"); ok {
		x.id = id
	}
	k.exchanges = append(k.exchanges, x)
	x.number = len(k.exchanges)
	w.draw(x, rand.New(rand.NewPCG(w.seed, uint64(k.number)<<32|uint64(x.number))))
	if req.Body != nil {
		if x.fault != dialError {
			body, _ := io.ReadAll(req.Body)
			x.read(body)
		}
		req.Body.Close()
	}
	return x
}

// draw chooses the delays and the fault of an exchange at random.
func (w *world) draw(x *exchange, d *rand.Rand) {
	x.delays[0] = time.Duration(d.IntN(100)) * time.Millisecond
	x.delays[1] = time.Duration(d.IntN(100)) * time.Millisecond
	if d.Float64() < w.slow {
		x.delays[d.IntN(2)] += time.Duration(d.IntN(12000)) * time.Millisecond
	}
	x.outlives = d.IntN(2) == 0
	x.lucky = d.IntN(2) == 0
	since := x.sent.Sub(w.start)
	switch {
	case since >= w.outageFrom && since < w.outageTo && !(w.flaps && int(since.Seconds())%2 == 0):
		x.fault, x.early = outageFor, true
	case (w.router.has(since) || w.again.has(since)) && x.id != "" && x.id != flavorList:
		x.fault, x.early = routerFor, true
		if w.mixes != noFault && x.method == "GET" {
			if w.reached[x.id] = !w.reached[x.id]; !w.reached[x.id] {
				x.fault, x.early = w.mixes, w.mixes != cutBody
			}
		}
	case w.untrusted.has(since):
		x.fault, x.early = untrusted, true
	case w.offline.has(since):
		x.fault, x.early = dialError, true
	case d.Float64() < w.refusing:
		x.fault, x.early = refusals[d.IntN(len(refusals))], true
	case d.Float64() < w.trouble:
		x.early = d.IntN(2) == 0
		switch {
		case x.early && d.IntN(20) == 0:
			x.fault = refusals[d.IntN(len(refusals))]
		case x.early:
			x.fault = before[d.IntN(len(before))]
		case w.erases && d.IntN(4) == 0:
			x.fault = erasing[d.IntN(len(erasing))]
		case x.method == "POST" && d.IntN(8) == 0:
			x.fault = replacing[d.IntN(len(replacing))]
		default:
			x.fault = after[d.IntN(len(after))]
		}
		if x.fault == otherID && (x.method == "POST" || x.method == "DELETE") { // for these, the fault stranger is used
			x.fault, x.early = noFault, false
		}
	case x.method == "POST" && d.Float64() < w.stranger:
		x.fault, x.early = [...]fault{stranger, strangerCut}[d.IntN(2)], d.IntN(2) == 0
	}
}

// read stores the name and the number of instances from the request body.
func (x *exchange) read(body []byte) {
	var said struct {
		Name             string `json:"name"`
		Description      string `json:"description"`
		ResourceMetadata struct {
			Instances json.RawMessage `json:"target_instance_number"`
		} `json:"resource_metadata"`
	}
	_ = json.Unmarshal(body, &said)
	x.name, x.about = said.Name, said.Description
	x.instances, _ = strconv.Atoi(strings.Trim(string(said.ResourceMetadata.Instances), `"`))
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

var errReset = errors.New("read tcp 10.0.0.1:40000->10.0.0.2:443: read: connection reset by peer")

// respond returns the response that the client gets, or an error.
func (w *world) respond(ctx context.Context, x *exchange, own reply) (*http.Response, error) {
	switch x.fault {
	case dialError:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	case reset:
		return nil, errReset
	case hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case outageFor:
		return x.answer(404, w.outageBody), nil
	case routerFor:
		return x.answer(404, w.routerBody), nil
	case untrusted:
		return nil, &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	case stranger, strangerCut, otherID:
		w.mu.Lock()
		defer w.mu.Unlock()
		e := w.endpoints[x.number%2]
		if same(e.id, x.id) {
			e = w.endpoints[(x.number+1)%2]
		}
		other := reply{200, w.record(e, e.at(time.Now(), w.touch))}
		if x.fault == strangerCut {
			return x.cut(ctx, other), nil
		}
		return x.answer(other.status, other.body), nil
	case cut404:
		r := x.cut(ctx, reply{404, " "})
		r.Header.Del("Content-Type")
		return r, nil
	case cutBody, stall:
		x.fit(own)
		return x.cut(ctx, own), nil
	case cutClean:
		return x.answer(own.status, own.body[:len(own.body)*3/4]), nil
	case noBody:
		return x.answer(own.status, ""), nil
	case noFault:
		x.fit(own)
		x.whole = true
		return x.answer(own.status, own.body), nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return x.broken(w.dice), nil
}

func (x *exchange) fit(own reply) { x.status, x.body = own.status, own.body }

// broken returns a response of something between client and service, or of a service in
// trouble.
func (x *exchange) broken(d *rand.Rand) *http.Response {
	const page = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"
	pages := map[fault]int{page200: 200, page403: 403, page404: 404, page503: 503}
	if status, ok := pages[x.fault]; ok {
		r := x.answer(status, page)
		switch d.IntN(3) {
		case 0:
			r.Header.Set("Content-Type", "text/html; charset=utf-8")
		case 1:
			r = x.answer(status, "Please sign in.")
			r.Header.Set("Content-Type", "Text/HTML")
		}
		return r
	}
	switch x.fault {
	case login:
		r := x.answer(302, page)
		r.Header.Set("Location", "https://login.example.net/?next=there")
		return r
	case denied:
		return x.answer(200, `{"code":500,"message":"internal error","success":false}`)
	case json401:
		return x.answer(401, `{"message":"no"}`)
	case json403:
		return x.answer(403, `{"message":"no"}`)
	}
	status, _ := strconv.Atoi(string(x.fault))
	body := [...]string{`{"message":"try again"}`, ``, `upstream error`, page}[d.IntN(4)]
	if x.made != nil && d.IntN(4) == 0 {
		body = `{"service_id":"` + x.made.id + `","message":"created, and then this"}`
	}
	r := x.answer(status, body)
	if status == 429 || status == 503 {
		if after := [...]string{"", "1", "7", "70", "Fri, 31 Dec 1999 23:59:59 GMT"}[d.IntN(5)]; after != "" {
			r.Header.Set("Retry-After", after)
		}
	}
	return r
}

func (x *exchange) answer(status int, body string) *http.Response {
	x.status, x.body = status, body
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// cut returns the service's own response, cut off in the middle of its body.
func (x *exchange) cut(ctx context.Context, own reply) *http.Response {
	at := 0
	if n := len(own.body); n > 0 {
		at = int(x.sent.UnixNano()/int64(time.Millisecond)) % n
	}
	r := x.answer(own.status, own.body[:at])
	r.ContentLength = int64(len(own.body)) + 1
	r.Body = &tornBody{text: strings.NewReader(own.body[:at]), ctx: ctx, stalls: x.fault == stall}
	return r
}

// tornBody is a body that ends too early or never ends.
type tornBody struct {
	text   *strings.Reader
	ctx    context.Context
	stalls bool
}

func (b *tornBody) Read(p []byte) (int, error) {
	if b.text.Len() > 0 {
		return b.text.Read(p)
	}
	if b.stalls {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return 0, io.ErrUnexpectedEOF
}

func (b *tornBody) Close() error { return nil }
