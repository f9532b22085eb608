package svc

// Job is a record of the legacy job API.
type Job struct{}

const (
	videoJobs = "/v1/svc-video-job"
	imageJobs = "/v1/svc-image-job"
)
