package svctest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Endpoint statuses of the contract. [Server.SetStatus], [Server.ScriptStatus] and
// [WithStatusPath] also accept any other text.
const (
	StatusInitializing = "initializing" // being deployed or scaled
	StatusAvailable    = "available"    // running
	StatusStopped      = "stopped"      // without instances; not billed
	StatusUnavailable  = "unavailable"  // the deployment failed; still billed
)

// Endpoint is the state of a dedicated endpoint. [Server.Endpoints] lists all endpoints
// that were ever created. [Server.AddEndpoint] adds an endpoint.
type Endpoint struct {
	// ID is the service_id. AddEndpoint ignores this field and chooses the ID.
	ID string
	// Name, Description and PaymentType are the values from the create request. The
	// default of PaymentType is "usd".
	Name, Description, PaymentType string
	// UserID is the owner: [DefaultUser], or [ForeignUser] if it was created with the token of
	// [WithForeignToken]. The default for AddEndpoint is DefaultUser.
	UserID string
	// FlavorID and ScaleType are the values from the create request. The default of
	// ScaleType is "manual". An endpoint without a FlavorID takes nothing from a stock.
	FlavorID, ScaleType string
	// Status is the current status. The next GET shows it, unless [WithStaleReads]
	// makes GET show an older record.
	Status string
	// Instances is the target_instance_number. For AddEndpoint, zero means no instances.
	Instances int
	// ImageURL, Command, Port and GPUNum are the values from the create request.
	ImageURL, Command string
	Port, GPUNum      int
	// CreatedAt is the time of creation.
	CreatedAt time.Time
	// UpdatedAt is the time of the latest update or of the end of the latest
	// deployment, whichever is later.
	UpdatedAt time.Time
	// DeletedAt is the time at which the deletion took effect. It is zero until then.
	DeletedAt time.Time
	// Deleted is true once the deletion took effect.
	Deleted bool
	// Billed is true while the instances cost money: the endpoint is not deleted, not
	// stopped, and has at least one instance.
	Billed bool
}

// endpoint has no timer. Its state is computed from the current time on each read.
type endpoint struct {
	id, user, name, description, paymentType string
	flavorID, displayName, scaleType         string
	vram, imageSize                          string
	imageURL, command                        string
	port, gpuNum, target                     int
	created                                  time.Time
	changed                                  time.Time // when the latest update was accepted
	ready                                    time.Time // when the latest deployment ends
	deletedAt                                time.Time // when the deletion takes effect; zero if no deletion was accepted

	script     []string // statuses that the next GETs will show, one per GET
	forced     string   // status set by a test, or the status of the script that a GET showed last
	statusInfo json.RawMessage
	pullFails  bool            // its image cannot be pulled: see WithImagePullError
	stale      *endpointRecord // what GET shows until staleUntil
	staleUntil time.Time

	billedTime  time.Duration // instance time until billedUntil
	billedUntil time.Time
	visibleFrom time.Time // before this time, callers get 404 for the endpoint
}

func (e *endpoint) deleted(now time.Time) bool {
	return !e.deletedAt.IsZero() && !now.Before(e.deletedAt)
}

func (e *endpoint) status(now time.Time) string {
	switch {
	case len(e.script) > 0:
		return e.script[0]
	case e.forced != "":
		return e.forced
	case e.target == 0:
		return StatusStopped
	case now.Before(e.ready):
		return StatusInitializing
	case e.pullFails:
		return StatusUnavailable
	}
	return StatusAvailable
}

// info returns the status_info of a record that shows this status.
func (e *endpoint) info(status string) json.RawMessage {
	if e.statusInfo == nil && e.pullFails && status == StatusUnavailable {
		return encode("ImagePullBackOff: the image " + e.imageURL + " cannot be pulled")
	}
	return e.statusInfo
}

// shown returns the status that a GET shows. If there is a script, shown removes this
// status from it.
func (e *endpoint) shown(now time.Time) string {
	status := e.status(now)
	if len(e.script) > 0 {
		e.bill(now)
		e.script, e.forced = e.script[1:], status
	}
	return status
}

// billed reports whether the endpoint runs instances that cost money now.
func (e *endpoint) billed(now time.Time) bool { return !e.deleted(now) && e.running(now) }

func (e *endpoint) running(now time.Time) bool {
	return e.target > 0 && e.status(now) != StatusStopped
}

// deploy begins a deployment. It removes a status that a test has set, and the status of
// a script that a GET showed last. It keeps the statuses of a script that no GET has
// shown yet.
func (e *endpoint) deploy(target int, now time.Time, d time.Duration) {
	e.bill(now)
	e.target, e.changed, e.ready, e.forced = target, now, now.Add(d), ""
}

// updated returns the updated_at of the record: the time of the latest update or of the
// end of the latest deployment, whichever is later.
func (e *endpoint) updated(now time.Time) time.Time {
	if e.target > 0 && !now.Before(e.ready) && e.ready.After(e.changed) {
		return e.ready
	}
	return e.changed
}

func (e *endpoint) snapshot(now time.Time) Endpoint {
	v := Endpoint{
		ID: e.id, UserID: e.user, Name: e.name, Description: e.description, PaymentType: e.paymentType,
		FlavorID: e.flavorID, ScaleType: e.scaleType, Status: e.status(now), Instances: e.target,
		ImageURL: e.imageURL, Command: e.command, Port: e.port, GPUNum: e.gpuNum,
		CreatedAt: e.created, UpdatedAt: e.updated(now),
		Deleted: e.deleted(now), Billed: e.billed(now),
	}
	if v.Deleted {
		v.DeletedAt = e.deletedAt
	}
	return v
}

// AddEndpoint adds an endpoint to the service as if it had been created and
// deployed before, and returns its ID. It is visible at once. All fields of e are
// optional. ID, the times, Deleted and Billed are ignored. An empty Status means
// "available", or "stopped" if Instances is zero. Any other status stays until an
// update changes the number of instances.
func (s *Server) AddEndpoint(e Endpoint) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &endpoint{
		user: orDefault(e.UserID, DefaultUser), name: e.Name, description: e.Description, paymentType: e.PaymentType, flavorID: e.FlavorID, scaleType: e.ScaleType,
		imageURL: e.ImageURL, command: e.Command, port: e.Port, gpuNum: e.GPUNum, target: e.Instances, forced: e.Status,
	}
	s.addEndpoint(added, s.now(), 0)
	added.visibleFrom = added.created
	return added.id
}

func (s *Server) addEndpoint(e *endpoint, now time.Time, d time.Duration) {
	e.id = fmt.Sprintf("svc-%d", len(s.endpoints)+1)
	e.created, e.changed, e.ready, e.billedUntil = now, now, now.Add(d), now
	e.visibleFrom = now.Add(s.cfg.visibilityDelay)
	e.pullFails = s.cfg.allPullsFail || slices.Contains(s.cfg.failingImages, e.imageURL)
	if e.vram, e.imageSize = "24GB", "10GB"; e.flavorID != "" {
		if f := s.flavor(e.flavorID); f != nil {
			e.displayName = f.DisplayName
			e.vram, e.imageSize = orDefault(f.VRAM, e.vram), orDefault(f.ImageSize, e.imageSize)
		}
	}
	e.paymentType = orDefault(e.paymentType, "usd")
	e.scaleType = orDefault(e.scaleType, "manual")
	s.endpoints, s.living = append(s.endpoints, e), append(s.living, e)
}

func orDefault(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// Endpoints lists all endpoints in the order of creation, including deleted ones.
func (s *Server) Endpoints() []Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	list := make([]Endpoint, 0, len(s.endpoints))
	for _, e := range s.endpoints {
		list = append(list, e.snapshot(now))
	}
	return list
}

// Endpoint returns the endpoint with this ID, even if it is deleted. It returns
// false if no endpoint ever had this ID.
func (s *Server) Endpoint(id string) (Endpoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpointByID(id); e != nil {
		return e.snapshot(s.now()), true
	}
	return Endpoint{}, false
}

// RunningInstances returns the number of instances that are billed now: the instances
// of all endpoints that are neither deleted nor stopped. After a deploy script that
// failed and cleaned up, it must be zero.
func (s *Server) RunningInstances() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := 0, s.now()
	for _, e := range s.alive(now) {
		if e.billed(now) {
			n += e.target
		}
	}
	return n
}

// alive returns the endpoints that are not deleted. It drops deleted ones from
// s.living, so that a server with a long history stays fast.
func (s *Server) alive(now time.Time) []*endpoint {
	s.living = slices.DeleteFunc(s.living, func(e *endpoint) bool { return e.deleted(now) })
	return s.living
}

// ScriptStatus makes the next GETs of an endpoint show these statuses, one per GET.
// They replace the statuses that the fake would choose by the time and the number of
// instances. The last status stays until an update changes the number of instances.
// ScriptStatus panics if there is no such endpoint.
func (s *Server) ScriptStatus(id string, statuses ...string) {
	s.change(id, func(e *endpoint) { e.script = slices.Clone(statuses) })
}

// SetStatus sets the status of an endpoint until an update changes the number of
// instances. It ends a script of [Server.ScriptStatus]. With an empty status, the fake
// again chooses the status by the time and the number of instances. SetStatus panics
// if there is no such endpoint.
func (s *Server) SetStatus(id, status string) {
	s.change(id, func(e *endpoint) { e.forced, e.script = status, nil })
}

// SetStatusInfo sets the status_info of an endpoint. JSON, such as {"reason":"evicted"} or null,
// is sent as it is. Other text is sent as a JSON string. Without this call, status_info is
// null, unless an image cannot be pulled (see [WithImagePullError]). SetStatusInfo panics if
// there is no such endpoint.
func (s *Server) SetStatusInfo(id, info string) {
	raw := json.RawMessage(info)
	if !json.Valid(raw) {
		raw = encode(info)
	}
	s.change(id, func(e *endpoint) { e.statusInfo = raw })
}

// Delete deletes an endpoint at once, as somebody may do in the console. A deletion that takes the time of
// [WithDeleteTime] ends. Delete panics if there is no such endpoint.
func (s *Server) Delete(id string) {
	s.change(id, func(e *endpoint) {
		if now := s.now(); !e.deleted(now) {
			e.deletedAt = now
		}
	})
}

func (s *Server) change(id string, f func(*endpoint)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endpointByID(id)
	if e == nil {
		panic(fmt.Sprintf("svctest: no endpoint %q", id))
	}
	e.bill(s.now())
	f(e)
}

func (s *Server) endpointByID(id string) *endpoint {
	digits, _ := strings.CutPrefix(id, "svc-")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > len(s.endpoints) || s.endpoints[n-1].id != id {
		return nil
	}
	return s.endpoints[n-1]
}
