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
// that no call could use is none, and neither is a number that may have gone on where
// the answer breaks off: a part of an id is the id of something else.
func salvageID(route string, answer []byte) string {
	field := idField[route]
	answer = jsonx.TrimBOM(answer)
	dec := json.NewDecoder(bytes.NewReader(answer))
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
			next := answer[dec.InputOffset():]
			if id = string(value); strings.Trim(id, "0123456789") != "" || len(next) == 0 || !strings.ContainsRune(",} \t\r\n", rune(next[0])) {
				return ""
			}
		} else if json.Unmarshal(value, &id) != nil {
			return ""
		}
		if idProblem(id) != "" {
			return ""
		}
		return id
	}
	return ""
}
