package svc

import (
	"encoding/json"
)

// CreateVideoJobRequest describes a video to be generated.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type CreateVideoJobRequest struct {
	Config VideoJobConfig `json:"config"`
}

// VideoJobConfig describes a video. Only Prompt is required: a field left at its
// zero value is not sent, and takes the service's default.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type VideoJobConfig struct {
	Prompt                 string           `json:"prompt"`                   // what the video is to show
	NegativePrompt         Nullable[string] `json:"negative_prompt,omitzero"` // what it is not to show; default null
	Settings               VideoJobSettings `json:"settings,omitzero"`
	GenMode                GenMode          `json:"gen_mode,omitempty"`                 // default GenModeStandard
	IsPublic               *bool            `json:"is_public,omitempty"`                // default true; new(false) keeps the video private
	UseFFCond              json.RawMessage  `json:"use_ff_cond,omitempty"`              // any JSON: the service does not say what it holds; default null
	IsEnablePromptEnhancer Nullable[bool]   `json:"is_enable_prompt_enhancer,omitzero"` // default null
}

// VideoJobSettings are the measures of a video.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type VideoJobSettings struct {
	Seed        *int   `json:"seed,omitempty"`         // default -1; 0 is a seed, hence the pointer
	AspectRatio string `json:"aspect_ratio,omitempty"` // default "16:9"
	Resolution  int    `json:"resolution,omitempty"`   // default 720
	Duration    int    `json:"duration,omitempty"`     // default 4
}

// CreateImageJobRequest describes images to be generated.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type CreateImageJobRequest struct {
	Config ImageJobConfig `json:"config"`
}

// ImageJobConfig describes images. Only Prompt is required: a field left at its
// zero value is not sent, and takes the service's default.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type ImageJobConfig struct {
	Prompt         string           `json:"prompt"`                   // what the images are to show
	NegativePrompt Nullable[string] `json:"negative_prompt,omitzero"` // what they are not to show; default null
	Settings       ImageJobSettings `json:"settings,omitzero"`
	Config         ImageConfig      `json:"config,omitzero"`
}

// ImageJobSettings are the measures of the images. The service shows its defaults
// for videos only.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type ImageJobSettings struct {
	Seed        *int   `json:"seed,omitempty"` // 0 is a seed, hence the pointer
	AspectRatio string `json:"aspect_ratio,omitempty"`
	Resolution  int    `json:"resolution,omitempty"`
}

// ImageConfig is the config within the config of an image job.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type ImageConfig struct {
	ImageNumber int `json:"image_number,omitempty"` // how many images to make; 0: not sent
}

// jobBody is a create request as it is sent: its job_type goes with the method.
type jobBody[Config any] struct {
	JobType JobType `json:"job_type"`
	Config  Config  `json:"config"`
}

func (r *CreateVideoJobRequest) problems() (p problems) {
	p.add(r.Config.Prompt == "", "config.prompt", "is required")
	p.add(r.Config.Settings.Resolution < 0, "config.settings.resolution", "must not be negative")
	p.add(r.Config.Settings.Duration < 0, "config.settings.duration", "must not be negative")
	p.add(len(r.Config.UseFFCond) > 0 && !json.Valid(r.Config.UseFFCond), "config.use_ff_cond", "is not JSON")
	return p
}

func (r *CreateImageJobRequest) problems() (p problems) {
	p.add(r.Config.Prompt == "", "config.prompt", "is required")
	p.add(r.Config.Settings.Resolution < 0, "config.settings.resolution", "must not be negative")
	p.add(r.Config.Config.ImageNumber < 0, "config.config.image_number", "must not be negative")
	return p
}

// Nullable is an optional field of a request in which null is something else than
// being left out. The zero value is left out; [Value] and [Null] make the others.
type Nullable[T any] struct {
	value T
	state nullableState
}

type nullableState uint8

const (
	leftOut nullableState = iota
	isNull
	isSet
)

// Value is v, sent even if it is zero: Value("") sends "".
func Value[T any](v T) Nullable[T] { return Nullable[T]{v, isSet} }

// Null is null, sent as such.
func Null[T any]() Nullable[T] { return Nullable[T]{state: isNull} }

// Get returns the value, and whether there is one: a field that is null or left
// out has none.
func (n Nullable[T]) Get() (v T, ok bool) { return n.value, n.state == isSet }

// IsNull reports whether null is sent.
func (n Nullable[T]) IsNull() bool { return n.state == isNull }

// IsZero reports whether the field is left out. The omitzero option of
// encoding/json goes by it.
func (n Nullable[T]) IsZero() bool { return n.state == leftOut }

// MarshalJSON returns the value, or null.
func (n Nullable[T]) MarshalJSON() ([]byte, error) {
	if n.state != isSet {
		return []byte("null"), nil
	}
	return json.Marshal(n.value)
}

// UnmarshalJSON reads a value or null.
func (n *Nullable[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*n = Null[T]()
		return nil
	}
	v := Value(*new(T))
	if err := json.Unmarshal(b, &v.value); err != nil {
		return err
	}
	*n = v
	return nil
}
