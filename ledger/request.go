package ledger

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// A Request is the parsed body of a create or update.
type Request struct {
	Name      string // name of the endpoint
	FlavorID  string // flavor of the endpoint
	Instances int    // number of instances; -1 if the body has none

	fields map[string]any // the whole body, with numbers as text
}

var errBody = errors.New("must hold a name, a flavor_id and a target_instance_number of the usual types, since the ledger records them")

// ParseRequest reads the final body of a create or of an update.
func ParseRequest(body []byte) (r Request, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var sent struct {
		Name             string
		ResourceMetadata struct {
			FlavorID             string `json:"flavor_id"`
			TargetInstanceNumber any    `json:"target_instance_number"`
		} `json:"resource_metadata"`
	}
	if dec.Decode(&r.fields) != nil || json.Unmarshal(body, &sent) != nil {
		return r, errBody
	}
	r.Name, r.FlavorID, r.Instances = sent.Name, sent.ResourceMetadata.FlavorID, -1
	if n := sent.ResourceMetadata.TargetInstanceNumber; n != nil {
		f, err := strconv.ParseFloat(fmt.Sprint(n), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > math.MaxInt32 {
			return r, errBody
		}
		r.Instances = int(f)
	}
	return r, nil
}

const hashVersion = "1:"

// Intend returns the record of the intent to create an endpoint with this request, without its times,
// and the body to send. final is the body with the chosen flavor, which the hash of the request does
// not include. If mark is true, the description begins with the mark of the intent, so that a service
// that truncates descriptions keeps it. Marks of other intents are removed. A create without a number
// of instances creates one instance.
func (r Request) Intend(key, baseURL string, final []byte, mark bool) (Record, []byte, error) {
	intent := rand.Text()
	sent, err := ParseRequest(final)
	record := Record{
		Key: key, Intent: intent, Event: Intended, BaseURL: baseURL, Name: sent.Name, FlavorID: sent.FlavorID,
		Instances: sent.billed(), RequestHash: r.hash(intent, r.FlavorID),
	}
	if err != nil || !mark {
		return record, final, err
	}
	description, ok := sent.fields["description"].(string)
	if !ok && sent.fields["description"] != nil {
		return record, nil, errors.New("must be a string: the ledger adds its mark to it (see WithoutLedgerMark)")
	}
	_, description = FindMark(description)
	sent.fields["description"] = strings.TrimSpace("[svc:" + intent + "] " + description)
	marked, err := json.Marshal(sent.fields)
	return record, marked, err
}

// billed returns the number of instances that a create starts.
func (r Request) billed() int {
	if r.Instances < 0 {
		return 1
	}
	return r.Instances
}

// hash returns a hash of the intent and the body with this flavor, with sorted keys and without the
// mark. An empty flavor is not in the body. The result begins with the version of the hash.
func (r Request) hash(intent, flavor string) string {
	fields := maps.Clone(r.fields)
	if sent, _ := fields["resource_metadata"].(map[string]any); flavor != r.FlavorID {
		meta := map[string]any{}
		maps.Copy(meta, sent)
		if fields["resource_metadata"], meta["flavor_id"] = meta, flavor; flavor == "" {
			delete(meta, "flavor_id")
		}
	}
	if text, ok := fields["description"].(string); ok {
		_, fields["description"] = FindMark(text)
	}
	sorted, _ := json.Marshal(fields)
	sum := sha256.Sum256(append([]byte(intent+"\n"), sorted...))
	return hashVersion + hex.EncodeToString(sum[:])
}

// MarkLength is the number of characters that the mark of an intent adds to a description.
const MarkLength = len("[svc:] ") + 26

var marks = regexp.MustCompile(`\[svc:([A-Z2-7]{26})\]`)

// FindMark returns the intent in the first mark "[svc:INTENT]" of a description, and the
// description without its marks. The intent is empty if there is no mark.
func FindMark(description string) (intent, without string) {
	if m := marks.FindStringSubmatch(description); m != nil {
		intent = m[1]
	}
	return intent, strings.TrimSpace(marks.ReplaceAllLiteralString(description, ""))
}
