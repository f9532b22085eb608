package jobs_test

import (
	"bytes"
	"fmt"

	"example.com/svc"
	"example.com/svc/internal/testkit"
)

// jobID returns the ID of the i-th job. The first one is 1.
func jobID(i int) string { return fmt.Sprintf("job-%05d", i) }

func jobIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = jobID(i + 1)
	}
	return ids
}

// jobList returns a page of jobs as JSON. A negative total is omitted.
func jobList(total int, ids ...string) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	if total >= 0 {
		fmt.Fprintf(&b, `"total_count":%d,`, total)
	}
	b.WriteString(`"job_list":[`)
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"job_id":%q,"status":"succeed","outputs":[]}`, id)
	}
	b.WriteString(`]}`)
	return b.Bytes()
}

// cutJobs returns the IDs on page number.
func cutJobs(ids []string, number, size int) []string {
	from := min((max(number, 1)-1)*size, len(ids))
	return ids[from:min(from+size, len(ids))]
}

// jobsInPages serves ids in pages of at most size jobs, with the true total.
func jobsInPages(ids []string, size int) *testkit.JobService {
	return &testkit.JobService{Page: func(number, asked int) (int, []byte) {
		if asked <= 0 || asked > size {
			asked = size
		}
		return 200, jobList(len(ids), cutJobs(ids, number, asked)...)
	}}
}

// collectJobs reads a list to its end.
func collectJobs(list func(func(*svc.Job, error) bool)) (ids []string, err error) {
	for job, err := range list {
		if err != nil {
			return ids, err
		}
		ids = append(ids, job.JobID)
	}
	return ids, nil
}
