package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"example.com/svc"
	"example.com/svc/ledger"
)

// otherRequest returns what to do if a key has the endpoint of another request. err names the entry of that endpoint, which
// may not be the one that the key had at first.
func (t *tool) otherRequest(err error, f facts) []string {
	e, ok := t.entryInUse(err)
	if !ok {
		return []string{"To see the endpoint of the key: " + t.cmd("get --key %s", f.Key)}
	}
	had := e.Records[0].Instances
	created := fmt.Sprintf("%s was created with --instances %d", printable(e.ServiceID), had)
	if e.Instances != had {
		created += fmt.Sprintf(", and \"svc scale\" has asked for %d since", e.Instances)
	}
	scaled := fmt.Sprintf("%s. To go on with it, repeat --instances %d, which does not scale it. To scale it: ", created, had)
	if f.Request != nil && t.differs(e, *f.Request) != "" {
		req := *f.Request
		req.ResourceMetadata.TargetInstanceNumber = had
		if t.differs(e, req) == "" {
			return []string{
				"Only the number of instances differs. " + scaled + t.cmd("scale --key %s %d", f.Key, f.Request.ResourceMetadata.TargetInstanceNumber),
				"To get another endpoint, choose another --key.",
			}
		}
	}
	lines := []string{
		"The request is another one than that of the key's endpoint. " + t.unlike(e, f),
		"To see the rest of it: " + t.cmd("get --key %s", f.Key),
		"Repeat the request that created it, choose another --key, or run: " + t.cmd("delete --key %s", f.Key),
	}
	if e.Instances != had {
		lines = append(lines, scaled+t.cmd("scale --key %s N", f.Key))
	}
	return lines
}

// differs returns how a request differs from that of an entry, as far as the ledger has it; or an empty string.
func (t *tool) differs(e ledger.Entry, req svc.CreateInferenceServiceRequest) string {
	body, err := json.Marshal(req)
	if err != nil {
		return err.Error()
	}
	want, err := ledger.ParseRequest(body)
	if err != nil {
		return err.Error()
	}
	return e.Differs(t.address, want)
}

// unlike returns what the record of the endpoint of an entry shows of the fields that the ledger does not have.
func (t *tool) unlike(e ledger.Entry, f facts) string {
	const unknown = "The ledger does not have its image, command, port and GPUs"
	if t.elsewhere(e) || f.Request == nil {
		return unknown + ": look where it was deployed from."
	}
	ctx, cancel := briefly(t.ctx)
	defer cancel()
	s, err := t.client.InferenceServices.Get(ctx, e.ServiceID, svc.WithMaxAttempts(1))
	if err != nil {
		return unknown + ", and its record cannot be read now."
	}
	switch others, shown := otherFields(s, *f.Request); {
	case !shown:
		return unknown + ", and the service does not show them: look where it was deployed from."
	case len(others) > 0:
		return "By its record, it has another " + strings.Join(others, ", another ") + "."
	}
	same := "By its record, its image, command, port and GPUs are the same"
	if strings.Contains(t.differs(e, *f.Request), "other fields") {
		return same + ": another field differs, in --file perhaps the description."
	}
	return same + "."
}

// otherFields returns the fields of deploy_metadata in which the record of an endpoint differs from a request. shown reports
// whether the record has them: a service need not show them. A command may hold secrets, so it is not in the text.
func otherFields(s *svc.InferenceService, req svc.CreateInferenceServiceRequest) (others []string, shown bool) {
	has, want := s.DeployMetadata, req.DeployMetadata
	for _, f := range []struct {
		name      string
		has, want any
	}{{"image", has.ImageURL, want.ImageURL}, {"port", int(has.Port), want.Port}, {"number of GPUs", int(has.GPUNum), want.GPUNum}} {
		if f.has != f.want {
			others = append(others, fmt.Sprintf("%s (%s, not %s)", f.name, printable(fmt.Sprint(f.has)), printable(fmt.Sprint(f.want))))
		}
	}
	if has.Command != want.Command {
		others = append(others, "command")
	}
	return others, has.ImageURL != ""
}
