package svctest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

type jobRecord struct {
	JobID       string      `json:"job_id"`
	UserID      string      `json:"user_id"`
	Name        string      `json:"name"`
	Description string      `json:"description"`
	PaymentType string      `json:"payment_type"`
	Status      string      `json:"status"`
	MetaInfo    jobMetaInfo `json:"meta_info"`
	CreatedAt   string      `json:"created_at"`
	UpdatedAt   string      `json:"updated_at"`
	DeletedAt   *string     `json:"deleted_at"`
	IsDeleted   bool        `json:"is_deleted"`
	Outputs     any         `json:"outputs"` // {} while there are no outputs
}

type jobMetaInfo struct {
	OriginalRequest json.RawMessage `json:"original_request"`
	ModelID         int             `json:"model_id"`
	OrderID         string          `json:"order_id,omitempty"`
	UpdateAt        string          `json:"update_at,omitempty"`
	ServiceAPIToken *jobToken       `json:"service_api_token,omitempty"` // only for video jobs
}

type jobToken struct {
	APIToken   string  `json:"api_token"` // always empty, since the service hides the token
	APITokenID int     `json:"api_token_id"`
	User       jobUser `json:"user"`
}

type jobUser struct {
	UserID   string `json:"user_id"`
	Nickname string `json:"nickname"`
	Currency string `json:"currency"`
}

type jobOutput struct {
	ID           string `json:"id"`
	MediaURL     string `json:"media_url"`
	ThumbnailURL string `json:"thumbnail_url,omitempty"` // only for video jobs
}

// record returns the record of j, with times in the form of layout. Different operations
// of the service write times in different forms.
func (s *Server) record(j *job, now time.Time, layout string) jobRecord {
	r := jobRecord{
		JobID: j.id, UserID: j.user, Name: j.name, Description: j.description, PaymentType: "usd", Status: j.status(now),
		MetaInfo:  jobMetaInfo{OriginalRequest: j.request, ModelID: 8},
		CreatedAt: formatTime(j.created, layout), UpdatedAt: formatTime(j.created, layout),
		Outputs: struct{}{},
	}
	if j.kind == videoJob {
		r.MetaInfo.ModelID = 7
		r.MetaInfo.ServiceAPIToken = &jobToken{APITokenID: 9, User: jobUser{j.user, "sample", "usd"}}
	}
	if !j.hasOutputs(now) && (j.forced != "" || now.Before(j.finished)) {
		return r
	}
	r.UpdatedAt = formatTime(j.finished, layout)
	r.MetaInfo.OrderID = "order-" + j.id
	r.MetaInfo.UpdateAt = formatTime(j.finished, spacedTime)
	if j.hasOutputs(now) {
		r.Outputs = jobOutputs(s.outputs(j, now))
	}
	return r
}

// outputs returns the media that a GET of j shows; nil means none.
func (s *Server) outputs(j *job, now time.Time) []JobOutput {
	if !j.hasOutputs(now) {
		return nil
	}
	outputs := slices.Clone(j.seeded)
	switch {
	case outputs != nil:
	case j.kind == videoJob:
		outputs = make([]JobOutput, 1)
	default:
		outputs = make([]JobOutput, j.images)
	}
	for i := range outputs {
		o := &outputs[i]
		o.ID = orDefault(o.ID, fmt.Sprintf("out-%s-%d", j.id, i+1))
		switch {
		case o.MediaURL != "":
		case j.kind == videoJob:
			o.MediaURL = s.mediaLink(j, "mp4", now)
			o.ThumbnailURL = orDefault(o.ThumbnailURL, s.mediaLink(j, "png", now))
		default:
			o.MediaURL = s.mediaLink(j, fmt.Sprintf("%d.png", i+1), now)
		}
	}
	return outputs
}

func jobOutputs(list []JobOutput) []jobOutput {
	records := make([]jobOutput, len(list))
	for i, o := range list {
		records[i] = jobOutput(o)
	}
	return records
}

func (s *Server) mediaLink(j *job, suffix string, now time.Time) string {
	return s.link("media-"+j.id+"."+suffix, now, nil, "GET")
}

// parse reads a create request and fills in its defaults.
func (kind jobKind) parse(body jsonObject) *job {
	j := &job{kind: kind}
	body.required("job_type")
	if t := body.text("job_type", string(kind)); t != string(kind) {
		body.problem("job_type", "must be %s for this path", kind)
	}
	body.required("config")
	config := body.object("config")
	if config.fields != nil {
		config.required("prompt")
	}
	echo := ordered{
		{"prompt", config.text("prompt", "")},
		{"negative_prompt", config.nullable("negative_prompt", func(o jsonObject, key string) { o.text(key, "") })},
	}
	settings := config.object("settings")
	if kind == videoJob {
		echo = append(echo, ordered{
			{"settings", ordered{
				{"seed", settings.integer("seed", -1)},
				{"aspect_ratio", settings.text("aspect_ratio", "16:9")},
				{"resolution", settings.integer("resolution", 720)},
				{"duration", settings.integer("duration", 4)},
			}},
			{"gen_mode", config.text("gen_mode", "standard")},
			{"is_public", config.boolean("is_public", true)},
			{"use_ff_cond", config.nullable("use_ff_cond", func(o jsonObject, key string) { o.raw(key) })},
			{"is_enable_prompt_enhancer", config.nullable("is_enable_prompt_enhancer", func(o jsonObject, key string) { o.boolean(key, false) })},
		}...)
	} else {
		echo = append(echo, imageEcho(j, config, settings)...)
	}
	settings.done()
	config.done()
	body.done()
	j.request = encode(ordered{{"job_type", string(kind)}, {"config", echo}})
	return j
}

// imageEcho returns the settings and the number of images in the form in which the record of an
// image job repeats them. The settings are unchanged, since the contract has no defaults for
// them. The default number of images is one.
func imageEcho(j *job, config, settings jsonObject) ordered {
	given := ordered{}
	for _, key := range []string{"seed", "aspect_ratio", "resolution"} {
		raw, ok := settings.fields[key]
		if !ok {
			continue
		}
		given = append(given, field{key, raw})
		if key == "aspect_ratio" {
			settings.text(key, "")
		} else {
			settings.integer(key, 0)
		}
	}
	inner := config.object("config")
	if j.images = inner.count("image_number", 1); j.images < 1 || j.images > 1000 {
		inner.problem("image_number", "must be from 1 to 1000")
	}
	inner.done()
	return ordered{{"settings", given}, {"config", ordered{{"image_number", j.images}}}}
}

// ordered is a JSON object that keeps the order of its fields.
type (
	ordered []field
	field   struct {
		key   string
		value any
	}
)

func (o ordered) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, f := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, encode(f.key)...), ':'), encode(f.value)...)
	}
	return append(b, '}'), nil
}

func (kind jobKind) create(s *Server, c *call) response {
	j := kind.parse(c.body)
	if a := c.body.invalid(); a.code != "" {
		return a
	}
	j.user, j.created, j.finished = c.user, c.now, c.now.Add(s.cfg.jobTime)
	s.addJob(j)
	layout := isoTime
	if kind == videoJob {
		layout = isoMicroTime
	}
	r := s.record(j, c.now, layout)
	r.Status, r.Outputs = JobInitializing, struct{}{}
	r.MetaInfo.OrderID, r.MetaInfo.UpdateAt = "", ""
	return response{value: r}
}

// shows reports whether a request about jobs of this kind finds j.
func (kind jobKind) shows(j *job, c *call) bool {
	return j.kind == kind && j.user == c.user && j.deleted.IsZero()
}

func (kind jobKind) find(s *Server, c *call) *job {
	if j := s.jobByID(c.id); j != nil && kind.shows(j, c) {
		return j
	}
	return nil
}

func (kind jobKind) get(s *Server, c *call) response {
	j := kind.find(s, c)
	if j == nil {
		return notFound("job")
	}
	layout := spacedTime
	if kind == videoJob {
		layout = isoTime
	}
	return response{value: s.record(j, c.now, layout)}
}

func (kind jobKind) delete(s *Server, c *call) response {
	j := kind.find(s, c)
	if j == nil {
		return notFound("job")
	}
	j.deleted = c.now
	return response{value: struct{}{}}
}

// list returns one page of the jobs in the order of creation.
func (kind jobKind) list(s *Server, c *call) response {
	page, a := positive(c.query, "page", 1)
	if a.code != "" {
		return a
	}
	size, a := positive(c.query, "page_size", 10)
	if a.code != "" {
		return a
	}
	size = min(size, s.cfg.maxPageSize)
	total, list := 0, []jobRecord{}
	for _, j := range s.jobs {
		if !kind.shows(j, c) {
			continue
		}
		if total/size == page-1 {
			list = append(list, s.record(j, c.now, spacedTime))
		}
		total++
	}
	return response{value: map[string]any{"total_count": total, "job_list": list}}
}

// positive reads a positive integer from the query. The parameter is optional and must
// not be given twice.
func positive(q url.Values, key string, absent int) (int, response) {
	if !q.Has(key) {
		return absent, response{}
	}
	n, err := strconv.Atoi(q.Get(key))
	if err != nil || n < 1 || len(q[key]) > 1 {
		return 0, failure(http.StatusBadRequest, "invalid_query", "%s must be a single positive integer", key)
	}
	return n, response{}
}
