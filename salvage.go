package svc

import (
	"bytes"
	"encoding/json"
	"strings"

	"example.com/svc/internal/jsonx"
)

// idField is the field of a record that holds its id, by the route that creates it.
var idField = map[string]string{services: "service_id", files: "id", videoJobs: "job_id", imageJobs: "job_id"}

// salvageID looks for the new record's id in what came of the answer to a create:
// among the fields of the record itself and nowhere deeper, since other ids belong
// to other things. What comes after a break or a mistake is not looked at. An id
// that no call could use is none.
func salvageID(route string, answer []byte) string {
	field := idField[route]
	dec := json.NewDecoder(bytes.NewReader(jsonx.TrimBOM(answer)))
	if open, err := dec.Token(); field == "" || err != nil || open != json.Delim('{') {
		return ""
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return ""
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return ""
		}
		if text, _ := name.(string); !strings.EqualFold(text, field) {
			continue
		}
		var id string
		if value[0] != '"' { // a number, if it is an id at all
			if id = string(value); id[0] >= '0' && id[0] <= '9' {
				return id
			}
			return ""
		}
		if json.Unmarshal(value, &id) != nil || idProblem(id) != "" {
			return ""
		}
		return id
	}
	return ""
}
