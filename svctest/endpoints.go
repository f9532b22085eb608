package svctest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Endpoint statuses of the contract. Scripts may use any other text as well.
const (
	StatusInitializing = "initializing"
	StatusAvailable    = "available"
	StatusStopped      = "stopped"
	StatusUnavailable  = "unavailable"
)

// Endpoint is a dedicated endpoint as the service sees it, deleted ones included.
type Endpoint struct {
	ID                             string // service_id
	Name, Description, PaymentType string
	FlavorID, ScaleType            string
	Status                         string // what the next GET would say
	Instances                      int    // target_instance_number
	ImageURL, Command              string
	Port, GPUNum                   int
	CreatedAt, UpdatedAt           time.Time
	DeletedAt                      time.Time // zero while it exists
	Deleted                        bool
	// Billed says that its instances cost money now: it is not deleted, not
	// stopped, and has at least one.
	Billed bool
}

// endpoint has no timer: what it is follows from the clock at each look.
type endpoint struct {
	id, name, description, paymentType string
	flavorID, displayName, scaleType   string
	vram, imageSize                    string
	imageURL, command                  string
	port, gpuNum, target               int
	created                            time.Time
	changed                            time.Time // when the latest update was accepted
	ready                              time.Time // when the latest deployment ends
	gone                               time.Time // when a deletion takes effect; zero without one

	script     []string // statuses for the GETs to come; the last one stays
	forced     string   // status set by a test or left over from a script
	statusInfo *string
	stale      *endpointRecord // what GET shows until staleUntil
	staleUntil time.Time

	billedTime  time.Duration // instance time until billedUntil
	billedUntil time.Time
	visibleFrom time.Time // until then, its ID is unknown to callers
}

func (e *endpoint) deleted(now time.Time) bool {
	return !e.gone.IsZero() && !now.Before(e.gone)
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
	}
	return StatusAvailable
}

// look is the status that a GET shows: it moves a script on.
func (e *endpoint) look(now time.Time) string {
	status := e.status(now)
	if len(e.script) > 0 {
		e.bill(now)
		e.script, e.forced = e.script[1:], status
	}
	return status
}

// billed says that instances are running now. A deleted endpoint has none.
func (e *endpoint) billed(now time.Time) bool { return !e.deleted(now) && e.running(now) }

func (e *endpoint) running(now time.Time) bool {
	return e.target > 0 && e.status(now) != StatusStopped
}

// deploy begins a deployment. It ends what a script or a test has set before,
// but not the part of a script that is still to come.
func (e *endpoint) deploy(target int, now time.Time, d time.Duration) {
	e.bill(now)
	e.target, e.changed, e.ready, e.forced = target, now, now.Add(d), ""
}

// updated is the time of the latest change that a record shows: an update, or
// the end of a deployment.
func (e *endpoint) updated(now time.Time) time.Time {
	if e.target > 0 && !now.Before(e.ready) && e.ready.After(e.changed) {
		return e.ready
	}
	return e.changed
}

func (e *endpoint) snapshot(now time.Time) Endpoint {
	v := Endpoint{
		ID: e.id, Name: e.name, Description: e.description, PaymentType: e.paymentType,
		FlavorID: e.flavorID, ScaleType: e.scaleType, Status: e.status(now), Instances: e.target,
		ImageURL: e.imageURL, Command: e.command, Port: e.port, GPUNum: e.gpuNum,
		CreatedAt: e.created, UpdatedAt: e.updated(now),
		Deleted: e.deleted(now), Billed: e.billed(now),
	}
	if v.Deleted {
		v.DeletedAt = e.gone
	}
	return v
}

// AddEndpoint puts an endpoint into the service as if it had been created and
// deployed before, and returns its ID. Of e only name, description, flavor,
// instances, deployment fields and Status are used, all optional; an empty
// Status follows the clock, so it says "available", or "stopped" without instances.
func (s *Server) AddEndpoint(e Endpoint) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &endpoint{
		name: e.Name, description: e.Description, paymentType: e.PaymentType, flavorID: e.FlavorID, scaleType: e.ScaleType,
		imageURL: e.ImageURL, command: e.Command, port: e.Port, gpuNum: e.GPUNum, target: e.Instances, forced: e.Status,
	}
	s.addEndpoint(added, time.Now(), 0)
	added.visibleFrom = added.created
	return added.id
}

func (s *Server) addEndpoint(e *endpoint, now time.Time, d time.Duration) {
	e.id = fmt.Sprintf("svc-%d", len(s.endpoints)+1)
	e.created, e.changed, e.ready, e.billedUntil = now, now, now.Add(d), now
	e.visibleFrom = now.Add(s.cfg.visibilityDelay)
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

// Endpoints lists all endpoints in the order of their creation, deleted ones
// included.
func (s *Server) Endpoints() []Endpoint {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	list := make([]Endpoint, 0, len(s.endpoints))
	for _, e := range s.endpoints {
		list = append(list, e.snapshot(now))
	}
	return list
}

// Endpoint finds one endpoint, also a deleted one.
func (s *Server) Endpoint(id string) (Endpoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.endpointByID(id); e != nil {
		return e.snapshot(time.Now()), true
	}
	return Endpoint{}, false
}

// RunningInstances is what is billed at this moment: the instances of all
// endpoints that are neither deleted nor stopped. A deploy script that has
// failed and cleaned up leaves zero.
func (s *Server) RunningInstances() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := 0, time.Now()
	for _, e := range s.alive(now) {
		if e.billed(now) {
			n += e.target
		}
	}
	return n
}

// alive are the endpoints that are not deleted. It leaves those that are behind
// for good, so that a server with a long history stays quick.
func (s *Server) alive(now time.Time) []*endpoint {
	s.living = slices.DeleteFunc(s.living, func(e *endpoint) bool { return e.deleted(now) })
	return s.living
}

// ScriptStatus makes the next GETs of an endpoint show these statuses, one
// each, instead of following the clock. The last one stays until an update
// changes the number of instances. It panics if there is no such endpoint.
func (s *Server) ScriptStatus(id string, statuses ...string) {
	s.change(id, func(e *endpoint) { e.script = slices.Clone(statuses) })
}

// SetStatus makes an endpoint show this status from now on, until an update
// changes the number of instances; it ends a script. An empty status goes
// back to the clock. It panics if there is no such endpoint.
func (s *Server) SetStatus(id, status string) {
	s.change(id, func(e *endpoint) { e.forced, e.script = status, nil })
}

// SetStatusInfo sets the status_info of an endpoint, which otherwise is null.
// It panics if there is no such endpoint.
func (s *Server) SetStatusInfo(id, info string) {
	s.change(id, func(e *endpoint) { e.statusInfo = &info })
}

func (s *Server) change(id string, f func(*endpoint)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endpointByID(id)
	if e == nil {
		panic(fmt.Sprintf("svctest: no endpoint %q", id))
	}
	e.bill(time.Now())
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
