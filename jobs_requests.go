package svc

import "encoding/json"

// CreateVideoJobRequest describes a video to be generated.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type CreateVideoJobRequest struct {
	Config VideoJobConfig `json:"config"` // what to generate
}

// VideoJobConfig describes a video. Only Prompt is required: a field left at its
// zero value is not sent, and takes the service's default.
//
// A field of type [json.RawMessage] holds JSON text, so that null can be sent:
// json.RawMessage(`"blurry"`), json.RawMessage("false") or json.RawMessage("null").
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type VideoJobConfig struct {
	Prompt                 string           `json:"prompt"`                              // what the video is to show
	NegativePrompt         json.RawMessage  `json:"negative_prompt,omitempty"`           // what it is not to show: a JSON string or null; default null
	Settings               VideoJobSettings `json:"settings,omitzero"`                   // zero: not sent
	GenMode                GenMode          `json:"gen_mode,omitempty"`                  // default "standard"
	IsPublic               *bool            `json:"is_public,omitempty"`                 // default true; new(false) keeps the video private
	UseFFCond              json.RawMessage  `json:"use_ff_cond,omitempty"`               // any JSON: the service does not say what it holds; default null
	IsEnablePromptEnhancer json.RawMessage  `json:"is_enable_prompt_enhancer,omitempty"` // true, false or null; default null
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
	Config ImageJobConfig `json:"config"` // what to generate
}

// ImageJobConfig describes images. Only Prompt is required: a field left at its
// zero value is not sent, and takes the service's default.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type ImageJobConfig struct {
	Prompt         string           `json:"prompt"`                    // what the images are to show
	NegativePrompt json.RawMessage  `json:"negative_prompt,omitempty"` // what they are not to show: a JSON string or null; default null
	Settings       ImageJobSettings `json:"settings,omitzero"`         // zero: not sent
	Config         ImageConfig      `json:"config,omitzero"`           // zero: not sent
}

// ImageJobSettings are the measures of the images. The service shows its defaults
// for videos only.
//
// Deprecated: the legacy job API is retired; see [VideoJobClient].
type ImageJobSettings struct {
	Seed        *int   `json:"seed,omitempty"`         // 0 is a seed, hence the pointer
	AspectRatio string `json:"aspect_ratio,omitempty"` // such as "16:9"; empty: not sent
	Resolution  int    `json:"resolution,omitempty"`   // 0: not sent
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
	p.addJSON(r.Config.NegativePrompt, "config.negative_prompt")
	p.addJSON(r.Config.UseFFCond, "config.use_ff_cond")
	p.addJSON(r.Config.IsEnablePromptEnhancer, "config.is_enable_prompt_enhancer")
	return p
}

func (r *CreateImageJobRequest) problems() (p problems) {
	p.add(r.Config.Prompt == "", "config.prompt", "is required")
	p.add(r.Config.Settings.Resolution < 0, "config.settings.resolution", "must not be negative")
	p.addJSON(r.Config.NegativePrompt, "config.negative_prompt")
	p.add(r.Config.Config.ImageNumber < 0, "config.config.image_number", "must not be negative")
	return p
}

func (p *problems) addJSON(raw json.RawMessage, field string) {
	p.add(len(raw) > 0 && !json.Valid(raw), field, "is not JSON")
}
